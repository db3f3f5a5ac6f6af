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

// Pieces, and those of them not known, whose unknown words are merged together: a document of 8 KB,
// so that many words take turns.
constexpr size_t kChunkPieces = 4096;
constexpr size_t kChunkOpen = 1024;

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
  PieceKey key;           // none: a long piece
  uint32_t place;         // in the cache
  uint32_t known_before;  // ids of the chunk's known pieces that come first
  // The result.
  const TokenId* ids;
  uint32_t count;      // 0: not known
  TokenId whole;       // if it is one token: `ids` points here
  bool is_known;       // to the cache
  size_t out_begin;    // of the ids, where they are not known before they are written
  uint64_t wide_hash;  // if it is to be looked for among the wide ones

  std::string_view piece() const { return {text, bytes}; }
  // Short pieces with many ids are rare: looking for new ones among the wide ones would cost more.
  bool is_wide() const {
    return bytes > PieceKey::kBytesMax && bytes <= PreTokenCache::kWideBytesMax;
  }

  void set(std::span<const TokenId> all) {
    ids = all.data();
    count = static_cast<uint32_t>(all.size());
  }
};

/// Working memory of one chunk; on the stack.
struct PieceEncoder::Chunk {
  static constexpr size_t kIdsMax =
      kChunkPieces * PreTokenCache::kShortIdsMax + PreTokenCache::kIdsWritten;
  std::array<TokenId, kIdsMax> known;  // ids of the known pieces, without gaps
  size_t known_count = 0;
  size_t pieces = 0;
  std::array<Open, kChunkOpen> open;
  size_t open_count = 0;

  bool is_full() const {
    return pieces + kBatchPieces > kChunkPieces || open_count + kBatchPieces > kChunkOpen;
  }
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
    if (chunk.is_full()) {
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
  const PreTokenCache::ShortPieces pieces = cache_.short_pieces(instance_);
  std::array<TokenId, PreTokenCache::kIdsWritten> known;
  for (const uint32_t place : {one.place, PreTokenCache::beside(one.place)}) {
    if (const uint32_t count = pieces.find(one.key, place, known.data()); count != 0) {
      out.insert(out.end(), known.data(), known.data() + count);
      return;
    }
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
  const PreTokenCache::ShortPieces pieces = cache_.short_pieces(instance_);
  Batch batch;
  const bool is_inside = ends.back() + PieceKey::kReadBytes <= text.size();
  const char* piece = text.data() + begin;
  for (size_t i = 0; i < ends.size(); ++i) {
    const char* const end = text.data() + ends[i];
    const auto bytes = static_cast<size_t>(end - piece);
    PieceKey key{0, 0};
    if (bytes <= PieceKey::kBytesMax) [[likely]] {
      key = is_inside ? PieceKey::read(piece, bytes) : PieceKey::of({piece, bytes});
    } else if (PreTokenCache::is_long(bytes)) {
      cache_.prefetch(PreTokenCache::make_long_key({piece, bytes}, instance_));
    }
    batch.keys[i] = key;
    batch.places[i] = PreTokenCache::place_of(key);
    pieces.prefetch(batch.places[i]);
    piece = end;
  }
  const PieceTable& table = model_.whole_pieces();
  TokenId* const known = chunk.known.data();
  TokenId* to = known + chunk.known_count;
  for (size_t i = 0; i < ends.size(); ++i) {
    uint32_t count = pieces.find(batch.keys[i], batch.places[i], to);
    if (count == 0) [[unlikely]] {
      count = pieces.find(batch.keys[i], PreTokenCache::beside(batch.places[i]), to);
    }
    if (count == 0) [[unlikely]] {
      Open& next = chunk.open[chunk.open_count++];
      const size_t from = i == 0 ? begin : ends[i - 1];
      next.text = text.data() + from;
      next.bytes = ends[i] - from;
      next.key = batch.keys[i];
      next.place = batch.places[i];
      next.known_before = static_cast<uint32_t>(to - known);
      if (next.bytes <= PieceTable::kShortBytesMax) {
        table.prefetch(table.make_key(next.key));
      }
    }
    to += count;
  }
  chunk.known_count = static_cast<size_t>(to - known);
  chunk.pieces += ends.size();
}

/// Appends the ids of the chunk and empties it.
void PieceEncoder::finish(Chunk& chunk, std::vector<TokenId>& out) {
  const auto open = std::span(chunk.open).first(chunk.open_count);
  look_up(open);
  look_up_wide(open);
  merge(open);
  write(chunk, out);
  keep(open, out);
  chunk.known_count = 0;
  chunk.pieces = 0;
  chunk.open_count = 0;
}

/// Long pieces in the cache, and all in the table.
void PieceEncoder::look_up(std::span<Open> open) const {
  const PieceTable& table = model_.whole_pieces();
  for (Open& next : open) {
    next.count = 0;
    next.is_known = false;
    if (PreTokenCache::is_long(next.bytes)) {
      const auto key = PreTokenCache::make_long_key(next.piece(), instance_);
      if (const auto known = cache_.find(key); !known.empty()) {
        next.set(known);
        next.is_known = true;
        continue;
      }
    }
    const TokenId whole = next.bytes <= PieceTable::kShortBytesMax
                              ? table.find(table.make_key(next.key))
                              : model_.find_whole(next.piece());
    if (whole != PieceTable::kNone) {
      next.whole = whole;
      next.set({&next.whole, 1});
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
      next.set(known);
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
  std::array<uint32_t, kChunkOpen> word_of;
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
      open[i].set({words[word_of[i]].ids, words[word_of[i]].count});
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

/// The ids of the known pieces with those of the open ones between them.
void PieceEncoder::write(Chunk& chunk, std::vector<TokenId>& out) {
  const auto open = std::span(chunk.open).first(chunk.open_count);
  size_t left = chunk.known_count;  // ids to come, as far as they are known
  for (const Open& next : open) {
    left += next.count;
  }
  const TokenId* known = chunk.known.data();
  const auto make_room = [&] {
    const size_t at = out.size();
    out.resize(at + left);
    return out.data() + at;
  };
  TokenId* to = make_room();
  const auto copy = [&](const TokenId* from, size_t count) {
    to = std::copy_n(from, count, to);
    left -= count;
  };
  const auto copy_known = [&](size_t end) {
    const TokenId* const stop = chunk.known.data() + end;
    copy(known, static_cast<size_t>(stop - known));
    known = stop;
  };
  for (Open& next : open) {
    copy_known(next.known_before);
    if (next.count != 0) [[likely]] {
      copy(next.ids, next.count);
      continue;
    }
    out.resize(out.size() - left);
    append(next, out);
    to = make_room();
  }
  copy_known(chunk.known_count);
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
