// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/pooling/pool_service.h"
#include "stator/frontend/worker_gauges.h"
#include "stator/net/shard.h"
#include "stator/request/worker_probes.h"
#include "stator/session/worker_pool.h"
#include "stator/session/worker_session.h"

namespace stator::frontend {

/// A shard's sessions to its workers, and what is known of their health: reports what became of
/// work, probes those that failed or are silent, and publishes who comes and goes to the catalog.
/// Home loop: the shard's, for every method.
class WorkerLines final : public session::WorkerPoolListener, public PoolHost {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// There is one more to send to.
    virtual void on_worker_joined() = 0;
    /// The worker is there, its engine is not: what it gave to others is not to be relied on.
    virtual void on_engine_lost(WorkerId worker) = 0;
  };
  struct Environment {
    const FrontendConfig& config;
    ModelCatalog& catalog;
    FleetService& fleet;
    FrontendMetrics& metrics;
    WorkerGauges* gauges;  ///< null: nobody looks
  };
  WorkerLines(net::Shard& shard, Environment environment, Random& random);

  void start(session::WorkerPoolOptions options, const session::WorkerPool::Wiring& wiring,
             Owner& owner, Metrics& metrics);
  /// Closes all sessions.
  void stop() { pool_.reset(); }

  session::WorkerSession* find_session(WorkerId worker) override {
    return pool_ == nullptr ? nullptr : pool_->find_session(worker);
  }
  const discovery::InstanceRecord* find_record(WorkerId worker) const {
    return pool_ == nullptr ? nullptr : pool_->find_record(worker);
  }
  RequestId next_request() override { return RequestId(++next_request_); }
  void cancel(WorkerId worker, inference::RequestKey key, session::CancelReason reason);

  void heard_from(WorkerId worker) { probes_.heard_from(worker, shard_.now()); }
  std::optional<TimePoint> last_heard(WorkerId worker) const { return probes_.last_heard(worker); }
  void report_outcome(WorkerId worker, WorkOutcome outcome) override;
  /// True if `request` is a probe.
  bool end_probe(RequestId request, bool good);
  /// Once a second or so.
  void probe(TimePoint now);

  void on_draining(WorkerId worker);
  /// Its session broke.
  void on_closed(WorkerId worker);
  void on_synced() override {}
  void on_worker_added(const discovery::InstanceRecord& record) override;
  void on_worker_updated(const discovery::InstanceRecord& record) override;
  void on_worker_removed(WorkerId worker) override;

 private:
  void apply(WorkerId worker, FleetService::Change change);
  void send_probe(WorkerId worker);

  net::Shard& shard_;
  const Environment environment_;
  Owner* owner_ = nullptr;
  uint64_t next_request_;
  request::WorkerProbes probes_;
  std::unique_ptr<session::WorkerPool> pool_;
};

}  // namespace stator::frontend
