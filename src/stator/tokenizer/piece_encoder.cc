// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/piece_encoder.h"

#include "stator/tokenizer/piece_chunk.h"
#include "stator/tokenizer/piece_scanner.h"
#include "stator/tokenizer/piece_table.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace stator::tokenizer {
namespace {

/// Keys of pieces and their places in the cache.
struct Batch {
  std::array<PieceKey, kBatchPieces> keys;
  std::array<uint32_t, kBatchPieces> places;
};

}  // namespace

void PieceEncoder::encode_text(ScannerFamily family, std::string_view text,
                               std::vector<TokenId>& out) {
  const PieceScanner scanner(family);
  std::array<uint32_t, kBatchPieces> ends;
  PieceChunk chunk;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const size_t count = scanner.scan(text, at, ends);
    add_pieces(text, begin, std::span(ends).first(count), chunk);
    if (chunk.is_full()) {
      finish(chunk, out);
      if (scratch_.stop.is_due(out.size())) [[unlikely]] {
        return;
      }
    }
  }
  finish(chunk, out);
}

void PieceEncoder::encode_piece(std::string_view piece, std::vector<TokenId>& out) {
  const bool is_short = piece.size() <= PieceKey::kBytesMax;
  const PieceKey key = is_short ? PieceKey::of(piece) : PieceKey{0, 0};
  const uint32_t place = PreTokenCache::place_of(key);
  const PreTokenCache::ShortPieces pieces = cache_.short_pieces(instance_);
  std::array<TokenId, PreTokenCache::kIdsWritten> known;
  for (const uint32_t near : {place, PreTokenCache::beside(place)}) {
    if (const uint32_t count = pieces.find(key, near, known.data()); count != 0) {
      out.insert(out.end(), known.data(), known.data() + count);
      return;
    }
  }
  PieceChunk chunk;
  OpenPiece& one = chunk.open.front();
  one.text = piece.data();
  one.bytes = piece.size();
  one.key = key;
  one.place = place;
  (is_short ? chunk.shorts : chunk.longs).add(0);
  look_up(chunk);
  append(one, out);
  keep(chunk, out);
}

/// Two passes, so that the memory accesses of many pieces overlap: places in the cache, and what is
/// there. What is not there is open.
void PieceEncoder::add_pieces(std::string_view text, size_t begin, std::span<const uint32_t> ends,
                              PieceChunk& chunk) const {
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
      const size_t from = i == 0 ? begin : ends[i - 1];
      chunk.open_piece({text.data() + from, ends[i] - from}, batch.keys[i], batch.places[i],
                       static_cast<size_t>(to - known), table);
    }
    to += count;
  }
  chunk.known_count = static_cast<size_t>(to - known);
  chunk.pieces += ends.size();
}

/// Appends the ids of the chunk and empties it.
void PieceEncoder::finish(PieceChunk& chunk, std::vector<TokenId>& out) {
  look_up(chunk);
  merge(chunk);
  chunk.copy_repeats();
  write(chunk, out);
  keep(chunk, out);
  chunk.clear();
}

/// All that tables and the cache tell of the open pieces; selects the unknown ones.
void PieceEncoder::look_up(PieceChunk& chunk) const {
  look_up_short(chunk);
  look_up_long(chunk);
  look_up_wide(chunk);
}

void PieceEncoder::look_up_short(PieceChunk& chunk) const {
  const PieceTable& table = model_.whole_pieces();
  const PreTokenCache::ShortPieces pieces = cache_.short_pieces(instance_);
  for (const size_t i : chunk.shorts) {
    OpenPiece& next = chunk.open[i];
    next.set_whole(next.bytes <= PieceTable::kShortBytesMax ? table.find(table.make_key(next.key))
                                                            : table.find(next.piece()));
    next.is_wide = pieces.has_more(next.key, next.place);
    chunk.unknown.add_if(i, next.count == 0);
  }
}

void PieceEncoder::look_up_long(PieceChunk& chunk) const {
  const PieceTable& table = model_.whole_pieces();
  Selection open;
  for (const size_t i : chunk.longs) {
    OpenPiece& next = chunk.open[i];
    next.count = 0;
    if (PreTokenCache::is_long(next.bytes)) {
      next.set(cache_.find(PreTokenCache::make_long_key(next.piece(), instance_)));
    }
    next.is_known = next.count != 0;
    if (!next.is_known) {
      table.prefetch_long(next.piece());
      open.add(i);
    }
  }
  for (const size_t i : open) {
    OpenPiece& next = chunk.open[i];
    next.set_whole(model_.find_whole(next.piece()));
    next.is_wide = next.bytes <= PreTokenCache::kWideBytesMax;
    chunk.unknown.add_if(i, next.count == 0);
  }
}

/// Of the unknown pieces those that may be in the wide part of the cache.
void PieceEncoder::look_up_wide(PieceChunk& chunk) const {
  Selection wide;
  for (const size_t i : chunk.unknown) {
    wide.add_if(i, chunk.open[i].is_wide);
  }
  std::array<uint64_t, kChunkOpen> hashes;
  for (const size_t i : wide) {
    const auto key = PreTokenCache::make_wide_key(chunk.open[i].piece(), instance_);
    hashes[i] = key.hash;
    cache_.prefetch(key);
  }
  for (const size_t i : wide) {
    OpenPiece& next = chunk.open[i];
    next.set(cache_.find({next.piece(), hashes[i], instance_}));
    next.is_known = next.count != 0;
  }
}

/// What is left, but for pieces over WordMerger::kBytesMax.
void PieceEncoder::merge(PieceChunk& chunk) {
  std::vector<WordToEncode>& words = scratch_.words;
  words.clear();
  Selection merged;
  size_t bytes = 0;
  for (const size_t i : chunk.unknown) {
    const OpenPiece& next = chunk.open[i];
    if (next.count == 0 && next.bytes <= WordMerger::kBytesMax) {
      merged.add(i);
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
  for (const size_t i : merged) {
    chunk.open[i].set({word->ids, word->count});
    ++word;
  }
}

/// What is known of the piece, or else what the model says.
void PieceEncoder::append(OpenPiece& open, std::vector<TokenId>& out) {
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
void PieceEncoder::write(PieceChunk& chunk, std::vector<TokenId>& out) {
  constexpr size_t kSpare = PreTokenCache::kIdsWritten;  // may be written behind the last id
  const auto open = std::span(chunk.open).first(chunk.open_count);
  size_t left = chunk.known_count;  // ids to come, as far as they are known
  for (const OpenPiece& next : open) {
    left += next.count;
  }
  const TokenId* known = chunk.known.data();
  const auto make_room = [&] {
    const size_t at = out.size();
    out.resize(at + left + kSpare);
    return out.data() + at;
  };
  TokenId* to = make_room();
  const auto copy = [&](const TokenId* from, size_t count) {
    to = std::copy_n(from, count, to);
    left -= count;
  };
  // A dozen ids on average: too few for a call.
  const auto copy_known = [&](size_t end) {
    const TokenId* const stop = chunk.known.data() + end;
    const auto count = static_cast<size_t>(stop - known);
    for (size_t i = 0; i < count; i += kSpare) {
      std::memcpy(to + i, known + i, kSpare * sizeof(TokenId));
    }
    to += count;
    left -= count;
    known = stop;
  };
  for (OpenPiece& next : open) {
    copy_known(next.known_before);
    if (next.count == 0) [[unlikely]] {
      out.resize(out.size() - left - kSpare);
      append(next, out);
      to = make_room();
    } else if (next.count <= PreTokenCache::kIdsWritten) [[likely]] {
      std::memcpy(to, next.ids, PreTokenCache::kIdsWritten * sizeof(TokenId));
      to += next.count;
      left -= next.count;
    } else {
      copy(next.ids, next.count);
    }
  }
  copy_known(chunk.known_count);
  out.resize(out.size() - kSpare);
}

/// Keeps in the cache what was not there; `out` has just been written.
void PieceEncoder::keep(const PieceChunk& chunk, std::span<const TokenId> out) {
  for (const size_t i : chunk.shorts) {
    const OpenPiece& next = chunk.open[i];
    if (next.count <= PreTokenCache::kShortIdsMax || !next.is_wide) {
      cache_.insert(next.key, next.place, instance_, ids_of(next, out));
    }
    if (next.count > PreTokenCache::kShortIdsMax && !next.is_known) {
      cache_.insert(PreTokenCache::make_wide_key(next.piece(), instance_), ids_of(next, out));
    }
  }
  for (const size_t i : chunk.longs) {
    const OpenPiece& next = chunk.open[i];
    if (next.is_known) {
      continue;
    }
    if (PreTokenCache::is_long(next.bytes) && next.count <= PreTokenCache::kLongIdsMax) {
      cache_.insert(PreTokenCache::make_long_key(next.piece(), instance_), ids_of(next, out));
    } else if (next.is_wide) {
      cache_.insert(PreTokenCache::make_wide_key(next.piece(), instance_), ids_of(next, out));
    }
  }
}

/// Of an open piece that has been written to `out`.
std::span<const TokenId> PieceEncoder::ids_of(const OpenPiece& open, std::span<const TokenId> out) {
  return {open.ids != nullptr ? open.ids : out.data() + open.out_begin, open.count};
}

}  // namespace stator::tokenizer
