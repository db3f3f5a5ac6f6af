// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"
#include "stator/tokenizer/piece_key.h"

namespace stator::tokenizer {

/// Ids of recently seen pieces. Words repeat, so most pieces of a text cost one cache line here,
/// and the lines of the frequent ones stay in the processor's cache, where the tables of a whole
/// vocabulary do not fit. One cache per thread for all tokenizers (told apart by a process-wide
/// number), hence no locks, no lifetime to manage and a fixed 7 MiB per encoding thread. A newer
/// piece evicts an older one in its place.
///
/// Three sizes of entries: pieces of up to 15 bytes (PieceKey) and three ids take 32 bytes; longer
/// ones, up to 32 bytes and six ids, take 64; wide ones, up to 128 bytes and twelve ids, take 192,
/// also for short pieces of many ids, of which the short part tells. The rest is not kept.
class PreTokenCache {
 public:
  static constexpr size_t kShortIdsMax = 3;
  static constexpr int kCountBits = 2;
  static constexpr uint32_t kMoreIds = 1U << 31;  // instead of a number
  static constexpr size_t kLongBytesMax = 32;
  static constexpr size_t kLongIdsMax = 6;
  static constexpr size_t kWideBytesMax = 128;
  static constexpr size_t kWideIdsMax = 12;

  static PreTokenCache& of_this_thread();
  /// Frees this thread's; the next use starts with an empty one.
  static void drop_this_thread();

  // Short pieces.

  /// Where a piece is if no other one came first; otherwise it is beside.
  static uint32_t place_of(const PieceKey& key) {
    return static_cast<uint32_t>(key.hash() >> (64 - kShortEntriesLog2));
  }

  /// The other half of the line.
  static uint32_t beside(uint32_t place) { return place ^ 1; }

  /// Ids that are written whatever their number.
  static constexpr size_t kIdsWritten = 4;

  class ShortPieces;
  /// Those of one tokenizer, for loops over many. Valid as long as the cache.
  ShortPieces short_pieces(uint32_t instance) const;

  /// Keeps `ids` if they are up to kShortIdsMax, else that there are more: those are for the wide
  /// part.
  void insert(const PieceKey& key, uint32_t place, uint32_t instance, std::span<const TokenId> ids);

  // Longer pieces.

  /// A piece of more than PieceKey::kBytesMax and up to kLongBytesMax bytes: overlapping loads of
  /// its ends, which with the length determine it.
  struct LongKey {
    std::array<uint64_t, 4> words;
    uint32_t instance;
    uint32_t bytes;
    uint32_t place;
  };
  static bool is_long(size_t bytes) {
    return bytes > PieceKey::kBytesMax && bytes <= kLongBytesMax;
  }
  static LongKey make_long_key(std::string_view piece, uint32_t instance);

  void prefetch(const LongKey& key) const {
    __builtin_prefetch(&long_entries_[key.place]);
    __builtin_prefetch(&long_entries_[key.place ^ 1]);
  }

  /// The ids kept for `key`; empty if there are none. Valid until the next insert.
  std::span<const TokenId> find(const LongKey& key) const;

  /// Keeps `ids` if they are 1 to kLongIdsMax.
  void insert(const LongKey& key, std::span<const TokenId> ids);

  // Pieces that do not fit there: lines of a table, Chinese sentences.

  struct WideKey {
    std::string_view piece;
    uint64_t hash;
    uint32_t instance;
  };
  static WideKey make_wide_key(std::string_view piece, uint32_t instance);

  void prefetch(const WideKey& key) const { __builtin_prefetch(&wide_entries_[place_of(key)]); }

  /// The ids kept for `key`; empty if there are none. Valid until the next insert.
  std::span<const TokenId> find(const WideKey& key) const;

  /// Keeps `ids` if they are 1 to kWideIdsMax.
  void insert(const WideKey& key, std::span<const TokenId> ids);

 private:
  static constexpr int kShortEntriesLog2 = 17;  // 4 MiB
  static constexpr int kLongEntriesLog2 = 15;   // 2 MiB
  static constexpr int kWideEntriesLog2 = 12;   // 0.75 MiB

  struct alignas(32) ShortEntry {
    PieceKey key{0, 0};
    std::array<TokenId, kIdsWritten> ids{};  // and in the last place: instance, number of ids
  };
  static_assert(sizeof(ShortEntry) == 32, "half a cache line");

  struct alignas(64) LongEntry {
    std::array<uint64_t, 4> words{};
    uint32_t instance = 0;
    uint8_t bytes = 0;
    uint8_t count = 0;
    uint8_t is_newer = 0;  // than its neighbour
    std::array<TokenId, kLongIdsMax> ids{};
  };
  static_assert(sizeof(LongEntry) == 64, "one cache line");

  struct alignas(64) WideEntry {
    uint64_t hash = 0;
    uint32_t instance = 0;
    uint16_t bytes = 0;
    uint16_t count = 0;
    std::array<TokenId, kWideIdsMax> ids{};
    std::array<char, kWideBytesMax> text{};
  };
  static_assert(sizeof(WideEntry) == 192, "three cache lines");
  static size_t place_of(const WideKey& key) {
    return static_cast<size_t>(key.hash >> (64 - kWideEntriesLog2));
  }

  static bool holds(const ShortEntry& entry, const PieceKey& key, uint32_t instance) {
    return entry.key == key && (entry.ids.back() & ~kMoreIds) >> kCountBits == instance;
  }
  static bool holds(const LongEntry& entry, const LongKey& key) {
    return entry.words == key.words && entry.bytes == key.bytes && entry.instance == key.instance;
  }

  PreTokenCache() = default;
  static PreTokenCache& slot_of_this_thread();
  void allocate();

  HugeVector<ShortEntry> short_entries_;  // all three are empty before the thread's first text
  HugeVector<LongEntry> long_entries_;
  HugeVector<WideEntry> wide_entries_;
  uint32_t next_way_ = 0;
};

/// Two registers: what a loop needs to look for short pieces.
class PreTokenCache::ShortPieces {
 public:
  ShortPieces(const ShortEntry* entries, uint32_t instance)
      : entries_(entries), owner_(instance << kCountBits) {}

  /// Fetches the place into the processor's cache.
  void prefetch(uint32_t place) const { __builtin_prefetch(&entries_[place]); }

  /// The number of the piece's ids, which are written to `ids`: room for kIdsWritten. 0 and nothing
  /// written if the piece is not at `place`.
  uint32_t find(const PieceKey& key, uint32_t place, TokenId* ids) const {
    const ShortEntry& entry = entries_[place];
    const uint32_t count = entry.ids.back() - owner_;
    // One branch for all that may differ.
    if (((entry.key.low ^ key.low) | (entry.key.high ^ key.high) | (count >> kCountBits)) != 0) {
      return 0;
    }
    std::memcpy(ids, entry.ids.data(), kIdsWritten * sizeof(TokenId));
    return count;
  }

  /// Whether the piece was kept with more ids than fit here.
  bool has_more(const PieceKey& key, uint32_t place) const {
    const ShortEntry& entry = entries_[place];
    const ShortEntry& other = entries_[beside(place)];
    return (entry.key == key && entry.ids.back() == (owner_ | kMoreIds)) ||
           (other.key == key && other.ids.back() == (owner_ | kMoreIds));
  }

 private:
  const ShortEntry* entries_;
  uint32_t owner_;
};

inline PreTokenCache::ShortPieces PreTokenCache::short_pieces(uint32_t instance) const {
  return {short_entries_.data(), instance};
}

}  // namespace stator::tokenizer
