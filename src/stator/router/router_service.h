// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/router/router.h"

namespace stator::router {

/// Declares the router's settings.
void describe(ConfigSchema& schema, RouterConfig& config);

/// A Router shared by all shards of a process: a lock, a clock, metrics and the receipts around the
/// pure core. Thread-safe; a call holds the lock for the length of one decision (microseconds).
/// Events do not take that lock: the index has its own for those who write to it.
class RouterService {
 public:
  static Result<std::unique_ptr<RouterService>> create(const RouterConfig& config,
                                                       const Clock& clock, Metrics& metrics,
                                                       ReceiptLog& receipts);

  void add_worker(WorkerKey worker);
  void remove_worker(WorkerKey worker);
  void set_draining(WorkerKey worker, bool draining);
  void apply(WorkerKey worker, const kv::KvEvent& event);
  /// As Router::route; on success the receipt has been moved into the log.
  Result<Decision> route(const RouteRequest& request);
  int64_t active_requests() const;
  size_t worker_count() const;

 private:
  RouterService(std::unique_ptr<Router> router, KvIndex& index, const Clock& clock,
                Metrics& metrics, ReceiptLog& receipts);

  const Clock& clock_;
  ReceiptLog& receipts_;
  KvIndex& index_;  // an IndexService, the router's
  mutable Mutex mutex_;
  std::unique_ptr<Router> router_ STATOR_GUARDED_BY(mutex_);
  Counter decisions_;
  Counter refusals_;
  Counter overlap_blocks_;
  Counter prompt_blocks_;
};

}  // namespace stator::router
