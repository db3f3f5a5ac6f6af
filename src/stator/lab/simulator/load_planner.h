// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "stator/core/result.h"
#include "stator/lab/simulator/planner.h"

namespace stator::simulator {

/// What a planner that follows load aims at.
struct LoadPlannerConfig {
  Duration interval = std::chrono::seconds(10);   ///< between two decisions
  double requests_per_worker = 32;                ///< inside, that is queued, waiting and running
  double requests_per_prefill_worker = 2;         ///< the same of workers that compute prompts
  double kv_use = 0.8;                            ///< part of the KV blocks in use, at most
  Duration down_after = std::chrono::minutes(1);  ///< a fleet shrinks to the most it needed so long
  uint32_t workers_min = 1;                       ///< of each pool
  uint32_t workers_max = 64;
};

/// As many workers as bring requests per worker and KV use to what is aimed at: up at once, down
/// when no decision of the last `down_after` wanted more. kInvalidArgument names what makes no
/// sense.
///
/// This is the rule of Kubernetes' horizontal autoscaler (desired = ceil(sum / target), with a
/// window for stabilisation), and an example of a Planner: it sees a FleetView and answers with
/// numbers, so it can be tested without a simulation.
Result<std::unique_ptr<Planner>> make_load_planner(const LoadPlannerConfig& config);

}  // namespace stator::simulator
