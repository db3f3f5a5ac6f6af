// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/planner/engine_timing.h"
#include "stator/planner/inputs.h"
#include "stator/planner/planner_config.h"

namespace stator::planner {

/// Means that the rules reason with: of recent requests.
struct LoadMeans {
  double input_tokens = 0;
  double output_tokens = 0;
  double kv_hit_rate = 0;
  double accept_length = 1;
};

/// What a pool should do.
struct LoadVerdict {
  int change = 0;  ///< -1, 0 or 1
  std::string_view reason;
  double ttft_ms = 0;  ///< of the slowest engine, for a request that came now
  double itl_ms = 0;
};

/// Up if every engine would miss a goal, down if every engine would keep both with the load of one
/// fewer; the reason says which guard held otherwise. The reference's reactive mode.
LoadVerdict judge_aggregated(const PoolState& pool, const LoadMeans& means,
                             const EngineTiming& engine, const PlannerConfig& config);
LoadVerdict judge_prefill(const PoolState& pool, const LoadMeans& means, const EngineTiming& engine,
                          const PlannerConfig& config);
LoadVerdict judge_decode(const PoolState& pool, const LoadMeans& means, const EngineTiming& engine,
                         const PlannerConfig& config);

}  // namespace stator::planner
