// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"
#include "stator/tokenizer/piece_key.h"

namespace stator::tokenizer {

/// Pieces that are one token, whatever the model does with others: nine of ten pieces of a text.
/// Two open-addressing tables with the bytes inside the entries, at most half full: pieces of up to
/// 12 bytes cost one 16-byte entry, up to 24 bytes one of 32. Frequent tokens (low ids) are put in
/// first, so that they are found at the first place looked at. Immutable, shared by all threads;
/// 4 MiB for 128,000 tokens.
class PieceTable {
 public:
  static constexpr size_t kBytesMax = 24;
  static constexpr TokenId kNone = UINT32_MAX;

  using Entry = std::pair<std::string_view, TokenId>;

  PieceTable() : PieceTable(std::span<Entry>()) {}

  /// Sorts `entries`; those over kBytesMax are left out, ids are below 2^24.
  explicit PieceTable(std::span<Entry> entries);

  static constexpr size_t kShortBytesMax = 12;

  /// Where a short piece may be, and its bytes as they are stored.
  struct ShortKey {
    uint64_t low;   // bytes 0 … 7
    uint64_t tail;  // bytes 8 … 11, length
    size_t slot;
  };

  /// For a piece of up to kShortBytesMax bytes.
  ShortKey make_key(const PieceKey& piece) const {
    const uint64_t tail = (piece.high & UINT32_MAX) | (piece.bytes() << kBytesShift);
    return {piece.low, tail, static_cast<size_t>(piece.hash() >> short_shift_)};
  }

  void prefetch(const ShortKey& key) const { __builtin_prefetch(&short_slots_[key.slot]); }

  /// The piece's token, or kNone.
  TokenId find(const ShortKey& key) const {
    for (size_t i = key.slot;; i = (i + 1) & (short_slots_.size() - 1)) {
      const ShortSlot& slot = short_slots_[i];
      if (slot.low == key.low && ((slot.tail ^ key.tail) & kTailMask) == 0) [[likely]] {
        return static_cast<TokenId>(slot.tail >> kIdShift);
      }
      if (slot.tail == 0) {
        return kNone;
      }
    }
  }

  /// For a piece over kShortBytesMax bytes.
  void prefetch_long(std::string_view piece) const;

  /// The same for a piece of any length, anywhere in memory.
  TokenId find(std::string_view piece) const;

 private:
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  static constexpr int kBytesShift = 32;
  static constexpr int kIdShift = 40;
  static constexpr uint64_t kTailMask = (uint64_t{1} << kIdShift) - 1;

  struct ShortSlot {
    uint64_t low = 0;
    uint64_t tail = 0;  // bytes 8 … 11, length, id; 0: free
  };
  struct LongSlot {
    uint64_t words[3] = {};
    uint32_t bytes = 0;  // 0: free
    TokenId id = 0;
  };
  struct LongKey {
    uint64_t words[3];
    size_t slot;
  };
  LongKey make_long_key(std::string_view piece) const;
  void insert(std::string_view piece, TokenId id);

  HugeVector<ShortSlot> short_slots_;  // powers of two
  HugeVector<LongSlot> long_slots_;
  int short_shift_ = 63;
  int long_shift_ = 63;
};

}  // namespace stator::tokenizer
