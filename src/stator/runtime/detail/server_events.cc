// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/server_events.h"

#include <utility>

#include "stator/runtime/wire.h"

namespace stator::runtime::detail {

ServerEvents* ServerEvents::start(ServerContext& context, const worker::v1::EventsRequest& request,
                                  grpc::Status refusal) {
  auto stream = std::make_shared<ServerEvents>(context, request);
  stream->self_ = stream;
  {
    const MutexLock lock(context.mutex);
    ++context.streams;
    if (context.stopping) {
      refusal = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is shutting down");
    } else if (refusal.ok() &&
               (context.event_streams.size() >= context.options.event_streams_max ||
                !context.engine.events().subscribe(request.from_id(), stream.get()).has_value())) {
      refusal = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many event streams");
    } else if (refusal.ok()) {
      context.event_streams.push_back(stream);
      context.metrics.event_streams_open.set(static_cast<double>(context.event_streams.size()));
    }
  }
  if (refusal.ok()) {
    context.events_pump->kick(stream);
  } else {
    stream->end(std::move(refusal));
  }
  return stream.get();
}

ServerEvents::ServerEvents(ServerContext& context, const worker::v1::EventsRequest& request)
    : context_(context),
      cursor_(context.engine.events(), context.record.incarnation,
              request.incarnation() == context.record.incarnation.value() ? request.from_id() : 0) {
}

void ServerEvents::on_events_available() noexcept {
  context_.events_pump->kick(shared_from_this());
}

void ServerEvents::pump() noexcept {
  {
    const MutexLock lock(mutex_);
    if (writing_ || ended_) {
      return;
    }
  }
  // Only this thread sets writing_, so it still is false; `ended_` is checked again below.
  const auto chunk = cursor_.next();
  if (!chunk) {
    return;
  }
  outgoing_.Clear();
  wire::encode(*chunk, outgoing_);
  {
    const MutexLock lock(mutex_);
    if (ended_) {
      return;
    }
    writing_ = true;
  }
  context_.metrics.messages_sent.add();
  StartWrite(&outgoing_);
}

void ServerEvents::OnWriteDone(bool ok) {
  grpc::Status status;
  {
    const MutexLock lock(mutex_);
    writing_ = false;
    if (!ended_) {
      ended_ = !ok;
      status_ = ok ? status_ : grpc::Status(grpc::StatusCode::UNAVAILABLE, "the reader is gone");
    }
    if (ended_) {
      status = status_;
    }
    if (!ended_) {
      context_.events_pump->kick(shared_from_this());
      return;
    }
  }
  Finish(status);
}

void ServerEvents::OnCancel() {
  end(grpc::Status(grpc::StatusCode::CANCELLED, "the reader is gone"));
}

void ServerEvents::end(grpc::Status status) {
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

void ServerEvents::OnDone() {
  const std::shared_ptr<ServerEvents> self = std::move(self_);
  context_.engine.events().unsubscribe(this);
  const MutexLock lock(context_.mutex);
  std::erase(context_.event_streams, self);
  context_.metrics.event_streams_open.set(static_cast<double>(context_.event_streams.size()));
  --context_.streams;
  context_.all_gone.notify_all();
}

}  // namespace stator::runtime::detail
