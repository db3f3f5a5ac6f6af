// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/eviction_order.h"

#include <algorithm>
#include <array>

#include "stator/core/assert.h"

namespace stator::kv {
namespace {

constexpr std::array<std::string_view, kEvictions> kNames = {"lru", "multi_lru", "lineage",
                                                             "value"};
/// Of the four lists: hits from which a block belongs to the next one.
constexpr std::array<uint32_t, 3> kLevels = {3, 8, 15};
/// At this depth (blocks) attention over what is in front costs as much again as the block's
/// matrices: about 1,000 tokens in small models, more in large ones.
constexpr double kAttentionDepth = 64;

}  // namespace

std::string_view to_string(Eviction eviction) {
  return kNames[static_cast<size_t>(eviction)];
}

std::optional<Eviction> find_eviction(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  return found == kNames.end() ? std::nullopt
                               : std::optional(static_cast<Eviction>(found - kNames.begin()));
}

double EvictionOrder::score_of(const Facts& facts) const {
  switch (eviction_) {
    case Eviction::kMultiLru:
      return static_cast<double>(std::ranges::upper_bound(kLevels, facts.hits) - kLevels.begin());
    case Eviction::kLineage:
      return static_cast<double>(facts.registered);
    case Eviction::kValue:
      return age_ + (1.0 + facts.hits) * (1.0 + facts.depth / kAttentionDepth);
    case Eviction::kLru:
      break;
  }
  return 0;
}

void EvictionOrder::insert(uint32_t block, const Facts& facts) {
  Place& place = keys_[block];
  STATOR_ASSERT(!place.in, "E1: a block is in the order once");
  place = {.key = {.score = score_of(facts), .released = facts.released, .block = block},
           .in = true};
  order_.insert(place.key);
}

void EvictionOrder::erase(uint32_t block) {
  if (keys_[block].in) {
    order_.erase(keys_[block].key);
    keys_[block].in = false;
  }
}

std::optional<uint32_t> EvictionOrder::take() {
  if (order_.empty()) {
    return std::nullopt;
  }
  const Key key = *order_.begin();
  order_.erase(order_.begin());
  keys_[key.block].in = false;
  age_ = eviction_ == Eviction::kValue ? key.score : 0;
  return key.block;
}

void EvictionOrder::clear() {
  order_.clear();
  for (Place& place : keys_) {
    place.in = false;
  }
  age_ = 0;
}

}  // namespace stator::kv
