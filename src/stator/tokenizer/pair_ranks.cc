// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/pair_ranks.h"

#include "stator/core/assert.h"

#include <bit>
#include <utility>

namespace stator::tokenizer {
namespace {

// At most. More would need more pilots than a byte can tell.
constexpr size_t kPairsPerBucket = 4;

// A handful of pairs may need more room per pair than many.
constexpr size_t kSlotsMaxOfFew = 64;

/// The ranks, those of one bucket together, large buckets first and else in their order; sorted by
/// counting. `buckets` by rank, `sizes` by bucket.
std::vector<uint32_t> by_size_of_bucket(std::span<const uint32_t> buckets,
                                        std::span<const uint32_t> sizes) {
  const size_t largest = sizes.empty() ? 0 : std::ranges::max(sizes);
  std::vector<uint32_t> next_of_size(largest + 2);  // where the next bucket of a size starts
  for (const uint32_t size : sizes) {
    next_of_size[size] += size;
  }
  uint32_t begin = 0;
  for (size_t size = largest + 1; size-- > 0;) {
    begin += std::exchange(next_of_size[size], begin);
  }
  std::vector<uint32_t> next_in_bucket(sizes.size());
  for (size_t bucket = 0; bucket < sizes.size(); ++bucket) {
    next_in_bucket[bucket] =
        std::exchange(next_of_size[sizes[bucket]], next_of_size[sizes[bucket]] + sizes[bucket]);
  }
  std::vector<uint32_t> ranks(buckets.size());
  for (uint32_t rank = 0; rank < buckets.size(); ++rank) {
    ranks[next_in_bucket[buckets[rank]]++] = rank;
  }
  return ranks;
}

}  // namespace

std::optional<PairRanks> PairRanks::create(std::span<const Pair> pairs) {
  STATOR_ASSERT(pairs.size() < kNone, "ranks fit their bits");
  // At most 80 % full; grows if a bucket has no pilot.
  size_t slots = std::max<size_t>(2, pairs.size() + pairs.size() / 4);
  PairRanks ranks;
  ranks.pilots_.resize(std::bit_ceil(std::max<size_t>(2, pairs.size() / kPairsPerBucket)));
  ranks.bucket_shift_ = 64 - std::countr_zero(ranks.pilots_.size());
  for (;; slots += slots / 16 + 1) {
    if (slots > kSlotsMaxPerPair * pairs.size() + kSlotsMaxOfFew) {
      return std::nullopt;
    }
    ranks.slots_.resize(slots);
    if (ranks.build(pairs)) {
      return ranks;
    }
  }
}

/// Large buckets first, while most slots are free.
bool PairRanks::build(std::span<const Pair> pairs) {
  std::ranges::fill(slots_, kEmpty);
  std::vector<uint32_t> buckets(pairs.size());
  std::vector<uint32_t> sizes(pilots_.size());
  for (size_t rank = 0; rank < pairs.size(); ++rank) {
    buckets[rank] = view().bucket_of(hash_of(pairs[rank]));
    ++sizes[buckets[rank]];
  }
  const std::vector<uint32_t> ranks = by_size_of_bucket(buckets, sizes);
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
  const auto hash = [&](uint32_t rank) { return hash_of(pairs[rank]); };
  const View view = this->view();
  for (uint32_t pilot = 0; pilot < kPilots; ++pilot) {
    size_t placed = 0;
    for (; placed < ranks.size(); ++placed) {
      const uint32_t rank = ranks[placed];
      uint64_t& slot = slots_[view.slot_of(hash(rank), pilot)];
      if (slot != kEmpty) {
        break;
      }
      slot = hash(rank) | rank;
    }
    if (placed == ranks.size()) {
      pilots_[view.bucket_of(hash(ranks.front()))] = static_cast<uint8_t>(pilot);
      return true;
    }
    for (const uint32_t rank : ranks.first(placed)) {
      slots_[view.slot_of(hash(rank), pilot)] = kEmpty;
    }
  }
  return false;
}

}  // namespace stator::tokenizer
