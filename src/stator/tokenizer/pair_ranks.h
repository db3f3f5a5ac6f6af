// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "stator/core/ids.h"
#include "stator/tokenizer/huge_pages.h"

namespace stator::tokenizer {

/// Rank of the merge of two tokens, for the inner loop of merging: no branch, two loads that do not
/// wait for each other, 0.6 MiB for 128,000 merges. Cuckoo hashing (Pagh and Rodler, 2004) with two
/// entries per bucket that hold 12 bits of the pair's hash instead of the pair. So `find` may take
/// one pair for another, about once in a thousand times; whoever uses the rank compares the pair
/// with that of the rank (`rule`), which has to be read anyway, and asks `find_exactly` if it is
/// not the same. A rank found is never above the true one, so no merge comes too late.
/// Immutable.
class PairRanks {
 public:
  struct Rule {
    TokenId left;
    TokenId right;
    TokenId merged;
  };
  static constexpr int kTokenBits = 21;
  static constexpr size_t kTokensMax = (size_t{1} << kTokenBits) - 1;  ///< tokens are below
  static constexpr int kRankBits = 20;
  static constexpr uint32_t kNone = (1U << kRankBits) - 1;

  /// `rules` in order of rank, fewer than kNone, of different pairs. Ranks are their places.
  explicit PairRanks(std::span<const Rule> rules);

  /// Where a pair may be.
  struct Place {
    uint32_t first;
    uint32_t second;
    uint32_t mark;
  };
  /// Where no pair is: the first bucket is left empty.
  static constexpr Place kNowhere = {0, 0, 0};

  Place place_of(TokenId left, TokenId right) const {
    // Bits from 20 on depend on all bits of both tokens.
    const uint64_t hash = left * 0x9E3779B97F4A7C15ULL + right * 0xD6E8FEB86659FD93ULL;
    return {1 + scale(static_cast<uint32_t>(hash)), 1 + scale(static_cast<uint32_t>(hash >> 26)),
            static_cast<uint32_t>(hash >> 52) << kRankBits};
  }

  /// Fetches the place into the processor's cache.
  void prefetch(const Place& place) const {
    __builtin_prefetch(&buckets_[place.first]);
    __builtin_prefetch(&buckets_[place.second]);
  }

  using Quad [[gnu::vector_size(16)]] = uint32_t;

  /// For two pairs at once: for each a rank not above its own, or kNone if it certainly has none.
  /// The results come twice: {one, other, one, other}.
  Quad find(const Place& one, const Place& other) const {
    // An entry of the pair leaves its rank, others more than kNone.
    Quad of_one = read(one);
    Quad of_other = read(other);
    Quad halves = __builtin_elementwise_min(__builtin_shufflevector(of_one, of_other, 0, 4, 1, 5),
                                            __builtin_shufflevector(of_one, of_other, 2, 6, 3, 7));
    Quad least =
        __builtin_elementwise_min(halves, __builtin_shufflevector(halves, halves, 2, 3, 0, 1));
    Quad none = {kNone, kNone, kNone, kNone};
    return __builtin_elementwise_min(least, none);
  }

  /// The pair's rank or kNone.
  uint32_t find_exactly(TokenId left, TokenId right) const;

  /// The rule of a rank found, as one word.
  class PackedRule {
   public:
    explicit PackedRule(const Rule& rule)
        : bits_(pack(rule.left, rule.right) << kTokenBits | rule.merged) {}
    TokenId merged() const { return static_cast<TokenId>(bits_ & kTokensMax); }
    bool is_of(TokenId left, TokenId right) const {
      return bits_ >> kTokenBits == pack(left, right);
    }
    Place place_in(const PairRanks& ranks) const {
      return ranks.place_of(static_cast<TokenId>(bits_ >> (2 * kTokenBits)),
                            static_cast<TokenId>(bits_ >> kTokenBits & kTokensMax));
    }

   private:
    static uint64_t pack(TokenId left, TokenId right) {
      return static_cast<uint64_t>(left) << kTokenBits | right;
    }
    uint64_t bits_;
  };
  const PackedRule& rule(uint32_t rank) const { return rules_[rank]; }
  /// Any rank, also kNone: hence by address, not by element.
  void prefetch_rule(uint32_t rank) const {
    const auto begin = reinterpret_cast<uintptr_t>(rules_.data());
    __builtin_prefetch(reinterpret_cast<const void*>(begin + rank * sizeof(PackedRule)));
  }

 private:
  // 12 bits of the hash, rank. An empty entry gives kNone or more with every mark.
  using Bucket = uint64_t;  // two entries
  static constexpr uint32_t kEmpty = UINT32_MAX;
  static uint32_t entry_of(Bucket bucket, int slot) {
    return static_cast<uint32_t>(bucket >> (32 * slot));
  }

  Quad read(const Place& place) const {
    using Pair [[gnu::vector_size(16)]] = uint64_t;
    const Pair both = {buckets_[place.first], buckets_[place.second]};
    return reinterpret_cast<Quad>(both) ^ place.mark;
  }
  /// From all of 32 bits to a bucket, but for the first one (Lemire, 2019).
  uint32_t scale(uint32_t bits) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(bits) * bucket_count_ >> 32);
  }
  bool build();
  bool insert(uint32_t rank);

  HugeVector<Bucket> buckets_;    // after an empty one
  HugeVector<PackedRule> rules_;  // by rank
  uint32_t bucket_count_ = 0;
};

}  // namespace stator::tokenizer
