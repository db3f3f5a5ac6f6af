// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/piece_encoder.h"

#include "stator/tokenizer/piece_scanner.h"
#include "stator/tokenizer/piece_table.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace stator::tokenizer {
namespace {

// Enough to hide memory latency, few enough to stay in the first-level cache.
constexpr size_t kBatchPieces = 256;

}  // namespace

/// A piece that the short part of the cache does not tell.
struct PieceEncoder::Open {
  const char* text;
  size_t bytes;
  PieceKey key;                     // none: a long piece
  uint32_t place;                   // in the cache
  PieceTable::ShortKey table_key;   // if it is short enough for that
  PreTokenCache::LongKey long_key;  // if it is long and short enough for that
  // The result: up to three ids, or where they are.
  PreTokenCache::Ids few;
  const TokenId* ids;
  uint32_t count;      // 0: not known
  bool is_known;       // to the cache
  size_t out_begin;    // of the ids, where they are not known before they are written
  uint64_t wide_hash;  // if it is to be looked for among the wide ones

  std::string_view piece() const { return {text, bytes}; }
  // Short pieces with many ids are rare: looking for new ones among the wide ones would cost more.
  bool is_wide() const {
    return bytes > PieceKey::kBytesMax && bytes <= PreTokenCache::kWideBytesMax;
  }

  void set(const TokenId* all, size_t number) {
    ids = all;
    count = static_cast<uint32_t>(number);
    if (number <= PreTokenCache::kShortIdsMax) {
      std::copy_n(all, number, few.ids.begin());
      few.owner = count;
    }
  }
};

/// Working memory of one batch; on the stack.
struct PieceEncoder::Batch {
  std::array<PieceKey, kBatchPieces> keys;
  std::array<uint32_t, kBatchPieces> places;
  std::array<const PreTokenCache::Ids*, kBatchPieces> ids;  // count 0: what an open piece says
  std::array<Open, kBatchPieces> open;
  size_t open_count;
};

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

/// Keys of the short pieces and their places in the cache, on their way into the processor's cache.
void PieceEncoder::find_places(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                               Batch& batch) const {
  const bool is_inside = ends.back() + PieceKey::kReadBytes <= text.size();
  size_t i = 0;
  for (const uint32_t end : ends) {
    const size_t bytes = end - begin;
    const char* piece = text.data() + begin;
    PieceKey key{0, 0};
    if (bytes <= PieceKey::kBytesMax) [[likely]] {
      key = is_inside ? PieceKey::read(piece, bytes) : PieceKey::of({piece, bytes});
    } else if (PreTokenCache::is_long(bytes)) {
      cache_.prefetch(PreTokenCache::make_long_key({piece, bytes}, instance_));
    }
    const uint32_t place = PreTokenCache::place_of(key);
    cache_.prefetch(place);
    batch.keys[i] = key;
    batch.places[i] = place;
    begin = end;
    ++i;
  }
}

/// What the cache tells; the others are the open ones.
void PieceEncoder::take_known(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                              Batch& batch) const {
  std::array<uint32_t, kBatchPieces> open;
  size_t count = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto* ids = cache_.find(batch.keys[i], batch.places[i], instance_);
    batch.ids[i] = ids != nullptr ? ids : &batch.open[count].few;
    open[count] = static_cast<uint32_t>(i);
    count += ids == nullptr ? 1 : 0;
  }
  batch.open_count = count;
  const PieceTable& table = model_.whole_pieces();
  for (size_t n = 0; n < count; ++n) {
    Open& next = batch.open[n];
    const size_t i = open[n];
    const size_t from = i == 0 ? begin : ends[i - 1];
    next.few.owner = 0;
    next.text = text.data() + from;
    next.bytes = ends[i] - from;
    next.key = batch.keys[i];
    next.place = batch.places[i];
    if (next.bytes <= PieceTable::kShortBytesMax) {
      next.table_key = table.make_key(next.key);
      table.prefetch(next.table_key);
    }
  }
}

/// Long pieces in the cache, and all in the table.
void PieceEncoder::look_up(std::span<Open> open) const {
  const PieceTable& table = model_.whole_pieces();
  for (Open& next : open) {
    next.count = 0;
    next.is_known = false;
    if (PreTokenCache::is_long(next.bytes)) {
      next.long_key = PreTokenCache::make_long_key(next.piece(), instance_);
      if (const auto known = cache_.find(next.long_key); !known.empty()) {
        next.set(known.data(), known.size());
        next.is_known = true;
        continue;
      }
    }
    const TokenId whole = next.bytes <= PieceTable::kShortBytesMax
                              ? table.find(next.table_key)
                              : model_.find_whole(next.piece());
    if (whole != PieceTable::kNone) {
      next.set(&whole, 1);
      next.ids = next.few.ids.data();
    }
  }
}

/// Wide pieces in the cache.
void PieceEncoder::look_up_wide(std::span<Open> open) const {
  bool is_any_wide = false;
  for (Open& next : open) {
    if (next.count == 0 && next.is_wide()) {
      is_any_wide = true;
      const auto key = PreTokenCache::make_wide_key(next.piece(), instance_);
      next.wide_hash = key.hash;
      cache_.prefetch(key);
    }
  }
  for (Open& next : is_any_wide ? open : std::span<Open>()) {
    if (next.count == 0 && next.is_wide()) {
      const auto known = cache_.find({next.piece(), next.wide_hash, instance_});
      next.set(known.data(), known.size());
      next.is_known = !known.empty();
    }
  }
}

/// What is left, but for pieces over WordMerger::kBytesMax.
void PieceEncoder::merge(std::span<Open> open) {
  const auto is_left = [](const Open& next) {
    return next.count == 0 && next.bytes <= WordMerger::kBytesMax;
  };
  std::vector<WordToEncode>& words = scratch_.words;
  words.clear();
  size_t bytes = 0;
  for (const Open& next : open) {
    if (is_left(next)) {
      words.push_back({.word = next.piece()});
      bytes += next.bytes + WordMerger::kSpareIds;
    }
  }
  if (words.empty()) {
    return;
  }
  scratch_.ids_of_words.resize(std::max(scratch_.ids_of_words.size(), bytes));
  TokenId* ids = scratch_.ids_of_words.data();
  for (WordToEncode& word : words) {
    word.ids = ids;
    ids += word.word.size() + WordMerger::kSpareIds;
  }
  model_.encode_divided(words, scratch_);
  const WordToEncode* word = words.data();
  for (Open& next : open) {
    if (is_left(next)) {
      next.set(word->ids, word->count);
      ++word;
    }
  }
}

void PieceEncoder::write(Batch& batch, size_t pieces, std::vector<TokenId>& out) {
  constexpr size_t kIdsCopied = PreTokenCache::kShortIdsMax + 1;
  std::array<TokenId, kBatchPieces * kIdsCopied> buffer;
  TokenId* to = buffer.data();
  Open* open = batch.open.data();
  for (size_t i = 0; i < pieces; ++i) {
    const PreTokenCache::Ids* ids = batch.ids[i];
    static_assert(sizeof(*ids) == kIdsCopied * sizeof(TokenId));
    std::memcpy(to, ids, sizeof(*ids));
    to += ids->count();
    if (ids->count() == 0) [[unlikely]] {
      while (&open->few != ids) {
        ++open;
      }
      out.insert(out.end(), buffer.data(), to);
      to = buffer.data();
      open->out_begin = out.size();
      if (open->count != 0) {
        out.insert(out.end(), open->ids, open->ids + open->count);
      } else {
        model_.encode_divided(open->piece(), scratch_, out);
        open->count = static_cast<uint32_t>(out.size() - open->out_begin);
        open->ids = nullptr;
      }
    }
  }
  out.insert(out.end(), buffer.data(), to);
}

/// Keeps in the cache what was not there; `out` has just been written.
void PieceEncoder::keep(std::span<const Open> open, std::span<const TokenId> out) {
  for (const Open& next : open) {
    if (next.is_known) {
      continue;
    }
    const std::span ids(next.ids != nullptr ? next.ids : out.data() + next.out_begin, next.count);
    if (next.key.high != 0 && ids.size() <= PreTokenCache::kShortIdsMax) {
      cache_.insert(next.key, next.place, instance_, ids);
    } else if (PreTokenCache::is_long(next.bytes) && ids.size() <= PreTokenCache::kLongIdsMax) {
      cache_.insert(next.long_key, ids);
    } else if (next.is_wide()) {
      cache_.insert(PreTokenCache::make_wide_key(next.piece(), instance_), ids);
    }
  }
}

/// Passes over the batch, so that the memory accesses of many pieces overlap: places in the cache,
/// what is there, then the rest.
void PieceEncoder::encode_pieces(std::string_view text, size_t begin,
                                 std::span<const uint32_t> ends, std::vector<TokenId>& out) {
  Batch batch;
  find_places(text, begin, ends, batch);
  take_known(text, begin, ends, batch);
  const auto open = std::span(batch.open).first(batch.open_count);
  look_up(open);
  look_up_wide(open);
  merge(open);
  write(batch, ends.size(), out);
  keep(open, out);
}

void PieceEncoder::encode_piece(std::string_view piece, std::vector<TokenId>& out) {
  const auto end = static_cast<uint32_t>(piece.size());
  encode_pieces(piece, 0, {&end, 1}, out);
}

}  // namespace stator::tokenizer
