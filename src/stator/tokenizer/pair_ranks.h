// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/tokenizer/huge_pages.h"

namespace stator::tokenizer {

/// Rank of the merge of two symbols, for the inner loop of merging: no branch, and one cache line
/// of a large table, whether the pair has a rank or not. Perfect hashing by displacement: pairs of
/// one bucket share a pilot, found at construction, that takes each of them to a slot of its own
/// (Pibiri and Trani, "PTHash", 2021). 10 bytes per pair; the third of a byte for the pilots stays
/// in the processor's caches. Immutable.
class PairRanks {
 public:
  struct Pair {
    uint32_t left;
    uint32_t right;
  };
  static constexpr int kSymbolBits = 21;
  static constexpr uint32_t kSymbolsMax = (1U << kSymbolBits) - 1;  ///< symbols are below
  static constexpr int kRankBits = 20;
  static constexpr uint32_t kNone = (1U << kRankBits) - 1;

  /// `pairs` in order of rank, fewer than kNone, all different. Ranks are their places. Nothing if
  /// they find no places in kSlotsMaxPerPair times their number: only pairs that were chosen to
  /// collide do that.
  static std::optional<PairRanks> create(std::span<const Pair> pairs);
  static constexpr size_t kSlotsMaxPerPair = 8;

  /// Pairs with equal upper bits share a bucket.
  static uint64_t hash_of(uint32_t left, uint32_t right) {
    return left * 0x9E3779B97F4A7C15ULL + right * 0xD6E8FEB86659FD93ULL;
  }

  /// Where a pair is if it is anywhere.
  struct Place {
    uint64_t key;
    uint32_t slot;
  };
  /// Of no pair.
  static constexpr Place kNowhere = {((uint64_t{1} << 2 * kSymbolBits) - 1) << kRankBits, 0};

  Place place_of(uint32_t left, uint32_t right) const {
    const uint64_t hash = hash_of(left, right);
    return {key_of(left, right), slot_of(hash, pilots_[bucket_of(hash)])};
  }

  /// Fetches the place into the processor's cache.
  void prefetch(const Place& place) const { __builtin_prefetch(&slots_[place.slot]); }

  /// The pair's rank or kNone.
  uint32_t find(const Place& place) const {
    // The pair's own entry leaves its rank, others more than kNone.
    return static_cast<uint32_t>(std::min<uint64_t>(slots_[place.slot] ^ place.key, kNone));
  }

 private:
  PairRanks() = default;

  static constexpr uint64_t kEmpty = UINT64_MAX;
  static constexpr uint32_t kPilots = 256;

  static uint64_t key_of(uint32_t left, uint32_t right) {
    return (static_cast<uint64_t>(left) << kSymbolBits | right) << kRankBits;
  }
  /// From the upper half of 64 bits to a place among `count` (Lemire, 2019).
  static uint32_t scale(uint64_t bits, size_t count) {
    return static_cast<uint32_t>((bits >> 32) * count >> 32);
  }
  uint32_t bucket_of(uint64_t hash) const { return scale(hash, pilots_.size()); }
  uint32_t slot_of(uint64_t hash, uint32_t pilot) const {
    // An odd factor per pilot.
    return scale(hash * (0xA0761D6478BD642FULL + pilot * 0xE7037ED1A0B428DAULL), slots_.size());
  }

  bool build(std::span<const Pair> pairs);
  bool place_bucket(std::span<const Pair> pairs, std::span<const uint32_t> ranks);

  HugeVector<uint64_t> slots_;   // pair << kRankBits | rank
  std::vector<uint8_t> pilots_;  // by bucket
};

}  // namespace stator::tokenizer
