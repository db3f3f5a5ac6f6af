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

double PolicyInput::uncached_tokens(size_t row) const {
  CostInputs inputs{.device_overlap = static_cast<double>(overlap_blocks[row])};
  if (!lower_tiers.empty()) {
    inputs.host_extension = lower_tiers[row].host_blocks;
    inputs.disk_extension = lower_tiers[row].disk_blocks;
  }
  return std::max(0.0,
                  request.shape.prompt_tokens - cached_tokens(request.cost, inputs, request.shape));
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
