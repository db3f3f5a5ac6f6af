// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/piece_encoder.h"

#include "stator/tokenizer/piece_scanner.h"
#include "stator/tokenizer/piece_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace stator::tokenizer {
namespace {

// Pieces that are looked for together: enough to hide memory latency, few enough to stay in the
// first-level cache.
constexpr size_t kBatchPieces = 256;

// Pieces whose unknown words are merged together, so that these can take turns.
constexpr size_t kChunkPieces = 1024;

/// Keys of pieces and their places in the cache.
struct Batch {
  std::array<PieceKey, kBatchPieces> keys;
  std::array<uint32_t, kBatchPieces> places;
};

/// Takes a slot per piece; the last piece of it that was put in, or kNone. Tells repeated new words
/// of a chunk apart from new ones; forgets some.
class RecentWords {
 public:
  static constexpr uint16_t kNone = UINT16_MAX;

  RecentWords() { slots_.fill(kNone); }
  uint16_t exchange(uint32_t place, size_t index) {
    return std::exchange(slots_[place % slots_.size()], static_cast<uint16_t>(index));
  }

 private:
  std::array<uint16_t, 256> slots_;
};

}  // namespace

/// A piece that the short part of the cache does not tell.
struct PieceEncoder::Open {
  const char* text;
  size_t bytes;
  PieceKey key;    // none: a long piece
  uint32_t place;  // in the cache
  uint32_t index;  // in the chunk
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

/// Working memory of one chunk; on the stack.
struct PieceEncoder::Chunk {
  std::array<PreTokenCache::Ids, kChunkPieces> ids;  // count 0: an open piece has more, or none
  size_t count = 0;
  std::array<Open, kChunkPieces> open;
  size_t open_count = 0;
};

void PieceEncoder::encode_text(ScannerFamily family, std::string_view text,
                               std::vector<TokenId>& out) {
  const PieceScanner scanner(family);
  std::array<uint32_t, kBatchPieces> ends;
  Chunk chunk;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const size_t count = scanner.scan(text, at, ends);
    add_pieces(text, begin, std::span(ends).first(count), chunk);
    if (chunk.count + kBatchPieces > kChunkPieces) {
      finish(chunk, out);
    }
  }
  finish(chunk, out);
}

void PieceEncoder::encode_piece(std::string_view piece, std::vector<TokenId>& out) {
  Open one;
  one.text = piece.data();
  one.bytes = piece.size();
  one.key = piece.size() <= PieceKey::kBytesMax ? PieceKey::of(piece) : PieceKey{0, 0};
  one.place = PreTokenCache::place_of(one.key);
  if (cache_.find(one.key, one.place, instance_, one.few)) {
    out.insert(out.end(), one.few.ids.data(), one.few.ids.data() + one.few.count());
    return;
  }
  const std::span open(&one, 1);
  look_up(open);
  look_up_wide(open);
  append(one, out);
  keep(open, out);
}

/// Two passes, so that the memory accesses of many pieces overlap: places in the cache, and what is
/// there. What is not there is open.
void PieceEncoder::add_pieces(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                              Chunk& chunk) const {
  Batch batch;
  const bool is_inside = ends.back() + PieceKey::kReadBytes <= text.size();
  size_t from = begin;
  for (size_t i = 0; i < ends.size(); ++i) {
    const size_t bytes = ends[i] - from;
    const char* piece = text.data() + from;
    PieceKey key{0, 0};
    if (bytes <= PieceKey::kBytesMax) [[likely]] {
      key = is_inside ? PieceKey::read(piece, bytes) : PieceKey::of({piece, bytes});
    } else if (PreTokenCache::is_long(bytes)) {
      cache_.prefetch(PreTokenCache::make_long_key({piece, bytes}, instance_));
    }
    batch.keys[i] = key;
    batch.places[i] = PreTokenCache::place_of(key);
    cache_.prefetch(batch.places[i]);
    from = ends[i];
  }
  std::array<uint32_t, kBatchPieces> open;
  size_t open_count = 0;
  PreTokenCache::Ids* ids = chunk.ids.data() + chunk.count;
  for (size_t i = 0; i < ends.size(); ++i) {
    open[open_count] = static_cast<uint32_t>(i);
    open_count += cache_.find(batch.keys[i], batch.places[i], instance_, ids[i]) ? 0 : 1;
  }
  const PieceTable& table = model_.whole_pieces();
  for (const uint32_t i : std::span(open).first(open_count)) {
    Open& next = chunk.open[chunk.open_count++];
    from = i == 0 ? begin : ends[i - 1];
    next.text = text.data() + from;
    next.bytes = ends[i] - from;
    next.key = batch.keys[i];
    next.place = batch.places[i];
    next.index = static_cast<uint32_t>(chunk.count + i);
    if (next.bytes <= PieceTable::kShortBytesMax) {
      table.prefetch(table.make_key(next.key));
    }
  }
  chunk.count += ends.size();
}

/// Appends the ids of the chunk and empties it.
void PieceEncoder::finish(Chunk& chunk, std::vector<TokenId>& out) {
  const auto open = std::span(chunk.open).first(chunk.open_count);
  look_up(open);
  look_up_wide(open);
  merge(open);
  for (const Open& next : open) {
    chunk.ids[next.index] = next.few;
  }
  write(chunk, out);
  keep(open, out);
  chunk.count = 0;
  chunk.open_count = 0;
}

/// Long pieces in the cache, and all in the table.
void PieceEncoder::look_up(std::span<Open> open) const {
  const PieceTable& table = model_.whole_pieces();
  for (Open& next : open) {
    next.count = 0;
    next.few.owner = 0;
    next.is_known = false;
    if (PreTokenCache::is_long(next.bytes)) {
      const auto key = PreTokenCache::make_long_key(next.piece(), instance_);
      if (const auto known = cache_.find(key); !known.empty()) {
        next.set(known.data(), known.size());
        next.is_known = true;
        continue;
      }
    }
    const TokenId whole = next.bytes <= PieceTable::kShortBytesMax
                              ? table.find(table.make_key(next.key))
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

/// What is left, but for pieces over WordMerger::kBytesMax. A word that comes again is merged once.
void PieceEncoder::merge(std::span<Open> open) {
  constexpr uint32_t kNoWord = UINT32_MAX;
  std::vector<WordToEncode>& words = scratch_.words;
  words.clear();
  RecentWords recent;
  std::array<uint32_t, kChunkPieces> word_of;
  size_t bytes = 0;
  for (size_t i = 0; i < open.size(); ++i) {
    const Open& next = open[i];
    word_of[i] = kNoWord;
    if (next.count != 0 || next.bytes > WordMerger::kBytesMax) {
      continue;
    }
    if (next.key.high != 0) {
      const uint16_t same = recent.exchange(next.place, i);
      if (same != RecentWords::kNone && open[same].key == next.key) {
        word_of[i] = word_of[same];
        continue;
      }
    }
    word_of[i] = static_cast<uint32_t>(words.size());
    words.push_back({.word = next.piece()});
    bytes += next.bytes + WordMerger::kSpareIds;
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
  for (size_t i = 0; i < open.size(); ++i) {
    if (word_of[i] != kNoWord) {
      open[i].set(words[word_of[i]].ids, words[word_of[i]].count);
    }
  }
}

/// What is known of the piece, or else what the model says.
void PieceEncoder::append(Open& open, std::vector<TokenId>& out) {
  if (open.count != 0) {
    out.insert(out.end(), open.ids, open.ids + open.count);
    return;
  }
  open.out_begin = out.size();
  model_.encode_divided(open.piece(), scratch_, out);
  open.count = static_cast<uint32_t>(out.size() - open.out_begin);
  open.ids = nullptr;
}

void PieceEncoder::write(Chunk& chunk, std::vector<TokenId>& out) {
  constexpr size_t kIdsCopied = PreTokenCache::kShortIdsMax + 1;
  static_assert(sizeof(PreTokenCache::Ids) == kIdsCopied * sizeof(TokenId));
  std::array<TokenId, kChunkPieces * kIdsCopied> buffer;
  TokenId* to = buffer.data();
  Open* open = chunk.open.data();
  for (uint32_t i = 0; i < chunk.count; ++i) {
    const PreTokenCache::Ids& ids = chunk.ids[i];
    std::memcpy(to, &ids, sizeof(ids));
    to += ids.count();
    if (ids.count() == 0) [[unlikely]] {
      while (open->index != i) {
        ++open;
      }
      out.insert(out.end(), buffer.data(), to);
      to = buffer.data();
      append(*open, out);
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
      cache_.insert(PreTokenCache::make_long_key(next.piece(), instance_), ids);
    } else if (next.is_wide()) {
      cache_.insert(PreTokenCache::make_wide_key(next.piece(), instance_), ids);
    }
  }
}

}  // namespace stator::tokenizer
