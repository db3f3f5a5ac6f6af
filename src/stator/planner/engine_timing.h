// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/perf/timing_model.h"

namespace stator::planner {

/// What the planner asks of an engine's model, milliseconds.
class EngineTiming {
 public:
  /// `timing` outlives the object.
  EngineTiming(const perf::TimingModel& timing, double kv_tokens_max)
      : timing_(timing), kv_tokens_max_(kv_tokens_max) {}

  /// One pass with so many prompt tokens and sequences with so many tokens of KV in all.
  double step_ms(double prefill_tokens, double decodes, double kv_tokens) const;
  /// Until `tokens` of prompts are computed in passes of `pass_tokens`, beside those decodes.
  double drain_ms(double tokens, double pass_tokens, double decodes, double kv_tokens) const;
  double kv_tokens_max() const { return kv_tokens_max_; }

 private:
  const perf::TimingModel& timing_;
  double kv_tokens_max_;
};

struct CapacityQuery {
  double input_tokens = 0;
  double output_tokens = 0;
  double kv_hit_rate = 0;
  double accept_length = 1;
  double ttft_ms = 0, itl_ms = 0;
  double max_num_batched_tokens = 8192, max_num_seqs = 256;
};
/// What one engine that does both phases can take within the goals.
struct Capacity {
  double requests_per_s = 0;
  double batch = 0;
  double ttft_ms = 0, itl_ms = 0;
  bool eligible =
      false;  ///< even one request at a time misses a goal: the best rate is given still
};
Capacity find_capacity(const EngineTiming& engine, const CapacityQuery& query);
/// Of engines that compute prompts only, and of those that decode only.
Capacity find_prefill_capacity(const EngineTiming& engine, const CapacityQuery& query);
Capacity find_decode_capacity(const EngineTiming& engine, const CapacityQuery& query);

}  // namespace stator::planner
