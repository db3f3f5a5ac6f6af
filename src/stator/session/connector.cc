// SPDX-License-Identifier: Apache-2.0
#include "stator/session/connector.h"

#include <algorithm>
#include <utility>

#include "stator/net/grpc_callers.h"
#include "stator/session/detail/grpc_follower.h"
#include "stator/session/detail/grpc_session.h"
#include "stator/session/session_inbox.h"

namespace stator::session {
namespace {

class GrpcConnector final : public Connector {
 public:
  GrpcConnector(GrpcOptions options, std::shared_ptr<const net::ClientTls> tls, Metrics& metrics)
      : options_(std::move(options)),
        tls_(std::move(tls)),
        metrics_(metrics),
        event_reconnects_(metrics.counter("stator_runtime_event_reconnects_total",
                                          "KV event streams opened again")) {}

  std::unique_ptr<WorkerSession> open_session(const discovery::InstanceRecord& record,
                                              net::Shard& shard, SessionEvents& events) override {
    return detail::open_grpc_session(
        {record.key.worker, record.incarnation, record.address, options_, tls_, metrics_}, shard,
        events);
  }

  std::unique_ptr<kv_events::EventFollower> follow_events(
      const discovery::InstanceRecord& record, net::Shard& shard,
      kv_events::KvEventsListener& listener) override {
    return detail::open_grpc_follower({record.key.worker, record.address, options_, tls_,
                                       event_reconnects_, metrics_.rejected_messages},
                                      shard, listener);
  }

 private:
  const GrpcOptions options_;
  const std::shared_ptr<const net::ClientTls> tls_;  // shared with sessions and followers
  const SessionMetrics metrics_;
  const Counter event_reconnects_;
};

/// To a worker that cannot be reached: closes at once, on the loop.
class UnreachableSession final : public WorkerSession {
 public:
  UnreachableSession(const discovery::InstanceRecord& record, net::Shard& shard,
                     SessionEvents& events, const SessionMetrics& metrics)
      : inbox_(std::make_shared<SessionInbox>(record.key.worker, shard, events, metrics)) {
    inbox_->push(SessionClosed{Error(
        Code::kUnavailable,
        "worker " + record.key.to_string() + " is not in this process and has no connector")});
  }
  UnreachableSession(const UnreachableSession&) = delete;
  UnreachableSession& operator=(const UnreachableSession&) = delete;
  ~UnreachableSession() override { close(); }
  WorkerId worker() const override { return inbox_->requests().worker(); }
  void submit(inference::EngineRequest request) override {
    if (inbox_->requests().open()) {
      inbox_->requests().begin(request.key);  // on_closed covers it
    }
  }
  void cancel(inference::RequestKey key, CancelReason /*reason*/) override {
    inbox_->requests().forget(key);
  }
  void close() override { inbox_->close(); }

 private:
  const std::shared_ptr<SessionInbox> inbox_;
};

class SilentFollower final : public kv_events::EventFollower {
 public:
  uint64_t last_id() const override { return 0; }
};

LocalWorker* find_local(const std::vector<LocalWorker*>& workers, WorkerId id) {
  const auto found = std::ranges::find(workers, id, &LocalWorker::worker);
  return found == workers.end() ? nullptr : *found;
}

}  // namespace

Result<std::unique_ptr<Connector>> make_grpc_connector(GrpcOptions options, Metrics& metrics) {
  STATOR_TRY(auto tls, net::load_client_tls(options.tls));
  return std::make_unique<GrpcConnector>(std::move(options), std::move(tls), metrics);
}

LocalConnector::LocalConnector(std::vector<LocalWorker*> workers, std::unique_ptr<Connector> remote,
                               Metrics& metrics)
    : workers_(std::move(workers)), remote_(std::move(remote)), metrics_(metrics) {}

LocalConnector::~LocalConnector() = default;

std::unique_ptr<WorkerSession> LocalConnector::open_session(const discovery::InstanceRecord& record,
                                                            net::Shard& shard,
                                                            SessionEvents& events) {
  if (LocalWorker* local = find_local(workers_, record.key.worker)) {
    return local->open_session(shard, events);
  }
  if (remote_ != nullptr) {
    return remote_->open_session(record, shard, events);
  }
  return std::make_unique<UnreachableSession>(record, shard, events, SessionMetrics(metrics_));
}

std::unique_ptr<kv_events::EventFollower> LocalConnector::follow_events(
    const discovery::InstanceRecord& record, net::Shard& shard,
    kv_events::KvEventsListener& listener) {
  if (LocalWorker* local = find_local(workers_, record.key.worker)) {
    return local->follow_events(shard, listener);
  }
  if (remote_ != nullptr) {
    return remote_->follow_events(record, shard, listener);
  }
  return std::make_unique<SilentFollower>();
}

}  // namespace stator::session
