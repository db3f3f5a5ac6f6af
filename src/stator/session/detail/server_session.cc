// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/server_session.h"

#include <optional>
#include <utility>

#include "stator/net/grpc_status.h"
#include "stator/net/wakeup.h"
#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::session::detail {

namespace pb = worker::v1;

ServerSession::ServerSession(ServerContext& context, std::shared_ptr<net::GrpcServerCall> call)
    : context_(context), call_(std::move(call)), protocol_(context, *this) {}

void ServerSession::on_message(std::string_view message) {
  context_.metrics.messages_received.add();
  context_.metrics.transport.bytes_received.add(message.size());
  pb::ClientMessage incoming;
  net::GrpcOutcome outcome{net::kGrpcInternal, "a message does not parse"};
  if (incoming.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    if (net::GrpcOutcome refusal = enter(); !refusal.ok()) {
      end(std::move(refusal));
      return;
    }
    if (incoming.has_submit()) {
      only_greeted_.store(false, std::memory_order_relaxed);
    }
    outcome = protocol_.receive(incoming);
  }
  if (!outcome.ok()) {
    context_.metrics.rejected_messages.add();
    context_.metrics.transport.errors.add();
    leave();
    end(std::move(outcome));
    return;
  }
  write();
  if (protocol_.crowded()) {
    call_->hold();  // a client must read answers to be heard
    held_ = true;
    read_on();  // unless they have just gone
  }
}

/// V4: before the greeting is answered, so that no engine session is opened for who is refused.
net::GrpcOutcome ServerSession::enter() {
  if (std::exchange(entered_, true)) {
    return {};
  }
  std::shared_ptr<ServerSession> gives_way;
  {
    const MutexLock lock(context_.mutex);
    if (context_.stopping) {
      return {net::kGrpcUnavailable, "the worker is shutting down"};
    }
    auto& sessions = context_.sessions;
    if (sessions.size() >= context_.options.sessions_max) {
      gives_way = make_place(sessions, client_address());
      if (gives_way == nullptr) {
        return no_place("sessions");
      }
    }
    sessions.push_back(shared_from_this());
    context_.metrics.sessions_open.set(static_cast<double>(sessions.size()));
    context_.metrics.transport.active.set(static_cast<double>(sessions.size()));
  }
  if (gives_way != nullptr) {
    context_.metrics.crowded_out.add();
    gives_way->end(gave_way());
  }
  return {};
}

void ServerSession::leave() {
  const MutexLock lock(context_.mutex);
  std::erase_if(context_.sessions, [this](const auto& session) { return session.get() == this; });
  context_.metrics.sessions_open.set(static_cast<double>(context_.sessions.size()));
  context_.metrics.transport.active.set(static_cast<double>(context_.sessions.size()));
}

void ServerSession::read_on() {
  if (held_ && !protocol_.crowded() && held_.exchange(false)) {
    call_->go_on();
  }
}

void ServerSession::on_half_closed() {
  end({});
}

void ServerSession::on_output() noexcept {
  if (protocol_.quick() && context_.pace.take(context_.clock.now())) {
    write();
  } else {
    leave_to_loop();
  }
}

void ServerSession::leave_to_loop() {
  if (left_.exchange(true)) {
    return;
  }
  net::post_wakeup(*context_.loop, [self = shared_from_this()] {
    self->left_ = false;  // first: what is left from now on comes again
    self->protocol_.cancel_overflowed();
    self->write();
  });
}

void ServerSession::tick(TimePoint now) {
  if (protocol_.expire(now)) {
    write();
  }
}

void ServerSession::offer_load(const engine::LoadReport& load) {
  if (protocol_.offer_load(load)) {
    write();
  }
}

void ServerSession::drain() {
  if (protocol_.drain()) {
    write();
  }
}

void ServerSession::write() {
  if (send_what_fits()) {
    call_->flush();
  }
  read_on();
}

bool ServerSession::send_what_fits() {
  const MutexLock lock(mutex_);
  bool any = false;
  while (!ended_ && call_->has_room()) {
    const std::optional<OutputQueue::Message> message = protocol_.pop();
    if (!message) {
      break;
    }
    arena_.Reset();
    auto* out = google::protobuf::Arena::CreateMessage<pb::WorkerMessage>(&arena_);
    protocol_.encode(*message, *out);
    out->SerializeToString(&bytes_);
    context_.metrics.transport.bytes_sent.add(bytes_.size());
    call_->send(bytes_);
    any = true;
  }
  return any;
}

void ServerSession::end(net::GrpcOutcome outcome) {
  protocol_.close();  // V3
  {
    const MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) {
      return;
    }
  }
  call_->finish(std::move(outcome));
}

void ServerSession::on_gone() {
  end({net::kGrpcCancelled, "the client is gone"});
  leave();
}

}  // namespace stator::session::detail
