// SPDX-License-Identifier: Apache-2.0
#include "stator/inference/pool.h"

#include <algorithm>
#include <array>

namespace stator::inference {
namespace {

constexpr std::array<std::string_view, kPoolTaskCount> kNames = {"embed", "token_embed", "classify",
                                                                 "score"};

}  // namespace

std::string_view to_string(PoolTask task) {
  return kNames[static_cast<size_t>(task)];
}

std::optional<PoolTask> find_pool_task(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    return std::nullopt;
  }
  return static_cast<PoolTask>(found - kNames.begin());
}

}  // namespace stator::inference
