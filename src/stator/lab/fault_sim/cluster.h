// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/lab/fault_sim/fault_plan.h"
#include "stator/lab/fault_sim/frontend_node.h"
#include "stator/lab/fault_sim/run_log.h"
#include "stator/lab/fault_sim/virtual_worker.h"

namespace stator::fault_sim {

/// A machine's clocks, which may be wrong.
class SkewedClock final : public Clock {
 public:
  explicit SkewedClock(const Clock& base) : base_(base) {}
  TimePoint now() const override {
    return anchor_ + Duration(static_cast<int64_t>(
                         static_cast<double>((base_.now() - since_).count()) * rate_));
  }
  WallTime wall_now() const override { return base_.wall_now() + step_; }
  /// The wall clock jumps, the monotonic one runs at another rate from now on.
  void skew(Duration step, double rate) {
    anchor_ = now();
    since_ = base_.now();
    step_ = step;
    rate_ = rate;
  }

 private:
  const Clock& base_;
  TimePoint anchor_{};
  TimePoint since_{};
  Duration step_{};
  double rate_ = 1;
};

/// The machines of a run, and what is done to them. Requests are not its business.
class Cluster {
 public:
  struct Parts {
    const Plan& plan;
    std::shared_ptr<const frontend::ModelAssets> assets;
    bool impostor = false;  ///< the last worker runs another model
  };
  Cluster(Parts parts, net::VirtualTime& time, RunLog& log, Random& random);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster();

  /// Begins it now; it ends by itself.
  void apply(const PlannedFault& fault);
  /// Null while it is dead.
  FrontendNode* frontend(uint32_t index) { return frontends_[index].life.get(); }
  uint32_t frontend_count() const { return static_cast<uint32_t>(frontends_.size()); }
  /// Told before a frontend dies.
  void on_frontend_death(std::function<void(FrontendNode&)> told) { dying_ = std::move(told); }

  /// No worker has a request, not even a probe.
  bool workers_idle();
  /// Invariants of a cluster at rest.
  void check_rest();
  uint64_t moves() const { return moves_; }
  uint64_t stale() const { return stale_; }
  uint64_t resumed() const { return resumed_; }
  uint64_t queued() const { return queued_; }
  /// What routers heard of each other.
  const router::ReplicaView::Counts& heard() const { return heard_; }
  uint64_t messages() const { return network_.messages(); }

 private:
  struct FrontendSlot {
    NodeId node = 0;
    uint64_t lives = 0;
    std::unique_ptr<FrontendNode> life;
  };
  struct WorkerSlot {
    NodeId node = 0;
    uint64_t lives = 0;
    std::unique_ptr<SkewedClock> clock;
    std::unique_ptr<Metrics> metrics;
    std::unique_ptr<VirtualWorker> life;
    std::unique_ptr<VirtualRegistration> registration;
    bool leaving = false;
  };

  void start_frontend(uint32_t index);
  void stop_frontend(uint32_t index);
  void start_worker(uint32_t index);
  void bury_worker(uint32_t index, Duration until_next);
  void drain_worker(uint32_t index, Duration lasts);
  void block(const PlannedFault& fault);
  void spoil(const PlannedFault& fault);
  void disturb_store(const PlannedFault& fault);
  void hang(const PlannedFault& fault);
  void slow_down(const PlannedFault& fault);
  void confuse_replicas(const PlannedFault& fault);
  void lose_events(const PlannedFault& fault);
  VirtualPlane* plane() { return parts_.plan.event_plane ? &plane_ : nullptr; }
  void count(FrontendNode& frontend);
  void check_frontend_rest(uint32_t index, const std::vector<WorkerId>& alive, uint64_t blocks);
  void later(Duration delay, std::function<void()> task);
  discovery::ModelCard make_card() const;
  engine::EngineConfig make_engine() const;

  const Parts parts_;
  net::VirtualTime& time_;
  RunLog& log_;
  Random& random_;
  VirtualNetwork network_;
  VirtualStore store_;
  VirtualJournals journals_;
  VirtualReplicas replicas_;
  VirtualPlane plane_;
  FrontendNode::Settings settings_;
  std::vector<FrontendSlot> frontends_;
  std::vector<WorkerSlot> workers_;
  std::function<void(FrontendNode&)> dying_;
  uint64_t moves_ = 0;
  uint64_t stale_ = 0;
  uint64_t resumed_ = 0;
  uint64_t queued_ = 0;
  router::ReplicaView::Counts heard_;
};

}  // namespace stator::fault_sim
