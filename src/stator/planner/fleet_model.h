// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "stator/planner/engine_timing.h"

namespace stator::planner {

/// A worker as a simulation of the next minutes begins with it. Seconds from now.
struct ModelWorker {
  double ready_s = 0;
  double queued_tokens = 0;  ///< of prompts that wait, what is not cached
  double running = 0;        ///< sequences that decode
  double kv_tokens = 0;      ///< of those
  bool is_new = false;       ///< its cache is empty
};
struct ModelRequest {
  double at_s = 0;
  double input_tokens = 0;
  double output_tokens = 0;
  double cached_tokens = 0;  ///< of the prompt, at a worker whose cache is warm
};
struct ModelGoals {
  double ttft_ms = 0, itl_ms = 0;
  double max_num_batched_tokens = 8192, max_num_seqs = 256;
  double from_s = 0;           ///< requests before that are simulated, not counted
  double output_residual = 0;  ///< tokens that a running sequence still has to answer, mean
};
struct ModelOutcome {
  double requests = 0, misses = 0;
  std::vector<float> ttft_ms, itl_ms;  ///< of each request that counts
};

/// What a fleet does with requests: engines that share passes between prompts in chunks and
/// sequences that decode, pass by pass while a prompt is there and many passes at once while none
/// is. Requests go to the soonest ready of some workers: a router that follows caches does not
/// balance as well as one that compares all. Caches of new workers fill with their requests. Of the
/// time that the step model says; deterministic. O(passes with prompts + sequences · log).
class FleetModel {
 public:
  explicit FleetModel(const EngineTiming& engine) : engine_(engine) {}
  /// Adds to `outcome`. `requests` are in the order of time.
  void run(std::span<const ModelWorker> workers, std::span<const ModelRequest> requests,
           const ModelGoals& goals, ModelOutcome& outcome);

  // The same step by step, for a fleet whose size changes. Times never go back.

  /// Forgets everything; `outcome` outlives what follows.
  void begin(std::span<const ModelWorker> workers, const ModelGoals& goals, ModelOutcome& outcome);
  void submit(const ModelRequest& request);
  void advance(double until_s);
  /// A worker that takes requests from `ready_s` on.
  void add_worker(double now_s, double ready_s);
  /// The worker that was added last takes no more requests; when it will have ended its own.
  double remove_worker(double now_s);
  /// What each worker has to do now.
  std::vector<ModelWorker> workers() const;

 private:
  struct Prompt {
    double at_s = 0, left_tokens = 0, input_tokens = 0, output_tokens = 0;
    bool counts = false, begun = false;
  };
  struct Sequence {
    uint64_t end_step = 0;
    double first_s = 0, at_s = 0, kv_tokens = 0, output_tokens = 0;
    bool counts = false;
    bool operator>(const Sequence& other) const { return end_step > other.end_step; }
  };
  struct Worker {
    double now_s = 0, ready_s = 0;
    double kv_tokens = 0, queued_tokens = 0, served = 0;
    uint64_t steps = 0;
    bool is_new = false;
    size_t head = 0;
    std::vector<Prompt> prompts;      // from head on: those that wait, in their order
    std::vector<Sequence> sequences;  // a heap: who ends first
    bool waits() const { return head < prompts.size(); }
  };
  void begin(const ModelWorker& from, Worker& worker) const;
  void advance(Worker& worker, double until_s);
  void finish(Worker& worker);
  void pass(Worker& worker);
  void decode(Worker& worker, double until_s);
  void join(Worker& worker, const Prompt& prompt);
  void end_sequences(Worker& worker);
  void count(const Sequence& sequence, double last_s);
  double delay_s(const Worker& worker, double now_s) const;
  Worker& choose(double now_s, uint64_t draw);

  const EngineTiming& engine_;
  std::vector<Worker> workers_;
  ModelGoals goals_;
  ModelOutcome* outcome_ = nullptr;
  uint64_t index_ = 0;  // of the last request
};

}  // namespace stator::planner
