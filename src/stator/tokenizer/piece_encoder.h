// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/bpe_model.h"
#include "stator/tokenizer/pre_token_cache.h"
#include "stator/tokenizer/scanner.h"

namespace stator::tokenizer {

struct OpenPiece;
struct PieceChunk;

/// Encodes pieces with a BpeModel: takes those seen before from the thread's PreTokenCache, many at
/// a time, so that the memory accesses overlap, and the others from the model. Made per call; keeps
/// nothing.
class PieceEncoder {
 public:
  /// `instance` tells the model's entries in the cache apart.
  PieceEncoder(const BpeModel& model, uint32_t instance, BpeScratch& scratch)
      : model_(model),
        instance_(instance),
        scratch_(scratch),
        cache_(PreTokenCache::of_this_thread()) {}

  /// Appends the ids of `text` (valid UTF-8, under 4 GiB), cut by the expression of `family`.
  void encode_text(ScannerFamily family, std::string_view text, std::vector<TokenId>& out);

  /// Appends the ids of one non-empty piece.
  void encode_piece(std::string_view piece, std::vector<TokenId>& out);

 private:
  /// The pieces of `text` from `begin` on that end at `ends`.
  void add_pieces(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                  PieceChunk& chunk) const;
  void finish(PieceChunk& chunk, std::vector<TokenId>& out);
  void look_up(PieceChunk& chunk) const;
  void look_up_short(PieceChunk& chunk) const;
  void look_up_long(PieceChunk& chunk) const;
  void look_up_wide(PieceChunk& chunk) const;
  void merge(PieceChunk& chunk);
  void append(OpenPiece& open, std::vector<TokenId>& out);
  void write(PieceChunk& chunk, std::vector<TokenId>& out);
  void keep(const PieceChunk& chunk, std::span<const TokenId> out);
  static std::span<const TokenId> ids_of(const OpenPiece& open, std::span<const TokenId> out);

  const BpeModel& model_;
  uint32_t instance_;
  BpeScratch& scratch_;
  PreTokenCache& cache_;
};

}  // namespace stator::tokenizer
