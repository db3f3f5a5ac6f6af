// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_ranks.h"

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::engine {

SimRanks::SimRanks(const SimEngineConfig& config, const perf::TimingModel& timing,
                   SimPasses passes) {
  for (uint32_t rank = 0; rank < config.dp_size; ++rank) {
    ranks_.push_back(make_sim_core(config, timing, passes));
  }
}

bool SimRanks::busy() const {
  return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->busy(); });
}

bool SimRanks::has_work() const {
  return std::ranges::any_of(ranks_, [](const auto& rank) { return rank->has_work(); });
}

TimePoint SimRanks::start(TimePoint now) {
  if (ranks_.size() == 1) {
    return ranks_.front()->start(now);
  }
  lengths_.clear();
  bool first = true;
  for (const auto& rank : ranks_) {
    if (!rank->has_work()) {
      continue;
    }
    rank->start(now);
    ends_.clear();
    rank->list_ends(ends_);
    const size_t passes = first ? ends_.size() : std::min(lengths_.size(), ends_.size());
    lengths_.resize(passes);
    for (size_t pass = 0; pass < passes; ++pass) {
      const Duration length = ends_[pass] - (pass == 0 ? now : ends_[pass - 1]);
      lengths_[pass] = std::max(lengths_[pass], length);
    }
    first = false;
  }
  ends_.clear();
  for (const Duration length : lengths_) {
    ends_.push_back((ends_.empty() ? now : ends_.back()) + length);
  }
  keep_pace();
  return ends_.back();
}

TimePoint SimRanks::interrupt(TimePoint now) {
  if (ranks_.size() == 1) {
    return ranks_.front()->interrupt(now);
  }
  const auto present = std::ranges::lower_bound(ends_, now);
  STATOR_ASSERT(present != ends_.end(), "only passes under way are interrupted");
  ends_.erase(present + 1, ends_.end());
  keep_pace();
  return ends_.back();
}

void SimRanks::keep_pace() {
  for (const auto& rank : ranks_) {
    if (rank->busy()) {
      rank->keep_pace(ends_);
    }
  }
}

void SimRanks::finish(uint32_t rank, SimOutcome& outcome) {
  if (ranks_[rank]->busy()) {
    ranks_[rank]->finish(outcome);
  } else {
    STATOR_ASSERT(!ends_.empty(), "what was started is finished");
    outcome.clear();
    outcome.start = outcome.end = ends_.back();
    outcome.dummy_passes = ends_.size();
  }
  if (rank + 1 == ranks_.size()) {
    ends_.clear();
  }
}

SimCore::Load SimRanks::load() const {
  SimCore::Load sum;
  for (const auto& rank : ranks_) {
    const SimCore::Load load = rank->load();
    sum.waiting += load.waiting;
    sum.running += load.running;
    sum.blocks_in_use += load.blocks_in_use;
  }
  return sum;
}

void SimRanks::fail(uint32_t rank, TimePoint now, SimOutcome& outcome,
                    std::vector<SimCore::Lost>& lost) {
  const bool waits = !ends_.empty() && !ranks_[rank]->busy();
  ranks_[rank]->fail(now, outcome, lost);
  if (waits) {
    outcome.dummy_passes =
        static_cast<uint64_t>(std::ranges::upper_bound(ends_, now) - ends_.begin());
  }
}

}  // namespace stator::engine
