// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/lab/simulator/cluster.h"
#include "stator/lab/simulator/trace_source.h"
#include "stator/perf/timing_model.h"
#include "stator/planner/planner_core.h"

namespace stator::planner {

/// A trace replayed on a simulated fleet whose size a policy decides.
struct DryRunConfig {
  PlannerConfig planner;
  simulator::ClusterConfig fleet;  ///< workers: how many there are at the beginning
};

/// What happened in one stretch of time.
struct DryRunPoint {
  double begin_s = 0;
  uint64_t arrivals = 0;
  uint64_t misses = 0;
  double workers = 0;
  double ttft_ms = 0;  ///< p95 of requests that came then
  double itl_ms = 0;
  double gpu_hours = 0;  ///< since the beginning
};
struct ScalingEvent {
  double time_s = 0;
  uint32_t from = 0, to = 0;
  std::string text;
};
struct DryRunResult {
  std::string policy;
  uint64_t requests = 0;
  uint64_t sla_misses = 0;  ///< requests with a TTFT or a mean ITL above the goal, or that failed
  double gpu_seconds = 0;
  uint64_t scaling_events = 0;  ///< changes of the wanted size
  uint64_t ticks = 0;
  double tick_ms_max = 0;
  double duration_s = 0;
  double ttft_ms_p50 = 0, ttft_ms_p95 = 0, itl_ms_p50 = 0, itl_ms_p95 = 0;
  double ttft_ms_mean = 0, itl_ms_mean = 0;
  /// What the policy expected of those, mean over ticks by the requests that came; 0: it has no
  /// expectation.
  double predicted_ttft_ms = 0, predicted_itl_ms = 0, predicted_requests = 0;
  double workers_mean = 0;
  uint32_t workers_max = 0;
  std::vector<ScalingEvent> events;  ///< the first kEventsMax
  std::vector<DryRunPoint> points;
  std::string journal;  ///< JSON Lines, see replay_journal()
};
inline constexpr size_t kEventsMax = 1000;
inline constexpr size_t kPointsMax = 240;
inline constexpr size_t kJournalBytesMax = 256 << 20;

/// `timing` outlives the call. `tick_clock` measures ticks; null: it does not.
Result<DryRunResult> dry_run(const DryRunConfig& config, const perf::TimingModel& timing,
                             simulator::TraceSource& trace, const Clock* tick_clock);

/// As many workers as the first minute of the trace needs, whose times are divided by `speedup`.
Result<uint32_t> initial_workers(const PlannerConfig& config, const perf::TimingModel& timing,
                                 simulator::TraceSource& trace, double speedup);

/// One JSON object; `results` begins with the policy that was asked for.
std::string render_json(const PlannerConfig& config, const std::vector<DryRunResult>& results);
std::string render_table(const std::vector<DryRunResult>& results);
/// A page without scripts: load, replicas, TTFT, ITL, misses and GPU-hours side by side.
std::string render_html(const PlannerConfig& config, const std::vector<DryRunResult>& results);

}  // namespace stator::planner
