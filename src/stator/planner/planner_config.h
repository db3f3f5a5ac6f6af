// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/planner/budget.h"
#include "stator/planner/power.h"
#include "stator/planner/predictor.h"
#include "stator/planner/warm_start.h"

namespace stator::planner {

enum class PolicyKind : uint8_t {
  kMpc,         ///< simulates what each size would do, and takes the cheapest that keeps the goals
  kThroughput,  ///< sizes the fleet for the forecast of the next interval
  kLoad,        ///< up or down by one, by what the engines would need
  kReference,   ///< both, as NVIDIA Dynamo's planner combines them
  kStatic,
};

/// What the reactive rules go by: the goals through the step model, or thresholds of load alone.
enum class LoadTarget : uint8_t { kSla, kThroughput, kLatency, kLoad };
/// "sla", "throughput", "latency" or "load".
Result<LoadTarget> find_target(std::string_view name);

/// Thresholds of LoadTarget::kLoad: tokens that wait for a prefill engine, percent of a decode
/// engine's KV. Up at or above, down at or below; -1: not given.
struct EasyThresholds {
  double prefill_up = -1, prefill_down = -1;
  double decode_up = -1, decode_down = -1;
};

/// How a fleet is sized. Names and defaults as in the reference's planner where it has them.
struct PlannerConfig {
  PolicyKind policy = PolicyKind::kMpc;
  uint32_t static_workers = 1;
  double ttft_ms = 500;
  double itl_ms = 50;
  double quantile = 0.95;  ///< of requests that are to meet both, and of forecasts it must hold in

  double throughput_interval_s = 180;
  double load_interval_s = 5;
  double mpc_interval_s = 10;
  LoadTarget target = LoadTarget::kSla;  ///< of the reactive rules
  EasyThresholds easy;
  /// mpc: a missed request costs as much as so many that an engine takes within the goals: what GPU
  /// time is worth against late answers. At 300 a fleet that misses one request in 300 loses as
  /// much by that as it costs.
  double miss_price = 300;
  /// mpc: of the GPU time that the reference's rules would take for the same requests, so much at
  /// most; 0: no limit. Within it misses are made few; it does not hold where the rules lose the
  /// goals altogether.
  double spend_limit = 0.97;
  double down_hold_min_s = 120;  ///< mpc: a smaller fleet must have sufficed for so long
  double start_up_s = 60;        ///< until a new worker takes requests

  uint32_t min_workers = 1;  ///< 0: the fleet may go away while nothing comes
  uint32_t max_workers = 64;
  uint32_t gpus_per_worker = 1;
  // Of workers that compute prompts only, where they are another pool; 0: as the others.
  uint32_t prefill_min_workers = 0;
  uint32_t prefill_gpus_per_worker = 0;
  bool split = false;           ///< there is such a pool: the smallest fleet has one of each
  int32_t max_gpu_budget = -1;  ///< -1: none
  int32_t min_gpu_budget = -1;
  PowerBudget power;               ///< of all workers together
  uint32_t coexistence_floor = 0;  ///< workers that another controller counts on

  PredictorConfig predictor{.kind = PredictorKind::kArima, .arima_log1p_fallback = true};
  std::vector<LoadWindow> past;  ///< load before the start, in windows of throughput_interval_s
  double scale_down_sensitivity = 80;  ///< percent; 0: never
  uint32_t mpc_paths = 8;
  double idle_before_zero_s = 300;
  uint64_t seed = 42;

  // What an engine can do at once.
  double max_num_batched_tokens = 8192;
  double max_num_seqs = 256;
  double max_kv_tokens = 1'048'576;
  double context_length = 32'768;  ///< of the model, for thresholds of prefill queues
};

/// GPUs and least numbers of a pool, other controllers' floor included.
PoolFootprint pool_of(const PlannerConfig& config, bool prefill);

/// "mpc", "throughput", "load", "reference" or "static:N", into `config`.
Status parse_policy(std::string_view text, PlannerConfig& config);
std::string name_of(const PlannerConfig& config);
/// kInvalidArgument names the field and, where a budget is below the smallest fleet, the numbers.
Status validate(const PlannerConfig& config);

}  // namespace stator::planner
