// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stator/planner/inputs.h"

namespace stator::scaling {

/// The load of one rank of one worker, as a frontend or an engine tells it.
struct WorkerLoad {
  uint64_t worker = 0;
  uint32_t rank = 0;
  bool computes_prompts = false;  ///< only
  double queued_prefill_tokens = 0;
  double running = 0;
  double decode_kv_tokens = 0;
};

/// What clients of a model saw during a window: sums over all frontends.
struct WindowSums {
  double started = 0, completed = 0;
  double input_tokens = 0, input_count = 0;
  double output_tokens = 0, output_count = 0;
  double cached_tokens = 0;
  double ttft_s = 0, ttft_count = 0, ttft_late = 0;  ///< late: above the goal
  double itl_s = 0, itl_count = 0, itl_late = 0;
  double duration_s = 0, duration_count = 0;
  double drafts = 0, accepted_drafts = 0;
};

/// What one look at a fleet gave.
struct Observation {
  double window_s = 0;
  std::optional<WindowSums> window;  ///< absent at the first look: counters need two
  std::vector<WorkerLoad> loads;     ///< in the order of (worker, rank)
  std::optional<uint32_t> prefill_ready, decode_ready;  ///< workers that frontends know
  double queued = 0;                                    ///< requests that wait in frontends
  std::optional<double> hit_rate;  ///< last known value, where no window says it
  std::string broken;              ///< why nothing of this may be trusted; empty: it may
};

/// Means of what was observed, as they are shown and exported; not a number: unknown.
struct Observed {
  double requests_per_s = 0;
  double ttft_ms = 0, itl_ms = 0, duration_s = 0;
  double input_tokens = 0, output_tokens = 0;
  double kv_hit_rate = 0, accept_length = 1;
};

/// Turns looks into what the planner's core is given. Lengths, hit rate and accept length are
/// carried over from before where a window has none. Pure.
class InputBuilder {
 public:
  /// `draft_tokens`: speculative tokens per pass, 0 = none.
  explicit InputBuilder(uint32_t draft_tokens) : draft_tokens_(draft_tokens) {}
  /// `wanted`: sizes that were asked for last; absent: what is ready.
  planner::Inputs build(double now_s, const Observation& seen, std::optional<uint32_t> prefill,
                        std::optional<uint32_t> decode);
  const Observed& observed() const { return observed_; }

 private:
  const uint32_t draft_tokens_;
  Observed observed_;
};

}  // namespace stator::scaling
