// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/pair_ranks.h"

#include "stator/core/assert.h"

#include <numeric>

namespace stator::tokenizer {
namespace {

// More pairs per bucket would need more pilots than a byte can tell.
constexpr size_t kPairsPerBucket = 3;

// A handful of pairs may need more room per pair than many.
constexpr size_t kSlotsMaxOfFew = 64;

}  // namespace

std::optional<PairRanks> PairRanks::create(std::span<const Pair> pairs) {
  STATOR_ASSERT(pairs.size() < kNone, "ranks fit their bits");
  // 80 % full; grows if a bucket has no pilot.
  size_t slots = pairs.size() + pairs.size() / 4 + 1;
  PairRanks ranks;
  ranks.pilots_.resize(pairs.size() / kPairsPerBucket + 1);
  ranks.slots_.resize(slots);
  while (!ranks.build(pairs)) {
    slots += slots / 16 + 1;
    if (slots > kSlotsMaxPerPair * pairs.size() + kSlotsMaxOfFew) {
      return std::nullopt;
    }
    ranks.slots_.resize(slots);
  }
  return ranks;
}

/// Large buckets first, while most slots are free.
bool PairRanks::build(std::span<const Pair> pairs) {
  std::ranges::fill(slots_, kEmpty);
  std::vector<uint32_t> buckets(pairs.size());
  std::vector<uint32_t> sizes(pilots_.size());
  for (size_t rank = 0; rank < pairs.size(); ++rank) {
    buckets[rank] = bucket_of(hash_of(pairs[rank].left, pairs[rank].right));
    ++sizes[buckets[rank]];
  }
  std::vector<uint32_t> ranks(pairs.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::sort(ranks, [&](uint32_t one, uint32_t other) {
    const uint32_t bucket = buckets[one];
    const uint32_t other_bucket = buckets[other];
    return sizes[bucket] != sizes[other_bucket] ? sizes[bucket] > sizes[other_bucket]
                                                : bucket < other_bucket;
  });
  for (size_t i = 0; i < ranks.size();) {
    const size_t size = sizes[buckets[ranks[i]]];
    if (!place_bucket(pairs, std::span(ranks).subspan(i, size))) {
      return false;
    }
    i += size;
  }
  return true;
}

/// Finds the pilot of the bucket that has `ranks`.
bool PairRanks::place_bucket(std::span<const Pair> pairs, std::span<const uint32_t> ranks) {
  const auto hash = [&](uint32_t rank) { return hash_of(pairs[rank].left, pairs[rank].right); };
  for (uint32_t pilot = 0; pilot < kPilots; ++pilot) {
    size_t placed = 0;
    for (; placed < ranks.size(); ++placed) {
      const uint32_t rank = ranks[placed];
      uint64_t& slot = slots_[slot_of(hash(rank), pilot)];
      if (slot != kEmpty) {
        break;
      }
      slot = key_of(pairs[rank].left, pairs[rank].right) | rank;
    }
    if (placed == ranks.size()) {
      pilots_[bucket_of(hash(ranks.front()))] = static_cast<uint8_t>(pilot);
      return true;
    }
    for (const uint32_t rank : ranks.first(placed)) {
      slots_[slot_of(hash(rank), pilot)] = kEmpty;
    }
  }
  return false;
}

}  // namespace stator::tokenizer
