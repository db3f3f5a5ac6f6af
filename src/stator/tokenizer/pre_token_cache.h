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
/// ones, up to 32 bytes and six ids, take 64; still longer ones, up to 128 bytes and twelve ids,
/// take 192. The rest is not kept.
class PreTokenCache {
 public:
  static constexpr size_t kShortIdsMax = 3;
  static constexpr int kCountBits = 2;
  static constexpr size_t kLongBytesMax = 32;
  static constexpr size_t kLongIdsMax = 6;
  static constexpr size_t kWideBytesMax = 128;
  static constexpr size_t kWideIdsMax = 12;

  static PreTokenCache& of_this_thread();

  // Short pieces.

  /// Up to three ids. Copied as 16 bytes, whatever their number.
  struct Ids {
    std::array<TokenId, kShortIdsMax> ids;
    uint32_t owner;  // tokenizer << kCountBits | number of ids

    uint32_t count() const { return owner & ((1U << kCountBits) - 1); }
  };

  /// Where a piece is if no other one came first; otherwise it is in the other half of the line.
  static uint32_t place_of(const PieceKey& key) {
    return static_cast<uint32_t>(key.hash() >> (64 - kShortEntriesLog2));
  }

  /// Fetches the place into the processor's cache.
  void prefetch(uint32_t place) const { __builtin_prefetch(&short_entries_[place]); }

  /// Writes `ids`, and whether the piece is there, or else no ids. Without a branch: whether a
  /// piece is known cannot be foretold.
  bool find(const PieceKey& key, uint32_t place, uint32_t instance, Ids& ids) const {
    const auto is_here =
        static_cast<uint32_t>(difference(short_entries_[place], key, instance) == 0);
    const auto is_beside =
        static_cast<uint32_t>(difference(short_entries_[place ^ 1], key, instance) == 0);
    std::memcpy(&ids, &short_entries_[place ^ 1 ^ is_here].ids, sizeof(ids));
    const uint32_t is_known = is_here | is_beside;
    ids.owner &= 0 - is_known;
    return is_known != 0;
  }

  /// Keeps `ids` if they are 1 to kShortIdsMax.
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

  // Long pieces that do not fit there: lines of a table, Chinese sentences.

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
    Ids ids{};
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

  static uint64_t difference(const ShortEntry& entry, const PieceKey& key, uint32_t instance) {
    return (entry.key.low ^ key.low) | (entry.key.high ^ key.high) |
           ((entry.ids.owner >> kCountBits) ^ instance);
  }
  static bool holds(const LongEntry& entry, const LongKey& key) {
    return entry.words == key.words && entry.bytes == key.bytes && entry.instance == key.instance;
  }

  PreTokenCache()
      : short_entries_(size_t{1} << kShortEntriesLog2),
        long_entries_(size_t{1} << kLongEntriesLog2),
        wide_entries_(size_t{1} << kWideEntriesLog2) {}

  HugeVector<ShortEntry> short_entries_;
  HugeVector<LongEntry> long_entries_;
  HugeVector<WideEntry> wide_entries_;
  uint32_t next_way_ = 0;
};

}  // namespace stator::tokenizer
