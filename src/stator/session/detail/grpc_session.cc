// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/grpc_session.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>

#include <utility>

#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/session_core.h"
#include "stator/session/session_protocol.h"
#include "stator/session/wire.h"

namespace stator::session::detail {
namespace {

namespace pb = worker::v1;

constexpr const char* kPath = "/stator.worker.v1.Worker/Session";

/// All of it on the loop: what the worker says is handled by the thread that reads it.
class GrpcSession final : public WorkerSession, net::GrpcCallListener {
 public:
  GrpcSession(GrpcSessionSetup setup, net::Shard& shard, SessionEvents& events)
      : setup_(std::move(setup)),
        core_(std::make_shared<SessionCore>(setup_.worker, shard, events, setup_.metrics)) {
    const GrpcOptions& options = setup_.options;
    call_ = net::GrpcCall::open({.address = setup_.address,
                                 .path = kPath,
                                 .tls = setup_.tls,
                                 .server_name = options.tls ? options.tls->server_name : "",
                                 .message_bytes_max = wire::kMessageBytesMax,
                                 .keepalive_interval = options.keepalive_interval,
                                 .keepalive_timeout = options.keepalive_timeout},
                                shard, *this);
    connect_timer_ = shard.after(options.connect_deadline, [this] {
      if (!opened_) {
        broken(Error(Code::kUnavailable, name() + " did not answer"));
      }
    });
    transport_.active.add(1);
    send(*make_hello(setup_.worker, setup_.incarnation, options.client_name));
  }
  GrpcSession(const GrpcSession&) = delete;
  GrpcSession& operator=(const GrpcSession&) = delete;
  ~GrpcSession() override {
    close();
    transport_.active.add(-1);
  }

  WorkerId worker() const override { return core_->worker(); }

  void submit(inference::EngineRequest request) override {
    if (!core_->open()) {
      return;  // on_closed has been delivered or close() called: S3
    }
    const inference::RequestKey key = request.key;
    core_->begin(key);
    auto message = make_submit(request);
    if (!message) {
      core_->metrics().rejected_messages.add();
      reject(key, std::move(message.error()));
    } else if (!room_for(static_cast<size_t>((*message)->GetCachedSize()))) {
      core_->metrics().send_queue_full.add();
      reject(key, Error(Code::kOverloaded, "the worker reads requests too slowly"));
    } else {
      send(**message);
    }
  }

  void cancel(inference::RequestKey key, CancelReason reason) override {
    if (core_->forget(key)) {
      // As many as there were submits, which are bounded.
      send(*make_cancel(key, reason));
    }
  }

  void close() override {
    connect_timer_.cancel();
    core_->close();
    call_.reset();
  }

 private:
  void on_message(std::string_view bytes) override {
    transport_.bytes_received.add(bytes.size());
    arena_.Reset();
    auto* message = google::protobuf::Arena::CreateMessage<pb::WorkerMessage>(&arena_);
    if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      core_->metrics().rejected_messages.add();
      broken(Error(Code::kDisconnected, name() + ": a message does not parse"));
      return;
    }
    auto told = tell(*message, setup_.incarnation, *core_);
    if (!told) {
      broken(std::move(told.error()));
    } else {
      opened_ = opened_ || told->opened;
    }
  }

  void on_end(net::GrpcOutcome outcome) override {
    broken(Error(opened_ ? Code::kDisconnected : Code::kUnavailable,
                 fmt::format("{}: {}", name(),
                             outcome.status == 0 ? "it ended the session" : outcome.message)));
  }

  void broken(Error error) {
    transport_.errors.add();
    call_.reset();
    core_->push(SessionClosed{std::move(error)});
  }

  void send(const pb::ClientMessage& message) {
    if (call_ == nullptr) {
      return;  // SessionClosed is on its way
    }
    core_->metrics().messages_sent.add();
    message.SerializeToString(&bytes_);
    transport_.bytes_sent.add(bytes_.size());
    call_->send(bytes_);
  }

  bool room_for(size_t bytes) const {
    return call_ == nullptr || call_->unsent_bytes() + bytes <= setup_.options.send_queue_bytes_max;
  }

  void reject(inference::RequestKey key, Error error) {
    core_->push(SessionRejected{{key, std::move(error)}});
  }

  std::string name() const {
    return fmt::format("worker {} at {}", setup_.worker.value(), setup_.address);
  }

  const GrpcSessionSetup setup_;
  const TransportMetrics& transport_ = setup_.metrics.transport;
  const std::shared_ptr<SessionCore> core_;  // shared with wake-ups on their way
  std::unique_ptr<net::GrpcCall> call_;      // null when broken or closed
  google::protobuf::Arena arena_;            // of the message being handled
  std::string bytes_;                        // of the message being sent; kept for its capacity
  bool opened_ = false;
  net::Timer connect_timer_;
};

}  // namespace

std::unique_ptr<WorkerSession> open_grpc_session(GrpcSessionSetup setup, net::Shard& shard,
                                                 SessionEvents& events) {
  return std::make_unique<GrpcSession>(std::move(setup), shard, events);
}

}  // namespace stator::session::detail
