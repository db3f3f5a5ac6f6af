// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "stator/core/ids.h"
#include "stator/tokenizer/piece_key.h"
#include "stator/tokenizer/piece_table.h"
#include "stator/tokenizer/pre_token_cache.h"

namespace stator::tokenizer {

// Pieces that are looked for together: enough to hide memory latency, few enough to stay in the
// first-level cache.
inline constexpr size_t kBatchPieces = 128;

// Pieces, and those of them not known, whose unknown words are merged together: a document of 8 KB,
// so that many words take turns.
inline constexpr size_t kChunkPieces = 4096;
inline constexpr size_t kChunkOpen = 1024;

/// Some of the open pieces.
class Selection {
 public:
  void add(size_t index) { add_if(index, true); }
  /// Without a branch.
  void add_if(size_t index, bool is_in) {
    places_[count_] = static_cast<uint16_t>(index);
    count_ += is_in ? 1 : 0;
  }
  void clear() { count_ = 0; }
  const uint16_t* begin() const { return places_.data(); }
  const uint16_t* end() const { return places_.data() + count_; }

 private:
  std::array<uint16_t, kChunkOpen> places_;
  size_t count_ = 0;
};

/// Which open piece of a chunk had a key last: tells new pieces that come again apart from new
/// ones. Forgets some.
class RecentPieces {
 public:
  static constexpr uint16_t kNone = UINT16_MAX;

  RecentPieces() { clear(); }
  void clear() { slots_.fill(kNone); }
  /// Of the piece at `place` in the cache; kNone or the place in the chunk.
  uint16_t exchange(uint32_t place, size_t index) {
    return std::exchange(slots_[place % slots_.size()], static_cast<uint16_t>(index));
  }

 private:
  std::array<uint16_t, 512> slots_;
};

/// A piece whose ids the short part of the cache does not tell.
struct OpenPiece {
  const char* text;
  size_t bytes;
  PieceKey key;           // none: a long piece
  uint32_t place;         // in the cache
  uint32_t known_before;  // ids of the chunk's known pieces that come first
  uint32_t first;         // where the chunk had it before, among `repeats`
  // The result.
  const TokenId* ids;  // kIdsWritten can be read
  uint32_t count;      // 0: not known
  bool is_known;       // to the cache
  bool is_wide;        // may be among the wide ones
  size_t out_begin;    // of the ids, where they are not known before they are written
  std::array<TokenId, PreTokenCache::kIdsWritten> whole;  // if it is one token: `ids` points here

  std::string_view piece() const { return {text, bytes}; }

  void set(std::span<const TokenId> all) {
    ids = all.data();
    count = static_cast<uint32_t>(all.size());
  }
  /// One token or PieceTable::kNone.
  void set_whole(TokenId token) {
    whole.front() = token;
    ids = whole.data();
    count = token != PieceTable::kNone ? 1 : 0;
    is_known = false;
  }
};

/// Working memory of one chunk; on the stack.
struct PieceChunk {
  static constexpr size_t kIdsMax =
      kChunkPieces * PreTokenCache::kShortIdsMax + PreTokenCache::kIdsWritten;
  std::array<TokenId, kIdsMax> known;  // ids of the known pieces, without gaps
  size_t known_count = 0;
  size_t pieces = 0;
  std::array<OpenPiece, kChunkOpen> open;
  size_t open_count = 0;
  // Kinds of open pieces, each of which takes its own way.
  Selection shorts;   // with a key
  Selection repeats;  // with a key that one of `shorts` has
  Selection longs;    // the others
  RecentPieces recent;
  Selection unknown;  // those of more than one token, as far as the cache was asked

  /// Adds a piece and fetches its place in `table` into the processor's cache.
  void open_piece(std::string_view piece, const PieceKey& key, uint32_t place, size_t known_before,
                  const PieceTable& table) {
    const size_t index = open_count++;
    OpenPiece& next = open[index];
    next.text = piece.data();
    next.bytes = piece.size();
    next.key = key;
    next.place = place;
    next.known_before = static_cast<uint32_t>(known_before);
    if (key.high == 0) {
      longs.add(index);
      return;
    }
    const uint16_t first = recent.exchange(place, index);
    if (first != RecentPieces::kNone && open[first].key == key) {
      next.first = first;
      repeats.add(index);
      return;
    }
    shorts.add(index);
    if (piece.size() <= PieceTable::kShortBytesMax) {
      table.prefetch(table.make_key(key));
    } else {
      table.prefetch_long(piece);
    }
  }

  /// What has been found out about the pieces that came first.
  void copy_repeats() {
    for (const size_t i : repeats) {
      const OpenPiece& first = open[open[i].first];
      open[i].set({first.ids, first.count});
    }
  }

  bool is_full() const {
    return pieces + kBatchPieces > kChunkPieces || open_count + kBatchPieces > kChunkOpen;
  }
  void clear() {
    known_count = 0;
    pieces = 0;
    open_count = 0;
    shorts.clear();
    repeats.clear();
    longs.clear();
    recent.clear();
    unknown.clear();
  }
};

}  // namespace stator::tokenizer
