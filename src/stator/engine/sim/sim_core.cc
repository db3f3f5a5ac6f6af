// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stator/engine/sim/naive_sim_core.h"
#include "stator/engine/sim/sim_knobs.h"
#include "stator/engine/sim/sim_scheduler.h"
#include "stator/engine/sim/token_sim_core.h"

namespace stator::engine {

Status validate(const SimEngineConfig& config) {
  const auto refuse = [](std::string message) {
    return Error(Code::kInvalidArgument, std::move(message));
  };
  if (config.block_size == 0 || config.blocks == 0) {
    return refuse("a simulated engine needs blocks of at least one token, and at least one block");
  }
  if (config.max_num_seqs == 0 || config.max_num_batched_tokens < config.max_num_seqs) {
    return refuse(fmt::format("max_num_seqs must be from 1 to max_num_batched_tokens ({}), is {}",
                              config.max_num_batched_tokens, config.max_num_seqs));
  }
  if (config.dp_size == 0 || config.dp_size > kSimRanksMax) {
    return refuse(fmt::format("dp_size must be from 1 to {}, is {}", kSimRanksMax, config.dp_size));
  }
  const auto probability = [](double value) { return value >= 0 && value <= 1; };
  if (!std::ranges::all_of(config.draft_acceptance, probability)) {
    return refuse("the acceptance of draft tokens must be numbers from 0 to 1");
  }
  if (!(config.speedup >= kSpeedupMin) ||
      !(config.speedup * config.decode_speedup >= kSpeedupMin) ||
      !std::isfinite(config.speedup * config.decode_speedup)) {
    return refuse(
        fmt::format("speedup ({}) and speedup times decode speedup ({}) must be at least {}",
                    config.speedup, config.speedup * config.decode_speedup, kSpeedupMin));
  }
  return {};
}

void SimOutcome::clear() {
  passes = 0;
  dummy_passes = 0;
  prefill_tokens = 0;
  preemptions = 0;
  offloaded_blocks = 0;
  admitted.clear();
  rejected.clear();
  first.clear();
  second.clear();
  grown.clear();
  finished.clear();
  gaps.clear();
  host_events.clear();
  events.clear();
}

std::unique_ptr<SimCore> make_sim_core(const SimEngineConfig& config,
                                       const perf::TimingModel& timing, SimPasses passes) {
  if (passes == SimPasses::kProduction || config.rules == SchedulingRules::kSglang ||
      !config.draft_acceptance.empty() || config.host_blocks > 0) {
    return std::make_unique<TokenSimCore>(config, timing);
  }
  if (passes == SimPasses::kNaive) {
    return std::make_unique<NaiveSimCore>(config, timing);
  }
  return std::make_unique<SimScheduler>(config, timing);
}

}  // namespace stator::engine
