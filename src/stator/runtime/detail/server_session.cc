// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/server_session.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <variant>

#include "stator/core/log.h"
#include "stator/runtime/wire.h"

namespace stator::runtime::detail {
namespace {

namespace pb = worker::v1;

constexpr std::string_view kLogTarget = "runtime::server";

grpc::Status to_grpc(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.info().grpc_status), error.message()};
}

template <typename Message>
engine::RequestKey key_of(const Message& message) {
  return {RequestId(message.request()), Attempt(static_cast<uint16_t>(message.attempt()))};
}

/// Fills the message to send from what the queue handed out.
struct Encoder {
  const ServerContext& context;
  pb::WorkerMessage& out;

  void operator()(const OutputQueue::Welcome&) const {
    pb::Welcome& welcome = *out.mutable_welcome();
    welcome.set_protocol(wire::kProtocolVersion);
    welcome.set_worker_id(context.record.key.worker.value());
    welcome.set_incarnation(context.record.incarnation.value());
  }
  void operator()(const OutputQueue::Accepted& accepted) const {
    out.mutable_accepted()->set_request(accepted.key.request.value());
    out.mutable_accepted()->set_attempt(accepted.key.attempt.value());
  }
  void operator()(const OutputQueue::Rejected& rejected) const {
    wire::encode(rejected.failure, *out.mutable_rejected());
  }
  void operator()(const engine::LoadReport& load) const { wire::encode(load, *out.mutable_load()); }
  void operator()(const OutputQueue::Draining&) const { out.mutable_draining(); }
  void operator()(const engine::StepOutput& step) const {
    context.metrics.tokens.add(step.tokens.size());
    wire::encode(step, *out.mutable_step());
  }
};

}  // namespace

ServerSession* ServerSession::start(ServerContext& context) {
  auto session = std::make_shared<ServerSession>(context);
  session->self_ = session;
  grpc::Status refusal;
  {
    const MutexLock lock(context.mutex);
    ++context.streams;
    if (context.stopping) {
      refusal = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is shutting down");
    } else if (context.sessions.size() >= context.options.sessions_max) {
      refusal = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many sessions");
    } else {
      context.sessions.push_back(session);
      context.metrics.sessions_open.set(static_cast<double>(context.sessions.size()));
    }
  }
  if (refusal.ok()) {
    session->StartRead(&session->incoming_);
  } else {
    session->end(std::move(refusal));
  }
  return session.get();
}

ServerSession::ServerSession(ServerContext& context)
    : context_(context), output_(context.options.session_queue_bytes_max) {}

ServerSession::~ServerSession() = default;

void ServerSession::OnReadDone(bool ok) {
  grpc::Status status;  // OK: the client has said all it wants
  if (ok) {
    context_.metrics.messages_received.add();
    status = receive();
    if (status.ok()) {
      read_on();
      return;
    }
    context_.metrics.rejected_messages.add();
  }
  end(std::move(status));
}

grpc::Status ServerSession::receive() {
  bool greeted = false;
  {
    const MutexLock lock(mutex_);
    greeted = greeted_;
  }
  const auto body = incoming_.body_case();
  if (greeted == (body == pb::ClientMessage::kHello)) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "Hello is the first message, and only that"};
  }
  switch (body) {
    case pb::ClientMessage::kHello:
      return receive_hello(incoming_.hello());
    case pb::ClientMessage::kSubmit:
      return receive_submit(incoming_.submit());
    case pb::ClientMessage::kCancel:
      return receive_cancel(incoming_.cancel());
    case pb::ClientMessage::BODY_NOT_SET:
      break;
  }
  return {grpc::StatusCode::UNIMPLEMENTED, "a message of a kind this worker does not know"};
}

grpc::Status ServerSession::receive_hello(const pb::Hello& hello) {
  const InstanceRecord& record = context_.record;
  if (hello.protocol() != wire::kProtocolVersion) {
    return {grpc::StatusCode::UNIMPLEMENTED, fmt::format("protocol {} is not spoken here, {} is",
                                                         hello.protocol(), wire::kProtocolVersion)};
  }
  const bool other_worker =
      hello.worker_id() != 0 && hello.worker_id() != record.key.worker.value();
  const bool other_life =
      hello.incarnation() != 0 && hello.incarnation() != record.incarnation.value();
  if (other_worker || other_life) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("this is worker {}, incarnation {}", record.key.worker.value(),
                        record.incarnation.value())};
  }
  {
    const MutexLock engine_lock(engine_mutex_);
    if (engine_closed_) {
      return {grpc::StatusCode::CANCELLED, "ended"};
    }
    engine_session_ = context_.engine.open_session(*this);
  }
  log::debug(kLogTarget, "session opened", {{"client", hello.client()}});
  {
    const MutexLock lock(mutex_);
    greeted_ = true;
    output_.push(OutputQueue::Welcome());
    output_.push(context_.engine.load());
    if (context_.draining) {
      output_.push(OutputQueue::Draining());
    }
  }
  write_next();
  return grpc::Status::OK;
}

grpc::Status ServerSession::receive_submit(const pb::Submit& submit) {
  auto request = wire::decode(submit);
  if (!request.has_value()) {
    context_.metrics.rejected_messages.add();
    if (submit.attempt() > UINT16_MAX) {
      return to_grpc(request.error());  // no key that could be answered
    }
    reject(key_of(submit), std::move(request.error()).with_code(Code::kInvalidArgument));
    return grpc::Status::OK;
  }
  const engine::RequestKey key = request->key;
  std::optional<TimePoint> expires;
  if (request->deadline_ms != 0) {
    expires = context_.clock.now() + std::chrono::milliseconds(request->deadline_ms);
  }
  {
    // Before the engine knows it: its first step must find the key in flight.
    const MutexLock lock(mutex_);
    if (!output_.begin(key, expires)) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              fmt::format("request {} attempt {} is in flight already", key.request.value(),
                          key.attempt.value())};
    }
  }
  Status running = run(std::move(*request));
  if (!running.has_value()) {
    reject(key, std::move(running.error()));
    return grpc::Status::OK;
  }
  {
    const MutexLock lock(mutex_);
    output_.push(OutputQueue::Accepted{key});
  }
  write_next();
  return grpc::Status::OK;
}

Status ServerSession::run(engine::EngineRequest request) {
  if (context_.draining) {
    return Error(Code::kDraining, "the worker is draining");
  }
  const MutexLock lock(engine_mutex_);
  if (!engine_session_) {
    return Error(Code::kUnavailable, "the worker is shutting down");
  }
  return context_.engine.submit(*engine_session_, std::move(request));
}

void ServerSession::reject(engine::RequestKey key, Error error) {
  {
    const MutexLock lock(mutex_);
    output_.forget(key);
    output_.push(OutputQueue::Rejected{{key, std::move(error)}});
  }
  write_next();
}

grpc::Status ServerSession::receive_cancel(const pb::Cancel& message) {
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
  return grpc::Status::OK;
}

void ServerSession::cancel_in_engine(const std::vector<engine::RequestKey>& keys) {
  const MutexLock lock(engine_mutex_);
  if (engine_session_) {
    for (const engine::RequestKey& key : keys) {
      context_.engine.cancel(*engine_session_, key);
    }
  }
}

void ServerSession::read_on() {
  {
    const MutexLock lock(mutex_);
    if (ended_ || output_.control_count() >= kControlMax) {
      read_paused_ = !ended_;  // OnWriteDone goes on: a client must read answers to be heard
      return;
    }
  }
  StartRead(&incoming_);
}

void ServerSession::on_step(engine::StepOutput output) noexcept {
  {
    const MutexLock lock(mutex_);
    if (ended_) {
      return;
    }
    std::vector<engine::RequestKey> cancelled = output_.push(std::move(output));
    context_.metrics.slow_session_cancels.add(cancelled.size());
    overflowed_.insert(overflowed_.end(), cancelled.begin(), cancelled.end());
    if (writing_ && overflowed_.empty()) {
      return;  // goes out when the current write is done
    }
  }
  context_.output_pump->kick(shared_from_this());
}

void ServerSession::pump() noexcept {
  std::vector<engine::RequestKey> cancelled;
  {
    const MutexLock lock(mutex_);
    cancelled.swap(overflowed_);
  }
  if (!cancelled.empty()) {
    cancel_in_engine(cancelled);
  }
  write_next();
}

void ServerSession::tick(TimePoint now) {
  std::vector<engine::RequestKey> late;
  {
    const MutexLock lock(mutex_);
    if (!ended_) {
      late = output_.expire(now);
    }
  }
  if (!late.empty()) {
    context_.metrics.expired.add(late.size());
    cancel_in_engine(late);
    write_next();
  }
}

void ServerSession::offer_load(const engine::LoadReport& load) {
  {
    const MutexLock lock(mutex_);
    if (!greeted_ || ended_) {
      return;
    }
    output_.push(load);
  }
  write_next();
}

void ServerSession::drain() {
  {
    const MutexLock lock(mutex_);
    if (!greeted_ || ended_) {
      return;  // greeting tells it
    }
    output_.push(OutputQueue::Draining());
  }
  write_next();
}

void ServerSession::write_next() {
  std::optional<OutputQueue::Message> message;
  {
    const MutexLock lock(mutex_);
    if (writing_ || ended_) {
      return;
    }
    message = output_.pop();
    writing_ = message.has_value();
  }
  if (message) {
    write(std::move(*message));
  }
}

void ServerSession::write(OutputQueue::Message message) {
  arena_.Reset();
  auto* out = google::protobuf::Arena::CreateMessage<pb::WorkerMessage>(&arena_);
  std::visit(Encoder{context_, *out}, message);
  context_.metrics.messages_sent.add();
  StartWrite(out);
}

void ServerSession::OnWriteDone(bool ok) {
  bool finish = false;
  bool resume = false;
  grpc::Status status;
  {
    const MutexLock lock(mutex_);
    writing_ = false;
    finish = ended_;
    status = status_;
    resume = ok && !ended_ && output_.control_count() < kControlMax &&
             std::exchange(read_paused_, false);
  }
  if (finish) {
    Finish(status);  // V2
    return;
  }
  if (!ok) {
    end(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the client is gone"));
    return;
  }
  if (resume) {
    StartRead(&incoming_);
  }
  write_next();
}

void ServerSession::OnCancel() {
  end(grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone"));
}

void ServerSession::end(grpc::Status status) {
  {
    const MutexLock engine_lock(engine_mutex_);
    engine_closed_ = true;
    if (engine_session_) {
      context_.engine.close_session(*engine_session_);  // V3
      engine_session_.reset();
    }
  }
  {
    const MutexLock lock(mutex_);
    if (ended_) {
      return;
    }
    ended_ = true;
    status_ = status;
    output_.clear();
    if (writing_) {
      return;  // OnWriteDone finishes
    }
  }
  Finish(std::move(status));
}

size_t ServerSession::in_flight() const {
  const MutexLock lock(mutex_);
  return output_.in_flight();
}

size_t ServerSession::unsent() const {
  const MutexLock lock(mutex_);
  return output_.waiting() + (writing_ ? 1 : 0);
}

void ServerSession::OnDone() {
  const std::shared_ptr<ServerSession> self = std::move(self_);
  const MutexLock lock(context_.mutex);
  std::erase(context_.sessions, self);
  context_.metrics.sessions_open.set(static_cast<double>(context_.sessions.size()));
  --context_.streams;
  context_.all_gone.notify_all();
}

}  // namespace stator::runtime::detail
