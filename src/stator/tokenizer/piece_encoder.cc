// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/piece_encoder.h"

#include "stator/tokenizer/piece_scanner.h"
#include "stator/tokenizer/piece_table.h"
#include "stator/tokenizer/pre_token_cache.h"

#include <algorithm>
#include <array>

namespace stator::tokenizer {
namespace {

// Enough to hide memory latency, few enough to stay in the first-level cache.
constexpr size_t kBatchPieces = 256;

/// Places of the short pieces in the table, on their way into the cache; tail 0 for the others.
void find_keys(const PieceTable& table, std::string_view text, size_t begin,
               std::span<const uint32_t> ends, PieceTable::ShortKey* keys) {
  for (const uint32_t end : ends) {
    const size_t bytes = end - begin;
    if (bytes <= PieceTable::kShortBytesMax && begin + PieceTable::kReadBytes <= text.size())
        [[likely]] {
      *keys = table.make_key(text.data() + begin, bytes);
      table.prefetch(*keys);
    } else {
      *keys = {};
    }
    begin = end;
    ++keys;
  }
}

/// A piece of more than one token.
struct Divided {
  std::string_view piece;
  size_t index;            // in its batch
  PreTokenCache::Key key;  // if it is short enough
};

}  // namespace

void PieceEncoder::encode_text(ScannerFamily family, std::string_view text,
                               std::vector<TokenId>& out) {
  const PieceScanner scanner(family);
  std::array<uint32_t, kBatchPieces> ends;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const size_t count = scanner.scan(text, at, ends);
    encode_pieces(text, begin, std::span(ends).first(count), out);
  }
}

/// Three passes, so that the memory accesses of many pieces overlap: places in the table, ids, and
/// then what is not one token.
void PieceEncoder::encode_pieces(std::string_view text, size_t begin,
                                 std::span<const uint32_t> ends, std::vector<TokenId>& out) {
  const PieceTable& table = model_.whole_pieces();
  std::array<PieceTable::ShortKey, kBatchPieces> keys;
  find_keys(table, text, begin, ends, keys.data());
  const PreTokenCache& cache = PreTokenCache::of_this_thread();
  std::array<TokenId, kBatchPieces> ids;
  std::array<Divided, kBatchPieces> divided;
  size_t divided_count = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const std::string_view piece = text.substr(begin, ends[i] - begin);
    begin = ends[i];
    ids[i] = keys[i].tail != 0 ? table.find(keys[i]) : table.find(piece);
    if (ids[i] == PieceTable::kNone) [[unlikely]] {
      Divided& next = divided[divided_count++];
      next = {.piece = piece, .index = i};
      if (piece.size() <= PreTokenCache::kPieceBytesMax) {
        next.key = PreTokenCache::make_key(piece, instance_);
        cache.prefetch(next.key);
      }
    }
  }
  size_t done = 0;
  for (const Divided& next : std::span(divided).first(divided_count)) {
    out.insert(out.end(), ids.data() + done, ids.data() + next.index);
    done = next.index + 1;
    encode_divided(next.piece, next.key, out);
  }
  out.insert(out.end(), ids.data() + done, ids.data() + ends.size());
}

void PieceEncoder::encode_piece(std::string_view piece, std::vector<TokenId>& out) {
  if (const TokenId id = model_.whole_pieces().find(piece); id != PieceTable::kNone) {
    out.push_back(id);
    return;
  }
  PreTokenCache::Key key{};
  if (piece.size() <= PreTokenCache::kPieceBytesMax) {
    key = PreTokenCache::make_key(piece, instance_);
  }
  encode_divided(piece, key, out);
}

void PieceEncoder::encode_divided(std::string_view piece, const PreTokenCache::Key& key,
                                  std::vector<TokenId>& out) {
  if (piece.size() > PreTokenCache::kPieceBytesMax) {
    model_.encode(piece, scratch_, out);
    return;
  }
  PreTokenCache& cache = PreTokenCache::of_this_thread();
  if (const auto known = cache.find(key); !known.empty()) {
    out.insert(out.end(), known.begin(), known.end());
    return;
  }
  const size_t begin = out.size();
  if (piece.size() <= PieceTable::kBytesMax) {
    model_.encode_divided(piece, scratch_, out);
  } else {
    model_.encode(piece, scratch_, out);
  }
  cache.insert(key, std::span(out).subspan(begin));
}

}  // namespace stator::tokenizer
