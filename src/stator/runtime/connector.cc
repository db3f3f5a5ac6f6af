// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/connector.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "stator/runtime/detail/call_reaper.h"
#include "stator/runtime/detail/credentials.h"
#include "stator/runtime/detail/grpc_follower.h"
#include "stator/runtime/detail/grpc_session.h"
#include "stator/runtime/detail/session_core.h"
#include "stator/runtime/wire.h"

namespace stator::runtime {
namespace {

int milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

class GrpcConnector final : public Connector {
 public:
  GrpcConnector(GrpcOptions options, std::shared_ptr<const net::ClientTls> tls,
                std::shared_ptr<grpc::ChannelCredentials> credentials, Metrics& metrics)
      : options_(std::move(options)),
        tls_(std::move(tls)),
        credentials_(std::move(credentials)),
        metrics_(metrics),
        event_reconnects_(metrics.counter("stator_runtime_event_reconnects_total",
                                          "KV event streams opened again")) {}

  std::unique_ptr<WorkerSession> open_session(const InstanceRecord& record, net::Shard& shard,
                                              SessionEvents& events) override {
    return detail::open_grpc_session(
        {record.key.worker, record.incarnation, record.address, options_, tls_, metrics_}, shard,
        events);
  }

  std::unique_ptr<EventFollower> follow_events(const InstanceRecord& record, net::Shard& shard,
                                               KvEventsListener& listener) override {
    return detail::open_grpc_follower(
        {record.key.worker, [this, address = record.address] { return connect(address); },
         event_reconnects_, metrics_.rejected_messages, reaper_},
        shard, listener);
  }

 private:
  // A channel of its own per stream: streams do not share a socket, and a fresh channel has no
  // memory of earlier failures.
  std::shared_ptr<grpc::Channel> connect(const std::string& address) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options_.keepalive_interval));
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds(options_.keepalive_timeout));
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(static_cast<int>(wire::kMessageBytesMax));
    arguments.SetMaxSendMessageSize(static_cast<int>(wire::kMessageBytesMax));
    if (options_.tls && !options_.tls->server_name.empty()) {
      arguments.SetSslTargetNameOverride(options_.tls->server_name);
    }
    return grpc::CreateCustomChannel(address, credentials_, arguments);
  }

  const GrpcOptions options_;
  const std::shared_ptr<const net::ClientTls> tls_;              // of sessions
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;  // of followers
  const detail::SessionMetrics metrics_;
  const Counter event_reconnects_;
  detail::CallReaper reaper_;  // first to go: it waits for streams that use the metrics
};

/// To a worker that cannot be reached: closes at once, on the loop.
class UnreachableSession final : public WorkerSession {
 public:
  UnreachableSession(const InstanceRecord& record, net::Shard& shard, SessionEvents& events,
                     const detail::SessionMetrics& metrics)
      : core_(std::make_shared<detail::SessionCore>(record.key.worker, shard, events, metrics)) {
    core_->push(detail::SessionClosed{Error(
        Code::kUnavailable,
        "worker " + record.key.to_string() + " is not in this process and has no connector")});
  }
  UnreachableSession(const UnreachableSession&) = delete;
  UnreachableSession& operator=(const UnreachableSession&) = delete;
  ~UnreachableSession() override { close(); }
  WorkerId worker() const override { return core_->worker(); }
  void submit(engine::EngineRequest request) override {
    if (core_->open()) {
      core_->begin(request.key);  // on_closed covers it
    }
  }
  void cancel(engine::RequestKey key, CancelReason /*reason*/) override { core_->forget(key); }
  void close() override { core_->close(); }

 private:
  const std::shared_ptr<detail::SessionCore> core_;
};

class SilentFollower final : public EventFollower {
 public:
  uint64_t last_id() const override { return 0; }
};

LocalWorker* find_local(const std::vector<LocalWorker*>& workers, WorkerId id) {
  const auto found = std::ranges::find(workers, id, &LocalWorker::worker);
  return found == workers.end() ? nullptr : *found;
}

}  // namespace

Result<std::unique_ptr<Connector>> make_grpc_connector(GrpcOptions options, Metrics& metrics) {
  STATOR_TRY(auto credentials, detail::channel_credentials(options.tls));
  std::shared_ptr<const net::ClientTls> tls;
  if (options.tls) {
    STATOR_TRY(tls,
               net::ClientTls::load(options.tls->certificate, options.tls->key, options.tls->ca));
  }
  return std::make_unique<GrpcConnector>(std::move(options), std::move(tls), std::move(credentials),
                                         metrics);
}

LocalConnector::LocalConnector(std::vector<LocalWorker*> workers, std::unique_ptr<Connector> remote,
                               Metrics& metrics)
    : workers_(std::move(workers)), remote_(std::move(remote)), metrics_(metrics) {}

LocalConnector::~LocalConnector() = default;

std::unique_ptr<WorkerSession> LocalConnector::open_session(const InstanceRecord& record,
                                                            net::Shard& shard,
                                                            SessionEvents& events) {
  if (LocalWorker* local = find_local(workers_, record.key.worker)) {
    return local->open_session(shard, events);
  }
  if (remote_ != nullptr) {
    return remote_->open_session(record, shard, events);
  }
  return std::make_unique<UnreachableSession>(record, shard, events,
                                              detail::SessionMetrics(metrics_));
}

std::unique_ptr<EventFollower> LocalConnector::follow_events(const InstanceRecord& record,
                                                             net::Shard& shard,
                                                             KvEventsListener& listener) {
  if (LocalWorker* local = find_local(workers_, record.key.worker)) {
    return local->follow_events(shard, listener);
  }
  if (remote_ != nullptr) {
    return remote_->follow_events(record, shard, listener);
  }
  return std::make_unique<SilentFollower>();
}

}  // namespace stator::runtime
