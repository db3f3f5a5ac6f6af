// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/planner/engine_timing.h"

namespace stator::planner {

/// A worker as a simulation of the next minutes begins with it. Seconds from now.
struct ModelWorker {
  double ready_s = 0;
  double busy_s = 0;    ///< until the prompts that wait are computed
  double running = 0;   ///< sequences that decode
  bool is_new = false;  ///< its cache is empty
};
struct ModelRequest {
  double at_s = 0;
  double input_tokens = 0;
  double output_tokens = 0;
};
struct ModelGoals {
  double ttft_ms = 0, itl_ms = 0, quantile = 0.95;
  double kv_hit_rate = 0;
  double max_num_batched_tokens = 8192;
};
struct ModelOutcome {
  double requests = 0, misses = 0;
  std::vector<float> ttft_ms, itl_ms;  ///< of each request
};

/// What a fleet does with requests, one event per request instead of one per pass: prompts of a
/// worker are computed one after another, answers share its steps, requests go to the better of
/// two workers (a router that follows caches does not balance better), caches of new workers fill
/// with their requests. Of the time that the step model
/// says; deterministic. O(requests · workers).
class FleetModel {
 public:
  explicit FleetModel(const EngineTiming& engine) : engine_(engine) {}
  /// Adds to `outcome`. `requests` are in the order of time.
  void run(std::span<const ModelWorker> workers, std::span<const ModelRequest> requests,
           const ModelGoals& goals, ModelOutcome& outcome);

 private:
  struct Worker {
    double ready = 0, free = 0;
    double kv_tokens = 0;
    double prompt_share = 0;  // of recent time that went into prompts, and when that was noted
    double share_at = 0;
    double served = 0;
    bool is_new = false;
    std::vector<std::pair<double, double>> ends;  // a heap: when, KV tokens
  };
  size_t choose(double now, uint64_t draw) const;
  void expire(Worker& worker, double now);
  void serve(Worker& worker, const ModelRequest& request, const ModelGoals& goals,
             ModelOutcome& outcome);

  const EngineTiming& engine_;
  std::vector<Worker> workers_;
};

}  // namespace stator::planner
