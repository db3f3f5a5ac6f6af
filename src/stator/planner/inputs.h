// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/planner/opinions.h"

namespace stator::planner {

/// Lengths of one recent request, and when it came.
struct RequestLength {
  double input_tokens = 0;
  double output_tokens = 0;
  double cached_tokens = 0;  ///< of the prompt, found in the worker's cache
  double at_s = -1;          ///< on the planner's clock; -1: not known
};
inline constexpr size_t kSampleMax = 256;

/// What came in during a window.
struct Traffic {
  double duration_s = 0;
  double requests = 0;
  double input_tokens = 0;   ///< mean per request; carried over from before where nothing came
  double output_tokens = 0;  ///< the same
  double kv_hit_rate = 0;    ///< part of prompt tokens found in caches
  double accept_length = 1;  ///< tokens per decode pass
  double ended = 0;          ///< requests that ended in the window
  double missed = 0;         ///< of those, with a goal missed
  std::vector<RequestLength> sample;  ///< at most kSampleMax; empty: only the means are known
};

/// One engine at this instant, or one of its data-parallel ranks.
struct EngineLoad {
  uint64_t id = 0;
  double queued_prefill_tokens = 0;
  double running = 0;           ///< sequences that decode or wait for it
  double decode_kv_tokens = 0;  ///< of those
};

/// Workers that do the same.
struct PoolState {
  uint32_t ready = 0;
  uint32_t expected = 0;  ///< asked for last: ready, starting
  uint32_t draining = 0;
  double queued = 0;  ///< requests in front of the workers
  std::vector<EngineLoad> engines;
};

/// All that a decision may depend on.
struct Inputs {
  double now_s = 0;
  std::optional<Traffic> traffic;  ///< of the window since the last tick; absent: not known
  PoolState decode;                ///< of the only pool, where nothing is disaggregated
  PoolState prefill;
  std::string broken;  ///< why the measurements cannot be trusted; empty: they can
  bool stable = true;  ///< nothing else changes the fleet now; if not, no decision is made
  std::optional<uint32_t> min_workers;  ///< from now on, over the configuration's
  std::optional<uint32_t> prefill_min_workers;
  /// What the step model learned, as whoever made the core knows how to read it: part of the inputs
  /// so that a journal has it. The core itself does not look at it.
  std::vector<double> calibration;
  std::optional<Forecast> forecast;  ///< of plugins, over the policy's own
  std::vector<Opinion> opinions;     ///< of plugins, on the sizes
};

/// A size that was looked at, and what was expected of it.
struct Alternative {
  uint32_t workers = 0;
  double ttft_ms = 0;  ///< at the asked quantile
  double itl_ms = 0;
  double mean_ttft_ms = 0, mean_itl_ms = 0;  ///< what is measured as a mean
  double miss_ratio = 0;                     ///< of requests
  double gpu_seconds = 0;                    ///< over the horizon
};

/// What to do, and why.
struct Decision {
  std::optional<uint32_t> prefill_workers;  ///< absent: no opinion
  std::optional<uint32_t> workers;
  double next_s = 0;   ///< when to ask again
  std::string reason;  ///< a code: "scale_up", "no_change", "metrics_invalid", …
  std::string text;    ///< one line for a person
  double predicted_requests_per_s = 0;
  /// What clients should see with the sizes of this decision: means, to be held against measured
  /// ones; of rules, the slowest engine's next request.
  double estimated_ttft_ms = 0;
  double estimated_itl_ms = 0;
  double engine_requests_per_s = 0;  ///< what one engine takes within the goals; 0: not asked
  double prefill_engine_requests_per_s = 0;  ///< the same of those that compute prompts only
  std::vector<Alternative> alternatives;
};

/// One line of JSON, the same bytes for the same content.
std::string render_json(const Inputs& inputs);
std::string render_json(const Decision& decision);
/// The inverse; kInvalidArgument names the field.
Result<Inputs> parse_inputs(std::string_view json);

}  // namespace stator::planner
