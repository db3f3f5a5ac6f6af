// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stator/engine/sim/sim_core.h"

namespace stator::engine {

/// The data-parallel attention ranks of one simulated engine: each has a scheduler and a KV cache
/// of its own, but their layers of experts are computed together, so all ranks begin a pass
/// together and it lasts as long as the slowest one's. A rank without work runs a dummy pass.
/// A pure state machine, driven like a SimCore; one rank is the core itself.
///
/// R1  Between start() and finish(), every rank that is busy has the same passes under way, which
///     end at ends_.
/// R2  A request that comes while passes are under way waits for the end of the present one,
///     whatever rank it is for.
class SimRanks {
 public:
  /// Of `config.dp_size` ranks. `timing` outlives them.
  SimRanks(const SimEngineConfig& config, const perf::TimingModel& timing, SimPasses passes);

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  void submit(uint32_t rank, SimRequest request) { ranks_[rank]->submit(std::move(request)); }
  bool busy() const;
  bool has_work() const;
  /// As SimCore's.
  TimePoint start(TimePoint now);
  TimePoint interrupt(TimePoint now);
  /// Of one rank, to be called for all of them in order. One that had nothing to do has no passes.
  void finish(uint32_t rank, SimOutcome& outcome);
  /// Sum over all ranks.
  SimCore::Load load() const;
  void fail(uint32_t rank, TimePoint now, SimOutcome& outcome, std::vector<SimCore::Lost>& lost);

 private:
  void keep_pace();

  std::vector<std::unique_ptr<SimCore>> ranks_;
  std::vector<TimePoint> ends_;    // of the passes under way; only kept of several ranks
  std::vector<Duration> lengths_;  // scratch
};

}  // namespace stator::engine
