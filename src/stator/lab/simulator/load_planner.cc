// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/load_planner.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace stator::simulator {
namespace {

/// The largest number that was wanted in a stretch of time before now.
class RecentMost {
 public:
  explicit RecentMost(Duration window) : window_(window) {}

  uint32_t add(TimePoint now, uint32_t wanted) {
    // Who wanted no more, and earlier, will never be the largest again: numbers fall along the
    // list, so it has at most as many entries as there are numbers.
    while (!entries_.empty() && entries_.back().wanted <= wanted) {
      entries_.pop_back();
    }
    entries_.push_back({now, wanted});
    while (entries_.front().time + window_ < now) {
      entries_.pop_front();
    }
    return entries_.front().wanted;
  }

 private:
  struct Entry {
    TimePoint time{};
    uint32_t wanted = 0;
  };
  const Duration window_;
  std::deque<Entry> entries_;
};

class LoadPlanner final : public Planner {
 public:
  explicit LoadPlanner(const LoadPlannerConfig& config)
      : config_(config), prefill_(config.down_after), decode_(config.down_after) {}

  std::optional<TimePoint> first() const override { return TimePoint(config_.interval); }

  ScalingDecision decide(const FleetView& fleet) override {
    ScalingDecision decision{
        .prefill_workers = {}, .workers = {}, .next = fleet.now + config_.interval};
    decision.workers = decode_.add(fleet.now, wanted(fleet.decode, config_.requests_per_worker));
    if (fleet.prefill.ready + fleet.prefill.starting > 0) {
      decision.prefill_workers =
          prefill_.add(fleet.now, wanted(fleet.prefill, config_.requests_per_prefill_worker));
    }
    return decision;
  }

 private:
  uint32_t wanted(const PoolView& pool, double requests_per_worker) const {
    const auto requests = static_cast<double>(pool.queued + pool.waiting + pool.running);
    const double by_requests = requests / requests_per_worker;
    const double by_kv = pool.kv_use * (pool.ready + pool.draining) / config_.kv_use;
    const double most =
        std::min<double>(std::ceil(std::max(by_requests, by_kv)), config_.workers_max);
    return std::max(static_cast<uint32_t>(most), config_.workers_min);
  }

  const LoadPlannerConfig config_;
  RecentMost prefill_;
  RecentMost decode_;
};

}  // namespace

Result<std::unique_ptr<Planner>> make_load_planner(const LoadPlannerConfig& config) {
  const bool makes_sense = config.interval > Duration::zero() && config.requests_per_worker > 0 &&
                           config.requests_per_prefill_worker > 0 && config.kv_use > 0 &&
                           config.down_after >= Duration::zero() && config.workers_min > 0;
  if (!makes_sense || config.workers_min > config.workers_max) {
    return Error(Code::kInvalidArgument,
                 "a planner needs an interval, requests per worker and a KV use above 0, and at "
                 "least 1 worker, at most --planner-workers-max");
  }
  return std::make_unique<LoadPlanner>(config);
}

}  // namespace stator::simulator
