// SPDX-License-Identifier: Apache-2.0
#include "stator/router/policy.h"

#include <algorithm>
#include <array>

namespace stator::router {

// One per file in policies/.
extern const PolicyInfo kKvPolicy, kRoundRobinPolicy, kRandomPolicy, kLeastLoadedPolicy,
    kPowerOfTwoPolicy, kDeviceAwarePolicy, kDirectPolicy, kPredictedLatencyPolicy, kLmetricPolicy,
    kDualMapPolicy, kSloPolicy;

namespace {

constexpr std::array kPolicies = {
    &kKvPolicy,         &kRoundRobinPolicy, &kRandomPolicy,      &kLeastLoadedPolicy,
    &kPowerOfTwoPolicy, &kDirectPolicy,     &kDeviceAwarePolicy, &kPredictedLatencyPolicy,
    &kLmetricPolicy,    &kDualMapPolicy,    &kSloPolicy};

}  // namespace

std::string_view explain_cheapest(const PolicyInput& input, const Pick& pick) {
  const uint32_t best_overlap = std::ranges::max(input.overlap_blocks);
  if (best_overlap == 0) {
    return pick.tied ? "lowest cost, tie broken at random; no worker has this prefix cached"
                     : "lowest cost; no worker has this prefix cached";
  }
  if (input.overlap_blocks[pick.row] < best_overlap) {
    return "lowest cost; another holds a longer prefix but is busier";
  }
  return pick.tied ? "lowest cost, shared with another; holds the longest cached prefix"
                   : "lowest cost; holds the longest cached prefix";
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const PolicyInfo* info : kPolicies) {
    names.emplace_back(info->name);
  }
  return names;
}

const PolicyInfo* find_policy(std::string_view name) {
  const auto info = std::ranges::find(kPolicies, name, &PolicyInfo::name);
  return info == kPolicies.end() ? nullptr : *info;
}

}  // namespace stator::router
