// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/result.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/pooling/pool_body.h"
#include "stator/frontend/pooling/pool_plan.h"
#include "stator/inference/request.h"
#include "stator/inference/step_output.h"
#include "stator/net/compute_pool.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/router/load_lease.h"
#include "stator/session/worker_session.h"

namespace stator::frontend {

/// What a PoolService needs from its shard. On the loop.
class PoolHost {
 public:
  virtual ~PoolHost() = default;
  /// Null: this shard has no line to it.
  virtual session::WorkerSession* find_session(WorkerId worker) = 0;
  /// Of no other request of the shard's.
  virtual RequestId next_request() = 0;
  virtual void report_outcome(WorkerId worker, WorkOutcome outcome) = 0;
};

/// Runs a shard's pooling requests: every part goes to the worker with the least load, a part whose
/// worker refuses, fails or vanishes goes to another one, and the last answer completes the body.
/// Nothing is sent before that, so every failure has a real HTTP status.
///
/// P1  Every part of a run that is not answered is in `parts_` with a lease at its worker.
/// P2  A run ends once, by its body, an error, or its client; then its parts are cancelled.
/// P3  At most frontend.inflight_max runs; a run has at most `kPoolNumbersMax` numbers.
///
/// Home loop: the shard's, for every method.
class PoolService {
 public:
  struct Environment {
    const FrontendConfig& config;
    FrontendMetrics& metrics;
    net::ComputePool& compute;
  };
  PoolService(net::Shard& shard, Environment environment, PoolHost& host);
  PoolService(const PoolService&) = delete;
  PoolService& operator=(const PoolService&) = delete;
  ~PoolService();

  void run(net::HttpExchange& exchange, PoolPlan plan, TimePoint received);
  size_t active() const { return runs_.size(); }

  /// False: not one of ours.
  bool take(WorkerId worker, inference::Pooled pooled);
  bool lose(WorkerId worker, inference::RequestKey key, const Error& error);
  void lose_worker(WorkerId worker, const Error& error);
  /// Looks for parts that wait for too long and for bodies whose message was lost; once a second.
  void sweep();
  void stop(const Error& error);

 private:
  struct Run;
  struct Part {
    Run* run = nullptr;
    size_t index = 0;
    WorkerKey worker;
    router::LoadLease lease;
    TimePoint asked;
  };
  struct Writing;

  Status dispatch(Run& run, size_t index);
  void retry(Part part, const Error& error);
  void finish(Run& run);
  void on_written(Run* run);
  void respond(Run& run, api::ApiResult<PoolBody>& body);
  void fail(Run& run, Error error);
  void client_gone(Run& run);
  void end(Run& run, std::string_view error_type);

  net::Shard& shard_;
  const Environment environment_;
  PoolHost& host_;
  FlatMap<RequestId, Part> parts_;
  FlatMap<Run*, std::unique_ptr<Run>> runs_;
};

}  // namespace stator::frontend
