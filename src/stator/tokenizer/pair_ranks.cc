// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/pair_ranks.h"

#include "stator/core/assert.h"

#include <utility>

namespace stator::tokenizer {
namespace {

// At the loads chosen here, insertions that need more moves than this do not happen by chance.
constexpr int kMovesMax = 500;

}  // namespace

PairRanks::PairRanks(std::span<const Rule> rules) : rules_(rules.begin(), rules.end()) {
  STATOR_ASSERT(rules.size() < kNone, "ranks fit their bits");
  // 80 % full; beyond 89 % it cannot be built.
  bucket_count_ = static_cast<uint32_t>(rules.size() * 5 / 8 + 1);
  while (!build()) {
    bucket_count_ += bucket_count_ / 8 + 1;
  }
}

bool PairRanks::build() {
  buckets_.assign(bucket_count_ + size_t{1}, Bucket{UINT64_MAX});
  for (uint32_t rank = 0; rank < rules_.size(); ++rank) {
    if (!insert(rank)) {
      return false;
    }
  }
  return true;
}

bool PairRanks::insert(uint32_t rank) {
  const auto replace = [this](uint32_t bucket, int slot, uint32_t entry) {
    buckets_[bucket] &= ~(uint64_t{UINT32_MAX} << (32 * slot));
    buckets_[bucket] |= uint64_t{entry} << (32 * slot);
  };
  Place place = rules_[rank].place_in(*this);
  uint32_t entry = place.mark | rank;
  for (int moves = 0; moves < kMovesMax; ++moves) {
    for (const uint32_t bucket : {place.first, place.second}) {
      for (const int slot : {0, 1}) {
        if (entry_of(buckets_[bucket], slot) == kEmpty) {
          replace(bucket, slot, entry);
          return true;
        }
      }
    }
    // Takes the place of another one, which goes on; in turns, so that it does not come back.
    const uint32_t bucket = (moves & 1) != 0 ? place.first : place.second;
    const int slot = moves >> 1 & 1;
    const uint32_t moved = entry_of(buckets_[bucket], slot);
    replace(bucket, slot, entry);
    entry = moved;
    place = rules_[entry & kNone].place_in(*this);
  }
  return false;
}

uint32_t PairRanks::find_exactly(TokenId left, TokenId right) const {
  const Place place = place_of(left, right);
  for (const uint32_t bucket : {place.first, place.second}) {
    for (const int slot : {0, 1}) {
      const uint32_t entry = entry_of(buckets_[bucket], slot);
      const uint32_t rank = entry & kNone;
      if (entry != kEmpty && rules_[rank].is_of(left, right)) {
        return rank;
      }
    }
  }
  return kNone;
}

}  // namespace stator::tokenizer
