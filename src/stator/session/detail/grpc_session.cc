// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/grpc_session.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>

#include <utility>
#include <vector>

#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/session_protocol.h"
#include "stator/session/session_requests.h"
#include "stator/session/wire.h"

namespace stator::session::detail {
namespace {

namespace pb = worker::v1;

constexpr const char* kPath = "/stator.worker.v1.Worker/Session";

/// All of it on the loop: what the worker says is delivered by the thread that reads it, from
/// inside the read.
class GrpcSession final : public WorkerSession, net::GrpcCallListener {
 public:
  GrpcSession(GrpcSessionSetup setup, net::Shard& shard, SessionEvents& events)
      : setup_(std::move(setup)),
        shard_(shard),
        requests_(std::make_shared<SessionRequests>(setup_.worker, events, setup_.metrics)) {
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
      if (!requests_->has_opened()) {
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

  WorkerId worker() const override { return requests_->worker(); }

  void submit(inference::EngineRequest request) override {
    if (!requests_->open()) {
      return;  // on_closed has been delivered or close() called: S3
    }
    const inference::RequestKey key = request.key;
    requests_->begin(key);
    auto message = make_submit(request);
    if (!message) {
      requests_->metrics().rejected_messages.add();
      reject(key, std::move(message.error()));
    } else if (!room_for(static_cast<size_t>((*message)->GetCachedSize()))) {
      requests_->metrics().send_queue_full.add();
      reject(key, Error(Code::kOverloaded, "the worker reads requests too slowly"));
    } else {
      send(**message);
    }
  }

  void cancel(inference::RequestKey key, CancelReason reason) override {
    if (requests_->forget(key)) {
      // As many as there were submits, which are bounded.
      send(*make_cancel(key, reason));
    }
  }

  void close() override {
    connect_timer_.cancel();
    reject_timer_.cancel();
    requests_->close();
    call_.reset();
  }

 private:
  void on_message(std::string_view bytes) override {
    transport_.bytes_received.add(bytes.size());
    arena_.Reset();
    auto* message = google::protobuf::Arena::CreateMessage<pb::WorkerMessage>(&arena_);
    if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      requests_->metrics().rejected_messages.add();
      broken(Error(Code::kDisconnected, name() + ": a message does not parse"));
      return;
    }
    auto event = read_message(*message, {setup_.worker, setup_.incarnation}, requests_->metrics());
    if (!event) {
      broken(std::move(event.error()));
      return;
    }
    const auto requests = requests_;  // outlives this, if the listener wants
    requests->deliver(std::move(*event));
  }

  void on_end(net::GrpcOutcome outcome) override {
    broken(Error(requests_->has_opened() ? Code::kDisconnected : Code::kUnavailable,
                 fmt::format("{}: {}", name(),
                             outcome.status == 0 ? "it ended the session" : outcome.message)));
  }

  void broken(Error error) {
    transport_.errors.add();
    call_.reset();
    const auto requests = requests_;
    requests->deliver(SessionClosed{std::move(error)});
  }

  void send(const pb::ClientMessage& message) {
    if (call_ == nullptr) {
      return;  // SessionClosed is on its way
    }
    requests_->metrics().messages_sent.add();
    message.SerializeToString(&bytes_);
    transport_.bytes_sent.add(bytes_.size());
    call_->send(bytes_);
  }

  bool room_for(size_t bytes) const {
    return call_ == nullptr || call_->unsent_bytes() + bytes <= setup_.options.send_queue_bytes_max;
  }

  /// Not from inside submit(): S3.
  void reject(inference::RequestKey key, Error error) {
    rejected_.push_back({key, std::move(error)});
    reject_timer_ = shard_.after(Duration::zero(), [this] {
      const auto requests = requests_;
      for (inference::Failure& failure : std::exchange(rejected_, {})) {
        requests->deliver(SessionRejected{std::move(failure)});
      }
    });
  }

  std::string name() const {
    return fmt::format("worker {} at {}", setup_.worker.value(), setup_.address);
  }

  const GrpcSessionSetup setup_;
  const TransportMetrics& transport_ = setup_.metrics.transport;
  net::Shard& shard_;
  const std::shared_ptr<SessionRequests> requests_;  // shared with deliveries under way
  std::unique_ptr<net::GrpcCall> call_;              // null when broken or closed
  google::protobuf::Arena arena_;                    // of the message being read
  std::string bytes_;                         // of the message being sent; kept for its capacity
  std::vector<inference::Failure> rejected_;  // by us; at most the requests in flight
  net::Timer reject_timer_;
  net::Timer connect_timer_;
};

}  // namespace

std::unique_ptr<WorkerSession> open_grpc_session(GrpcSessionSetup setup, net::Shard& shard,
                                                 SessionEvents& events) {
  return std::make_unique<GrpcSession>(std::move(setup), shard, events);
}

}  // namespace stator::session::detail
