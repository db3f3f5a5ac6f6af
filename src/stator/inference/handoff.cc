// SPDX-License-Identifier: Apache-2.0
#include "stator/inference/handoff.h"

#include <algorithm>
#include <array>

namespace stator::inference {
namespace {

constexpr std::array<std::string_view, kWorkerRoleCount> kNames = {"aggregated", "prefill",
                                                                   "decode"};

}  // namespace

std::string_view to_string(WorkerRole role) {
  return kNames[static_cast<size_t>(role)];
}

std::optional<WorkerRole> find_role(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    return std::nullopt;
  }
  return static_cast<WorkerRole>(found - kNames.begin());
}

}  // namespace stator::inference
