// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/scheduling_rules.h"

#include <array>
#include <utility>

namespace stator::engine {
namespace {

// The first name of each is the one that is shown.
constexpr std::array<std::pair<std::string_view, SchedulingRules>, 4> kNames = {{
    {"vllm", SchedulingRules::kVllm},
    {"trtllm", SchedulingRules::kTrtllm},
    {"sglang", SchedulingRules::kSglang},
    {"trtllm-max-utilization", SchedulingRules::kVllm},
}};

}  // namespace

std::optional<SchedulingRules> find_rules(std::string_view name) {
  for (const auto& [known, rules] : kNames) {
    if (known == name) {
      return rules;
    }
  }
  return std::nullopt;
}

std::string_view name_of(SchedulingRules rules) {
  for (const auto& [name, known] : kNames) {
    if (known == rules) {
      return name;
    }
  }
  return "";
}

}  // namespace stator::engine
