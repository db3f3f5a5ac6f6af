// SPDX-License-Identifier: Apache-2.0
#include "stator/session/server_protocol.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <variant>

#include "stator/core/log.h"
#include "stator/net/grpc_status.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/wire.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;

constexpr std::string_view kLogTarget = "session::server";

net::GrpcOutcome to_grpc(const Error& error) {
  return {error.info().grpc_status, error.message()};
}

inference::RequestKey key_of(const pb::Submit& submit) {
  return {RequestId(submit.request()), Attempt(static_cast<uint16_t>(submit.attempt()))};
}

/// Fills the message to send from what the queue handed out.
struct Encoder {
  const ServerContext& context;
  pb::WorkerMessage& out;

  void operator()(const detail::OutputQueue::Welcome&) const {
    pb::Welcome& welcome = *out.mutable_welcome();
    welcome.set_protocol(wire::kProtocolVersion);
    welcome.set_worker_id(context.record.key.worker.value());
    welcome.set_incarnation(context.record.incarnation.value());
  }
  void operator()(const detail::OutputQueue::Accepted& accepted) const {
    out.mutable_accepted()->set_request(accepted.key.request.value());
    out.mutable_accepted()->set_attempt(accepted.key.attempt.value());
  }
  void operator()(const detail::OutputQueue::Rejected& rejected) const {
    wire::encode(rejected.failure, *out.mutable_rejected());
  }
  void operator()(const engine::LoadReport& load) const { wire::encode(load, *out.mutable_load()); }
  void operator()(const detail::OutputQueue::Draining&) const { out.mutable_draining(); }
  void operator()(const inference::StepOutput& step) const {
    context.metrics.tokens.add(step.tokens.size());
    wire::encode(step, *out.mutable_step());
  }
};

}  // namespace

ServerProtocol::ServerProtocol(ServerContext& context, Listener& listener)
    : context_(context), listener_(listener), output_(context.options.session_queue_bytes_max) {}

net::GrpcOutcome ServerProtocol::receive(const pb::ClientMessage& message) {
  bool greeted = false;
  {
    const MutexLock lock(mutex_);
    greeted = greeted_;
  }
  const auto body = message.body_case();
  if (greeted == (body == pb::ClientMessage::kHello)) {
    return {net::kGrpcInvalidArgument, "Hello is the first message, and only that"};
  }
  switch (body) {
    case pb::ClientMessage::kHello:
      return receive_hello(message.hello());
    case pb::ClientMessage::kSubmit:
      return receive_submit(message.submit());
    case pb::ClientMessage::kCancel:
      return receive_cancel(message.cancel());
    case pb::ClientMessage::BODY_NOT_SET:
      break;
  }
  return {net::kGrpcUnimplemented, "a message of a kind this worker does not know"};
}

net::GrpcOutcome ServerProtocol::receive_hello(const pb::Hello& hello) {
  const discovery::InstanceRecord& record = context_.record;
  if (hello.protocol() != wire::kProtocolVersion) {
    return {net::kGrpcUnimplemented, fmt::format("protocol {} is not spoken here, {} is",
                                                 hello.protocol(), wire::kProtocolVersion)};
  }
  const bool other_worker =
      hello.worker_id() != 0 && hello.worker_id() != record.key.worker.value();
  const bool other_life =
      hello.incarnation() != 0 && hello.incarnation() != record.incarnation.value();
  if (other_worker || other_life) {
    return {net::kGrpcFailedPrecondition,
            fmt::format("this is worker {}, incarnation {}", record.key.worker.value(),
                        record.incarnation.value())};
  }
  {
    const MutexLock engine_lock(engine_mutex_);
    if (engine_closed_) {
      return {net::kGrpcCancelled, "ended"};
    }
    engine_session_ = context_.engine.open_session(*this);
  }
  log::debug(kLogTarget, "session opened", {{"client", hello.client()}});
  {
    const MutexLock lock(mutex_);
    greeted_ = true;
    output_.push(detail::OutputQueue::Welcome());
    output_.push(context_.engine.load());
    if (context_.draining) {
      output_.push(detail::OutputQueue::Draining());
    }
  }
  return {};
}

net::GrpcOutcome ServerProtocol::receive_submit(const pb::Submit& submit) {
  auto request = wire::decode(submit);
  if (!request.has_value()) {
    context_.metrics.rejected_messages.add();
    if (submit.attempt() > UINT16_MAX) {
      return to_grpc(request.error());  // no key that could be answered
    }
    reject(key_of(submit), std::move(request.error()).with_code(Code::kInvalidArgument));
    return {};
  }
  const inference::RequestKey key = request->key;
  std::optional<TimePoint> expires;
  if (request->deadline_ms != 0) {
    expires = context_.clock.now() + std::chrono::milliseconds(request->deadline_ms);
  }
  {
    // Before the engine knows it: its first step must find the key in flight.
    const MutexLock lock(mutex_);
    if (!output_.begin(key, expires)) {
      return {net::kGrpcInvalidArgument, fmt::format("request {} attempt {} is in flight already",
                                                     key.request.value(), key.attempt.value())};
    }
  }
  Status running = run(std::move(*request));
  if (!running.has_value()) {
    reject(key, std::move(running.error()));
    return {};
  }
  {
    const MutexLock lock(mutex_);
    output_.push(detail::OutputQueue::Accepted{key});
  }
  return {};
}

Status ServerProtocol::run(inference::EngineRequest request) {
  if (context_.draining) {
    return Error(Code::kDraining, "the worker is draining");
  }
  const MutexLock lock(engine_mutex_);
  if (!engine_session_) {
    return Error(Code::kUnavailable, "the worker is shutting down");
  }
  return context_.engine.submit(*engine_session_, std::move(request));
}

void ServerProtocol::reject(inference::RequestKey key, Error error) {
  {
    const MutexLock lock(mutex_);
    output_.forget(key);
    output_.push(detail::OutputQueue::Rejected{{key, std::move(error)}});
  }
}

net::GrpcOutcome ServerProtocol::receive_cancel(const pb::Cancel& message) {
  const auto cancel = wire::decode(message);
  if (!cancel.has_value()) {
    return to_grpc(cancel.error());
  }
  bool running = false;
  {
    const MutexLock lock(mutex_);
    running = output_.forget(cancel->key);
  }
  if (running) {
    cancel_in_engine({cancel->key});
  }
  return {};
}

void ServerProtocol::cancel_in_engine(const std::vector<inference::RequestKey>& keys) {
  const MutexLock lock(engine_mutex_);
  if (engine_session_) {
    for (const inference::RequestKey& key : keys) {
      context_.engine.cancel(*engine_session_, key);
    }
  }
}

void ServerProtocol::on_step(inference::StepOutput output) noexcept {
  {
    const MutexLock lock(mutex_);
    if (closed_) {
      return;
    }
    std::vector<inference::RequestKey> cancelled = output_.push(std::move(output));
    context_.metrics.slow_session_cancels.add(cancelled.size());
    overflowed_.insert(overflowed_.end(), cancelled.begin(), cancelled.end());
  }
  listener_.on_output();
}

void ServerProtocol::cancel_overflowed() {
  std::vector<inference::RequestKey> cancelled;
  {
    const MutexLock lock(mutex_);
    cancelled.swap(overflowed_);
  }
  if (!cancelled.empty()) {
    cancel_in_engine(cancelled);
  }
}

bool ServerProtocol::expire(TimePoint now) {
  std::vector<inference::RequestKey> late;
  {
    const MutexLock lock(mutex_);
    if (!closed_) {
      late = output_.expire(now);
    }
  }
  if (late.empty()) {
    return false;
  }
  context_.metrics.expired.add(late.size());
  cancel_in_engine(late);
  return true;
}

bool ServerProtocol::offer_load(const engine::LoadReport& load) {
  const MutexLock lock(mutex_);
  if (!greeted_ || closed_) {
    return false;
  }
  output_.push(load);
  return true;
}

bool ServerProtocol::drain() {
  const MutexLock lock(mutex_);
  if (!greeted_ || closed_) {
    return false;
  }
  output_.push(detail::OutputQueue::Draining());
  return true;
}

void ServerProtocol::close() {
  {
    const MutexLock engine_lock(engine_mutex_);
    engine_closed_ = true;
    if (engine_session_) {
      context_.engine.close_session(*engine_session_);
      engine_session_.reset();
    }
  }
  const MutexLock lock(mutex_);
  closed_ = true;
  output_.clear();
}

std::optional<detail::OutputQueue::Message> ServerProtocol::pop() {
  const MutexLock lock(mutex_);
  return output_.pop();
}

void ServerProtocol::encode(const detail::OutputQueue::Message& message,
                            pb::WorkerMessage& out) const {
  context_.metrics.messages_sent.add();
  std::visit(Encoder{context_, out}, message);
}

bool ServerProtocol::crowded() const {
  const MutexLock lock(mutex_);
  return output_.control_count() >= kControlMax;
}

bool ServerProtocol::quick() const {
  const MutexLock lock(mutex_);
  return overflowed_.empty() && output_.step_bytes() <= kQuickBytes;
}

size_t ServerProtocol::in_flight() const {
  const MutexLock lock(mutex_);
  return output_.in_flight();
}

size_t ServerProtocol::waiting() const {
  const MutexLock lock(mutex_);
  return output_.waiting();
}

}  // namespace stator::session
