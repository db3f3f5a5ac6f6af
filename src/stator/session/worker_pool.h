// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/discovery/discovery.h"
#include "stator/kv_events/event_follower.h"
#include "stator/session/connector.h"
#include "stator/session/worker_session.h"

namespace stator::session {

/// Told which workers a shard can send to. On the shard's loop.
class WorkerPoolListener {
 public:
  virtual ~WorkerPoolListener() = default;
  /// The first look at discovery is complete: from now on "no worker" is a fact.
  virtual void on_synced() = 0;
  /// Connected and ready for requests.
  virtual void on_worker_added(const discovery::InstanceRecord& record) = 0;
  /// Its record changed: state, card.
  virtual void on_worker_updated(const discovery::InstanceRecord& record) = 0;
  /// No longer to be used. Comes after SessionEvents::on_closed if the connection broke.
  virtual void on_worker_removed(WorkerId worker) = 0;
};

struct WorkerPoolOptions {
  discovery::InstanceQuery query;
  /// Follow every worker's KV events with this; null: not here. One shard per process suffices.
  kv_events::KvEventsListener* kv_events = nullptr;
  /// Between attempts to reach a listed worker; doubles from the first to the last.
  Duration reconnect_min = std::chrono::milliseconds(50);
  Duration reconnect_max = std::chrono::seconds(5);
};

/// One frontend shard's workers: watches discovery, keeps one session to each.
///
///   listed ──connect──► connecting ──on_opened──► up ──on_closed──► down ──back-off──► connecting
///   removal from discovery: `up` stays up until its connection ends; any other state is forgotten.
///
/// P1  on_worker_added and on_worker_removed alternate per worker, starting with added.
/// P2  Losing discovery loses no live worker (static stability).
///
/// stator_runtime_pool_workers{state}: "active" is listed and up, "unlisted" up alone,
/// "unreachable" listed alone; who is neither is forgotten and counted
/// (stator_runtime_pool_workers_gone_total).
///
/// Request events go to `events` unchanged, so its on_closed is where in-flight requests fail over.
/// Home loop: the shard's, for every method and the destructor. All references outlive it.
class WorkerPool {
 public:
  struct Wiring {
    discovery::Discovery& discovery;
    Connector& connector;
    net::Shard& shard;
    WorkerPoolListener& listener;
    SessionEvents& events;
  };
  WorkerPool(WorkerPoolOptions options, Wiring wiring, Metrics& metrics);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  /// Closes every session and follower; no call follows.
  ~WorkerPool();

  /// The session to an added worker, null otherwise. Valid until on_worker_removed returns.
  WorkerSession* find_session(WorkerId worker);
  /// The record of a listed or connected worker, null otherwise.
  const discovery::InstanceRecord* find_record(WorkerId worker) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stator::session
