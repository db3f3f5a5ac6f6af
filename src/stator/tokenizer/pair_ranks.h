// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
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
/// (Pibiri and Trani, "PTHash", 2021). 10 bytes per pair; the pilots, a quarter to half of a byte
/// per pair, stay in the processor's caches. Immutable.
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

  /// A symbol as loops keep it: multiplied already, so that hashing a pair is a shift and a sum.
  enum class Code : uint64_t {};
  static constexpr Code code_of(uint32_t symbol) {
    return Code{symbol * (kMultiplier << kRankBits)};
  }
  static constexpr uint32_t symbol_of(Code code) {
    return static_cast<uint32_t>((static_cast<uint64_t>(code) >> kRankBits) * kInverse) &
           ((1U << kSymbolBits) - 1);
  }

  /// `pairs` in order of rank, fewer than kNone, all different. Ranks are their places. Nothing if
  /// they find no places in kSlotsMaxPerPair times their number: only pairs that were chosen to
  /// collide do that.
  static std::optional<PairRanks> create(std::span<const Pair> pairs);
  static constexpr size_t kSlotsMaxPerPair = 8;

  /// Of different pairs different; the lower kRankBits are 0. Pairs with equal upper bits share a
  /// bucket.
  static constexpr uint64_t hash_of(Code left, Code right) {
    return (static_cast<uint64_t>(left) << kSymbolBits) + static_cast<uint64_t>(right);
  }

  /// Where a pair is if it is anywhere.
  struct Place {
    uint64_t hash;
    uint32_t slot;
  };
  /// Of no pair.
  static constexpr Place nowhere() {
    return {hash_of(code_of(kSymbolsMax), code_of(kSymbolsMax)), 0};
  }

  class View;
  /// Valid as long as the ranks.
  View view() const;

 private:
  PairRanks() = default;

  // A hash is the pair's 42 bits times this, of which the lower 44 bits count. Odd, so that none
  // is lost: the golden ratio of 44 bits.
  static constexpr uint64_t kMultiplier = 0x9E3779B97F5;
  static constexpr uint64_t kInverse = [] {
    uint64_t inverse = 1;
    for (int i = 0; i < 6; ++i) {  // Newton's method: twice as many bits in each step
      inverse *= 2 - kMultiplier * inverse;
    }
    return inverse;
  }();

  static constexpr uint64_t kEmpty = UINT64_MAX;
  static constexpr uint32_t kPilots = 256;

  /// One per pilot. Odd for the same reason.
  static constexpr std::array<uint64_t, kPilots> kFactors = [] {
    std::array<uint64_t, kPilots> factors{};
    for (uint64_t pilot = 0; pilot < kPilots; ++pilot) {
      factors[pilot] = 0xA0761D6478BD642FULL + pilot * 0xE7037ED1A0B428DAULL;
    }
    return factors;
  }();

  static uint64_t hash_of(const Pair& pair) {
    return hash_of(code_of(pair.left), code_of(pair.right));
  }

  bool build(std::span<const Pair> pairs);
  bool place_bucket(std::span<const Pair> pairs, std::span<const uint32_t> ranks);

  HugeVector<uint64_t> slots_;   // hash | rank
  std::vector<uint8_t> pilots_;  // by bucket; a power of two
  int bucket_shift_ = 63;
};

/// Few registers: what a loop needs to look for pairs.
class PairRanks::View {
 public:
  explicit View(const PairRanks& ranks)
      : slots_(ranks.slots_.data()),
        pilots_(ranks.pilots_.data()),
        slot_count_(ranks.slots_.size()),
        bucket_shift_(ranks.bucket_shift_) {}

  Place place_of(Code left, Code right) const {
    const uint64_t hash = hash_of(left, right);
    return {hash, slot_of(hash, pilots_[bucket_of(hash)])};
  }
  uint32_t bucket_of(uint64_t hash) const { return static_cast<uint32_t>(hash >> bucket_shift_); }
  uint32_t slot_of(uint64_t hash, uint32_t pilot) const {
    // From the upper half of 64 bits to a place among all (Lemire, 2019).
    return static_cast<uint32_t>(((hash * kFactors[pilot]) >> 32) * slot_count_ >> 32);
  }

  /// Fetches the place into the processor's cache.
  void prefetch(const Place& place) const { __builtin_prefetch(&slots_[place.slot]); }

  /// The pair's rank or kNone.
  uint32_t find(const Place& place) const {
    // The pair's own entry leaves its rank, others more than kNone.
    return static_cast<uint32_t>(std::min<uint64_t>(slots_[place.slot] ^ place.hash, kNone));
  }

 private:
  const uint64_t* slots_;
  const uint8_t* pilots_;
  uint64_t slot_count_;
  int bucket_shift_;
};

inline PairRanks::View PairRanks::view() const {
  return View(*this);
}

}  // namespace stator::tokenizer
