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

/// Encodes pieces with a BpeModel: looks up those that are one token, many at a time, so that the
/// memory accesses overlap; takes the others from the thread's PreTokenCache or, the first time,
/// from the model. Made per call; keeps nothing.
class PieceEncoder {
 public:
  /// `instance` tells the model's entries in the cache apart.
  PieceEncoder(const BpeModel& model, uint32_t instance, BpeScratch& scratch)
      : model_(model), instance_(instance), scratch_(scratch) {}

  /// Appends the ids of `text` (valid UTF-8, under 4 GiB), cut by the expression of `family`.
  void encode_text(ScannerFamily family, std::string_view text, std::vector<TokenId>& out);

  /// Appends the ids of one non-empty piece.
  void encode_piece(std::string_view piece, std::vector<TokenId>& out);

 private:
  /// The pieces of `text` from `begin` on that end at `ends`.
  void encode_pieces(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                     std::vector<TokenId>& out);
  void encode_divided(std::string_view piece, const PreTokenCache::Key& key,
                      std::vector<TokenId>& out);

  const BpeModel& model_;
  uint32_t instance_;
  BpeScratch& scratch_;
};

}  // namespace stator::tokenizer
