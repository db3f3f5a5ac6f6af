// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/instance_record.h"
#include "stator/engine/api/engine.h"
#include "stator/net/byte_budget.h"
#include "stator/net/tls_files.h"
#include "stator/session/operator_wish.h"

namespace stator::session {

struct WorkerServerOptions {
  std::string listen_host = "127.0.0.1";
  uint16_t port = 0;  ///< 0: any free one; see WorkerServer::port()
  std::optional<net::TlsFiles> tls;
  /// Output waiting for one slow session, in bytes of tokens and log-probabilities. Beyond it the
  /// session's requests are cancelled with kOverloaded failures.
  size_t session_queue_bytes_max = size_t{8} * 1024 * 1024;
  /// A further one takes the place of a client that has several (detail/crowder.h), or is refused
  /// with RESOURCE_EXHAUSTED. Counted from the Hello on.
  uint32_t sessions_max = 1024;
  uint32_t event_streams_max = 256;  ///< the same for Events
  /// Of the process, for what is held of messages that have not come whole; null: of this server.
  std::shared_ptr<net::ByteBudget> message_budget = nullptr;
  Duration load_interval = std::chrono::milliseconds(100);  ///< between two load reports at least
  /// What operators ask of the engine, through a frontend; on the server's loop, so that it shall
  /// not take long there. Nothing: such calls are answered with 501.
  OperatorHandler on_wish = nullptr;
};

/// Hosts an engine behind the stator.worker.v1 gRPC service.
///
/// The engine's thread writes small steps to the sockets itself, as far as they take them, and no
/// more often than WritePace says; the rest is a loop's work, so neither a slow client nor many of
/// them slow the engine. While a session's previous message is on its way, steps merge into the
/// next one.
///
///   STATOR_TRY(auto server, WorkerServer::start(record, *engine, {}, clock, metrics));
///   record.address = server->address();   // and publish it
///
/// Thread-safe, but shut down and destroyed by one thread. `engine`, `clock` and `metrics` outlive
/// it; the destructor shuts down.
class WorkerServer {
 public:
  /// `record` names the worker (key.worker, incarnation) and is what Describe tells, with the
  /// address filled in. kIo when the address cannot be bound or a TLS file cannot be read.
  static Result<std::unique_ptr<WorkerServer>> start(discovery::InstanceRecord record,
                                                     engine::Engine& engine,
                                                     WorkerServerOptions options,
                                                     const Clock& clock, Metrics& metrics);
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;
  ~WorkerServer();

  uint16_t port() const;
  /// "listen_host:port".
  std::string address() const;

  /// The worker's record as it is now: with its address, other adapters, another state. Describe
  /// tells it from then on.
  void update(const discovery::InstanceRecord& record);
  /// Takes nothing new (kDraining) and tells every session; what runs goes on. Idempotent.
  void drain();
  /// Requests accepted and not ended.
  size_t in_flight() const;
  /// Messages that sessions have still to send, those under way included. With the engine stopped:
  /// 0 means that every frontend has been sent its last word.
  size_t unsent() const;
  /// Ends all sessions and event streams and stops listening. Returns when no engine session is
  /// left. Idempotent.
  void shutdown();

 private:
  class Impl;

 public:  // for make_unique; Impl is private, so nobody else can call it
  explicit WorkerServer(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace stator::session
