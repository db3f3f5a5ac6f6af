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
  /// Bytes that may be read from the start of a short piece on.
  static constexpr size_t kReadBytes = 16;

  using Entry = std::pair<std::string_view, TokenId>;

  PieceTable() : PieceTable(std::span<Entry>()) {}

  /// Sorts `entries`; those over kBytesMax are left out, ids are below 2^22.
  explicit PieceTable(std::span<Entry> entries);

  /// A short piece, ready to be looked up.
  struct ShortKey {
    uint64_t low;   // bytes 0 … 7
    uint64_t tail;  // bytes 8 … 11, length
    size_t slot;
  };
  static constexpr size_t kShortBytesMax = 12;

  /// The key of the `bytes` ≤ kShortBytesMax bytes at `piece`, of which kReadBytes can be read.
  ShortKey make_key(const char* piece, size_t bytes) const {
    uint64_t words[2];
    std::memcpy(words, piece, sizeof(words));
    ShortKey key{words[0] & kLowMasks[bytes],
                 (words[1] & kHighMasks[bytes]) | (static_cast<uint64_t>(bytes) << kBytesShift), 0};
    const uint64_t hash = (key.low ^ (key.tail * kMultiplier)) * kMultiplier;
    key.slot = static_cast<size_t>((hash ^ (hash >> 32)) * kMultiplier >> short_shift_);
    return key;
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

  /// The same for a piece of any length, anywhere in memory.
  TokenId find(std::string_view piece) const;

 private:
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  static constexpr int kBytesShift = 32;
  static constexpr int kIdShift = 40;
  static constexpr uint64_t kTailMask = (uint64_t{1} << kIdShift) - 1;

  using Masks = std::array<uint64_t, kShortBytesMax + 1>;
  /// By length of the piece: the bits of bytes 0 … 7 that are in it, and of 8 … 15.
  static constexpr Masks kLowMasks = [] {
    Masks masks{};
    for (size_t bytes = 1; bytes <= kShortBytesMax; ++bytes) {
      masks[bytes] = UINT64_MAX >> (bytes < 8 ? 64 - 8 * bytes : 0);
    }
    return masks;
  }();
  static constexpr Masks kHighMasks = [] {
    Masks masks{};
    for (size_t bytes = 9; bytes <= kShortBytesMax; ++bytes) {
      masks[bytes] = UINT64_MAX >> (128 - 8 * bytes);
    }
    return masks;
  }();

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

  std::vector<ShortSlot> short_slots_;  // powers of two
  std::vector<LongSlot> long_slots_;
  int short_shift_ = 63;
  int long_shift_ = 63;
};

}  // namespace stator::tokenizer
