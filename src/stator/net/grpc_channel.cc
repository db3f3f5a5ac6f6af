// SPDX-License-Identifier: Apache-2.0
#include "stator/net/grpc_channel.h"

#include <fmt/format.h>

#include <utility>

#include "stator/net/backoff.h"
#include "stator/net/detail/grpc_client_connection.h"
#include "stator/net/shard.h"

namespace stator::net {
namespace {

using detail::GrpcClientConnection;

/// A call that cannot begin.
class RefusedCall final : public GrpcCall {
 public:
  RefusedCall(Shard& shard, GrpcCallListener& listener, GrpcOutcome outcome)
      : timer_(shard.after(Duration::zero(), [&listener, outcome = std::move(outcome)]() mutable {
          listener.on_end(std::move(outcome));
        })) {}
  void send(std::string_view /*message*/) override {}
  void finish_sending() override {}
  size_t unsent_bytes() const override { return 0; }

 private:
  Timer timer_;
};

class Channel final : public GrpcChannel {
 public:
  Channel(GrpcChannelOptions options, Shard& shard)
      : options_(std::move(options)),
        shard_(shard),
        backoff_(options_.retry_min, options_.retry_max) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() override {
    if (connection_ != nullptr) {
      connection_->release();
    }
  }

  std::unique_ptr<GrpcCall> begin(GrpcChannelCall call, GrpcCallListener& listener) override {
    forget_unusable();
    if (connection_ == nullptr && shard_.now() < retry_at_) {
      return refuse(listener, {kGrpcUnavailable, failure_});
    }
    if (connection_ == nullptr) {
      connection_ = std::make_shared<GrpcClientConnection>(
          GrpcClientConnection::Target{.address = options_.address,
                                       .tls = options_.tls,
                                       .server_name = options_.server_name,
                                       .keepalive_interval = options_.keepalive_interval,
                                       .keepalive_timeout = options_.keepalive_timeout,
                                       .connect_timeout = options_.connect_timeout},
          shard_);
      connection_->start();
    }
    if (connection_->streams() >= options_.calls_max) {
      return refuse(listener, {kGrpcResourceExhausted,
                               fmt::format("{} calls to it are under way", options_.calls_max)});
    }
    auto begun = connection_->begin({.path = std::move(call.path),
                                     .message_bytes_max = options_.message_bytes_max,
                                     .metadata = std::move(call.metadata),
                                     .timeout = call.deadline},
                                    listener);
    return begun != nullptr ? std::move(begun)
                            : refuse(listener, {kGrpcUnavailable, "its connection takes no call"});
  }

 private:
  std::unique_ptr<GrpcCall> refuse(GrpcCallListener& listener, GrpcOutcome outcome) {
    return std::make_unique<RefusedCall>(shard_, listener, std::move(outcome));
  }

  /// Lets go of a connection that is of no more use for new calls.
  void forget_unusable() {
    if (connection_ == nullptr || connection_->usable()) {
      return;
    }
    if (connection_->heard()) {
      backoff_.reset();
    } else {
      failure_ = connection_->failure();
      retry_at_ = connection_->closed_at() + backoff_.next();
    }
    connection_->release();  // a server that goes away still answers what it has begun
    connection_.reset();
  }

  const GrpcChannelOptions options_;
  Shard& shard_;
  Backoff backoff_;
  std::shared_ptr<GrpcClientConnection> connection_;  // shared with its calls; null: none yet
  std::string failure_;                               // of the last that could not be made
  TimePoint retry_at_{};
};

}  // namespace

std::unique_ptr<GrpcChannel> GrpcChannel::open(GrpcChannelOptions options, Shard& shard) {
  return std::make_unique<Channel>(std::move(options), shard);
}

GrpcUnaryCall::GrpcUnaryCall(GrpcChannel& channel, GrpcChannelCall call, std::string_view request,
                             Done done)
    : done_(std::move(done)), call_(channel.begin(std::move(call), *this)) {
  call_->send(request);
  call_->finish_sending();
}

void GrpcUnaryCall::on_message(std::string_view message) {
  if (answer_) {
    call_.reset();
    std::exchange(done_, {})({kGrpcInternal, "more than one answer came"}, {});
    return;
  }
  answer_.emplace(message);
}

void GrpcUnaryCall::on_end(GrpcOutcome outcome) {
  if (outcome.ok() && !answer_) {
    outcome = {kGrpcInternal, "the call ended without an answer"};
  }
  // Both on the stack: whoever is told may destroy this.
  const std::string answer = outcome.ok() ? std::move(*answer_) : std::string();
  std::exchange(done_, {})(outcome, answer);
}

}  // namespace stator::net
