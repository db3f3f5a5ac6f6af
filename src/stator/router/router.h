// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/kv/event.h"
#include "stator/router/index/index_config.h"
#include "stator/router/kv_index.h"
#include "stator/router/load_lease.h"
#include "stator/router/policy.h"
#include "stator/router/receipt.h"

namespace stator::router {

struct RouterConfig {
  std::string mode = "kv";
  CostConfig cost;
  IndexConfig index;
};

/// What the router needs to know about one request.
struct RouteRequest {
  std::string_view request_id;
  std::string_view model;
  uint32_t prompt_tokens = 0;
  uint32_t block_size = 16;
  std::span<const blocks::SequenceHash> sequences;  ///< of the prompt's full blocks
  std::optional<WorkerId> pinned;                   ///< only this worker will do
  std::span<const WorkerKey> excluded;              ///< tried already
};

/// The chosen worker with its load already booked.
struct Decision {
  WorkerKey worker;
  uint32_t overlap_blocks = 0;
  LoadLease lease;
  Receipt receipt;
};

/// Routes the requests of one model to its workers. A pure core: no I/O, lock or clock; one thread
/// at a time (RouterService puts a lock around it). Leases may outlive it and end on any thread.
///
///   router.add_worker(key);  router.apply(key, event);
///   STATOR_TRY(Decision decision, router.route(request, wall_now));
///   // decision.lease now lives in the response stream
class Router {
 public:
  /// kInvalidArgument for an unknown mode or a weight that is not a finite number. Without an index
  /// the router makes itself one that follows events.
  static Result<std::unique_ptr<Router>> create(const RouterConfig& config, Random random,
                                                std::unique_ptr<KvIndex> index = nullptr);

  void add_worker(WorkerKey worker);
  /// Forgets the worker and its blocks; leases that are alive end harmlessly.
  void remove_worker(WorkerKey worker);
  /// A draining worker gets nothing new but keeps its index entries.
  void set_draining(WorkerKey worker, bool draining);
  Applied apply(WorkerKey worker, const kv::KvEvent& event);

  /// kUnavailable: no worker at all, all are draining or were tried; kNotFound: the pinned worker
  /// is not there; kInvalidArgument: mode `direct` without a pin. Books before it answers.
  Result<Decision> route(const RouteRequest& request, WallTime now);

  size_t worker_count() const { return workers_.size(); }
  const KvIndex& index() const { return *index_; }
  /// Sum over all workers of requests booked by live leases; 0 when idle.
  int64_t active_requests() const;
  std::string_view mode() const { return policy_->name(); }

 private:
  struct Worker {
    WorkerKey key;
    std::shared_ptr<WorkerLoad> load;  // shared with leases, see LoadLease
    bool draining = false;
  };

  Router(std::unique_ptr<Policy> policy, const CostConfig& cost, Random random,
         std::unique_ptr<KvIndex> index);
  Worker* find(WorkerKey worker);
  std::vector<ReceiptCandidate> make_candidates(const RouteRequest& request) const;
  Error nobody(const RouteRequest& request) const;

  std::unique_ptr<Policy> policy_;
  CostConfig cost_;
  Random random_;
  std::unique_ptr<KvIndex> index_;
  std::vector<Worker> workers_;
};

}  // namespace stator::router
