// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/sim/sim_core.h"

namespace stator::engine {

/// The production scheduler on virtual time, pass by pass and token by token: whatever rule or
/// feature it has is simulated as it runs behind a live worker. Slower than SimScheduler, which
/// does the same for vLLM's and TensorRT-LLM's rules without looking at tokens. O(tokens).
class TokenSimCore final : public SimCore {
 public:
  TokenSimCore(const SimEngineConfig& config, const perf::TimingModel& timing);

  void submit(SimRequest request) override;
  bool busy() const override { return busy_; }
  bool has_work() const override { return !inbox_.empty() || !scheduler_.idle(); }
  TimePoint start(TimePoint now) override;
  TimePoint interrupt(TimePoint) override { return outcome_.end; }
  void list_ends(std::vector<TimePoint>& ends) const override { ends.push_back(outcome_.end); }
  void keep_pace(std::span<const TimePoint> ends) override { outcome_.end = ends.front(); }
  void finish(SimOutcome& outcome) override;
  Load load() const override;
  void fail(TimePoint now, SimOutcome& outcome, std::vector<Lost>& lost) override;

 private:
  struct Answer {
    uint64_t seed = 0;
    uint32_t prompt_tokens = 0;
    uint32_t tokens = 0;
    TimePoint last_token{};
  };

  bool fits(const SimRequest& request) const;
  void enqueue(const SimRequest& request, TimePoint now);
  void sample(const Sequence& sequence, bool decodes, Sampled& out) const;
  void tell(const inference::Delta& delta);

  SimEngineConfig config_;
  const perf::TimingModel& timing_;
  Scheduler scheduler_;
  std::vector<SimRequest> inbox_;  // until the next pass
  FlatMap<uint32_t, Answer> answers_;
  std::vector<Sampled> sampled_;  // scratch
  SimOutcome outcome_;
  uint64_t preemptions_ = 0;
  uint64_t offloaded_ = 0;
  bool busy_ = false;
  bool computes_ = false;  // in the pass under way
};

}  // namespace stator::engine
