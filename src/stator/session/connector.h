// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/instance_record.h"
#include "stator/kv_events/event_follower.h"
#include "stator/net/shard.h"
#include "stator/net/tls_files.h"
#include "stator/session/local_worker.h"
#include "stator/session/worker_session.h"

namespace stator::session {

/// How a frontend shard reaches the worker behind a discovery record. Thread-safe.
class Connector {
 public:
  virtual ~Connector() = default;
  /// Never fails: a worker that cannot be reached closes the session (kUnavailable) later. `shard`
  /// and `events` outlive the session. Called on the loop.
  virtual std::unique_ptr<WorkerSession> open_session(const discovery::InstanceRecord& record,
                                                      net::Shard& shard, SessionEvents& events) = 0;
  virtual std::unique_ptr<kv_events::EventFollower> follow_events(
      const discovery::InstanceRecord& record, net::Shard& shard,
      kv_events::KvEventsListener& listener) = 0;
};

struct GrpcOptions {
  std::optional<net::TlsFiles> tls;
  std::string client_name = "frontend";  ///< for the worker's log
  /// Requests waiting to be sent to one worker, in bytes; beyond it submit is answered kOverloaded.
  size_t send_queue_bytes_max = size_t{64} * 1024 * 1024;
  Duration connect_deadline = std::chrono::seconds(3);  ///< until Welcome
  Duration keepalive_interval = std::chrono::seconds(5);
  Duration keepalive_timeout = std::chrono::seconds(10);
};

/// Over gRPC, to `record.address`. kIo when a TLS file cannot be read. `metrics` outlives the
/// result and all it made. Destroy it after its sessions and followers.
Result<std::unique_ptr<Connector>> make_grpc_connector(GrpcOptions options, Metrics& metrics);

/// To workers of this process directly, to all others through `remote` (may be null: then they are
/// unavailable). Workers are found by worker id; they outlive the connector.
class LocalConnector final : public Connector {
 public:
  LocalConnector(std::vector<LocalWorker*> workers, std::unique_ptr<Connector> remote,
                 Metrics& metrics);
  ~LocalConnector() override;
  std::unique_ptr<WorkerSession> open_session(const discovery::InstanceRecord& record,
                                              net::Shard& shard, SessionEvents& events) override;
  std::unique_ptr<kv_events::EventFollower> follow_events(
      const discovery::InstanceRecord& record, net::Shard& shard,
      kv_events::KvEventsListener& listener) override;

 private:
  std::vector<LocalWorker*> workers_;
  std::unique_ptr<Connector> remote_;
  Metrics& metrics_;
};

}  // namespace stator::session
