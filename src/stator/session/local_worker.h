// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/ids.h"
#include "stator/core/metrics.h"
#include "stator/engine/api/engine.h"
#include "stator/kv_events/event_follower.h"
#include "stator/net/shard.h"
#include "stator/session/worker_session.h"

namespace stator::session {

/// An engine offered to frontend shards of the same process: WorkerServer without a wire.
///
///   LocalWorker worker(WorkerId(7), incarnation, *engine, metrics);
///   auto session = worker.open_session(shard_loop, events);
///   session->submit(std::move(request));
///
/// Thread-safe. Must outlive its sessions' use of the engine: destroying it closes them first, and
/// they report on_closed. `engine` and `metrics` outlive it.
class LocalWorker {
 public:
  LocalWorker(WorkerId worker, Incarnation incarnation, engine::Engine& engine, Metrics& metrics);
  LocalWorker(const LocalWorker&) = delete;
  LocalWorker& operator=(const LocalWorker&) = delete;
  ~LocalWorker();

  WorkerId worker() const;
  Incarnation incarnation() const;

  /// `shard` and `events` outlive the session. Called on the loop. After shutdown() the session
  /// closes at once with kUnavailable.
  std::unique_ptr<WorkerSession> open_session(net::Shard& shard, SessionEvents& events);
  /// The engine's KV events, delivered on `shard`.
  std::unique_ptr<kv_events::EventFollower> follow_events(net::Shard& shard,
                                                          kv_events::KvEventsListener& listener);

  /// Takes nothing new (kDraining) and tells every session; what runs goes on.
  void drain();
  /// Ends every session with on_closed(kDisconnected). Idempotent.
  void shutdown();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stator::session
