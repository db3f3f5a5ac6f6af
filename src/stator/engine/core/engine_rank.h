// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/engine/api/forward_pass.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/core/engine_metrics.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/core/tier_lanes.h"

namespace stator::engine {

/// A data-parallel rank.
struct Rank {
  Rank(const EngineConfig& config, std::unique_ptr<ModelRunner> runner_in, Metrics& metrics_in,
       std::string_view name)
      : runner(std::move(runner_in)),
        scheduler(config),
        metrics(metrics_in, name, runner->device_block(BlockId(0)).size()) {}
  const std::unique_ptr<ModelRunner> runner;
  Scheduler scheduler;
  EngineMetrics metrics;
  std::unique_ptr<TierLanes> lanes;  // null: no tiers below host memory
  std::vector<Sampled> sampled;      // of the pass under way
  uint32_t tokens = 0;               // it computes
  ForwardPass pass;                  // under way, or the last one told
  uint64_t warn_at = 1;              // of so many forged blocks
};

/// Says so of the first forged block and of every doubling: a client may forge as many as it likes.
void warn_of_forged_blocks(Rank& rank, const std::string& engine);

/// Of all ranks together.
LoadReport sum(const std::vector<std::unique_ptr<Rank>>& ranks);

}  // namespace stator::engine
