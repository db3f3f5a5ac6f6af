// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/server_session.h"

#include <utility>

namespace stator::runtime::detail {

namespace pb = worker::v1;

ServerSession* ServerSession::start(ServerContext& context, grpc::Status refusal) {
  auto session = std::make_shared<ServerSession>(context);
  session->self_ = session;
  {
    const MutexLock lock(context.mutex);
    ++context.streams;
    if (context.stopping) {
      refusal = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is shutting down");
    } else if (refusal.ok() && context.sessions.size() >= context.options.sessions_max) {
      refusal = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many sessions");
    } else if (refusal.ok()) {
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

ServerSession::ServerSession(ServerContext& context) : context_(context), talk_(context, *this) {}

ServerSession::~ServerSession() = default;

void ServerSession::OnReadDone(bool ok) {
  grpc::Status status;  // OK: the client has said all it wants
  if (ok) {
    context_.metrics.messages_received.add();
    status = talk_.receive(incoming_);
    if (status.ok()) {
      write_next();
      read_on();
      return;
    }
    context_.metrics.rejected_messages.add();
  }
  end(std::move(status));
}

void ServerSession::read_on() {
  {
    const MutexLock lock(mutex_);
    if (ended_ || talk_.crowded()) {
      read_paused_ = !ended_;  // OnWriteDone goes on: a client must read answers to be heard
      return;
    }
  }
  StartRead(&incoming_);
}

void ServerSession::on_output() noexcept {
  {
    const MutexLock lock(mutex_);
    if (ended_ || (writing_ && !talk_.has_overflowed())) {
      return;  // goes out when the current write is done
    }
  }
  context_.output_pump->kick(shared_from_this());
}

void ServerSession::pump() noexcept {
  talk_.cancel_overflowed();
  write_next();
}

void ServerSession::tick(TimePoint now) {
  if (talk_.expire(now)) {
    write_next();
  }
}

void ServerSession::offer_load(const engine::LoadReport& load) {
  if (talk_.offer_load(load)) {
    write_next();
  }
}

void ServerSession::drain() {
  if (talk_.drain()) {
    write_next();
  }
}

void ServerSession::write_next() {
  std::optional<OutputQueue::Message> message;
  {
    const MutexLock lock(mutex_);
    if (writing_ || ended_) {
      return;
    }
    message = talk_.pop();
    writing_ = message.has_value();
  }
  if (message) {
    write(*message);
  }
}

void ServerSession::write(const OutputQueue::Message& message) {
  arena_.Reset();
  auto* out = google::protobuf::Arena::CreateMessage<pb::WorkerMessage>(&arena_);
  talk_.encode(message, *out);
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
    resume = ok && !ended_ && !talk_.crowded() && std::exchange(read_paused_, false);
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
  talk_.close();  // V3
  {
    const MutexLock lock(mutex_);
    if (ended_) {
      return;
    }
    ended_ = true;
    status_ = status;
    if (writing_) {
      return;  // OnWriteDone finishes
    }
  }
  Finish(std::move(status));
}

size_t ServerSession::unsent() const {
  const MutexLock lock(mutex_);
  return talk_.waiting() + (writing_ ? 1 : 0);
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
