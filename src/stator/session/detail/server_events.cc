// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/server_events.h"

#include <utility>

#include "stator/kv_events/event_wire.h"
#include "stator/net/grpc_status.h"
#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::session::detail {

namespace pb = worker::v1;

void ServerEvents::on_message(std::string_view message) {
  pb::EventsRequest request;
  if (cursor_ || !request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    end({net::kGrpcInvalidArgument, "not one EventsRequest"});
    return;
  }
  begin(request);
}

void ServerEvents::on_half_closed() {
  if (!cursor_) {
    end({net::kGrpcInvalidArgument, "no EventsRequest"});
  }
}

void ServerEvents::begin(const pb::EventsRequest& request) {
  const Incarnation incarnation = context_.record.incarnation;
  kv::EventLog& events = context_.engine.events();
  cursor_.emplace(events, incarnation,
                  request.incarnation() == incarnation.value() ? request.from_id() : 0);
  net::GrpcOutcome refusal;
  std::shared_ptr<ServerEvents> gives_way;
  {
    const MutexLock lock(context_.mutex);
    auto& streams = context_.event_streams;
    if (streams.size() >= context_.options.event_streams_max) {
      gives_way = make_place(streams, client_address());
      if (gives_way != nullptr) {
        events.unsubscribe(gives_way.get());
      }
    }
    if (context_.stopping) {
      refusal = {net::kGrpcUnavailable, "the worker is shutting down"};
    } else if (streams.size() >= context_.options.event_streams_max ||
               !events.subscribe(request.from_id(), this).has_value()) {
      refusal = no_place("event streams");
    } else {
      streams.push_back(shared_from_this());
      context_.metrics.event_streams_open.set(static_cast<double>(streams.size()));
    }
  }
  if (gives_way != nullptr) {
    context_.metrics.crowded_out.add();
    gives_way->end(gave_way());
  }
  if (!refusal.ok()) {
    end(std::move(refusal));
    return;
  }
  context_.events_pump->kick(shared_from_this());
}

void ServerEvents::on_events_available() noexcept {
  context_.events_pump->kick(shared_from_this());
}

void ServerEvents::on_room() {
  context_.events_pump->kick(shared_from_this());
}

void ServerEvents::pump() noexcept {
  if (ended_ || !call_->has_room()) {
    return;  // on_room goes on
  }
  const auto chunk = cursor_->next();
  if (!chunk) {
    return;
  }
  pb::EventBatch batch;
  kv_events::encode(*chunk, batch);
  batch.SerializeToString(&bytes_);
  context_.metrics.messages_sent.add();
  call_->send(bytes_);
  call_->flush();
  context_.events_pump->kick(shared_from_this());  // others' chunks come first
}

void ServerEvents::end(net::GrpcOutcome outcome) {
  if (!ended_.exchange(true)) {
    call_->finish(std::move(outcome));
  }
}

void ServerEvents::on_gone() {
  end({net::kGrpcCancelled, "the reader is gone"});
  context_.engine.events().unsubscribe(this);
  const MutexLock lock(context_.mutex);
  std::erase_if(context_.event_streams,
                [this](const auto& stream) { return stream.get() == this; });
  context_.metrics.event_streams_open.set(static_cast<double>(context_.event_streams.size()));
}

}  // namespace stator::session::detail
