// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_connector.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "stator/kv_events/event_wire.h"
#include "stator/kv_events/stream_follower.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/session_inbox.h"
#include "stator/session/session_protocol.h"

namespace stator::fault_sim {
namespace {

namespace pb = worker::v1;

struct Route {
  VirtualNetwork& network;
  NodeId from;
  NodeId to;
};

/// GrpcSession over a VirtualStream.
class VirtualSession final : public session::WorkerSession, public StreamEnd {
 public:
  VirtualSession(Route route, const discovery::InstanceRecord& record,
                 std::shared_ptr<session::SessionInbox> inbox)
      : wanted_{record.key.worker, record.incarnation}, inbox_(std::move(inbox)) {
    stream_ = route.network.connect(route.from, route.to, StreamKind::kSession, *this);
    send(session::make_hello(record.key.worker, record.incarnation, "frontend"));
    connect_timer_ = inbox_->shard().after(session::GrpcOptions{}.connect_deadline, [this] {
      if (!opened_) {
        broken(Error(Code::kUnavailable, "the worker did not answer"));
      }
    });
  }
  VirtualSession(const VirtualSession&) = delete;
  VirtualSession& operator=(const VirtualSession&) = delete;
  ~VirtualSession() override { close(); }

  WorkerId worker() const override { return inbox_->requests().worker(); }

  void submit(inference::EngineRequest request) override {
    if (!inbox_->requests().open()) {
      return;
    }
    const inference::RequestKey key = request.key;
    inbox_->requests().begin(key);
    auto message = session::make_submit(request);
    if (message) {
      send(std::move(*message));
    } else {
      inbox_->push(session::SessionRejected{{key, std::move(message.error())}});
    }
  }

  void cancel(inference::RequestKey key, session::CancelReason reason) override {
    if (inbox_->requests().forget(key)) {
      send(session::make_cancel(key, reason));
    }
  }

  void close() override {
    connect_timer_.cancel();
    inbox_->close();
    stream_.reset();
  }

  void on_message(std::string bytes) override {
    pb::WorkerMessage message;
    if (!message.ParseFromString(bytes)) {
      broken(Error(Code::kDisconnected, "a message does not parse"));
      return;
    }
    auto event = session::read_message(message, wanted_, inbox_->metrics());
    if (!event) {
      broken(std::move(event.error()));
      return;
    }
    opened_ = opened_ || std::holds_alternative<session::SessionOpened>(*event);
    inbox_->push(std::move(*event));
  }

  void on_broken(std::string reason) override {
    broken(Error(opened_ ? Code::kDisconnected : Code::kUnavailable, std::move(reason)));
  }

 private:
  void send(std::unique_ptr<pb::ClientMessage> message) {
    if (stream_ != nullptr) {
      inbox_->metrics().messages_sent.add();
      stream_->send(message->SerializeAsString());
    }
  }
  void broken(Error error) {
    stream_.reset();
    inbox_->push(session::SessionClosed{std::move(error)});
  }

  const session::WantedWorker wanted_;
  const std::shared_ptr<session::SessionInbox> inbox_;  // shared with wake-ups on their way
  std::unique_ptr<VirtualStream> stream_;               // null: broken or closed
  net::Timer connect_timer_;
  bool opened_ = false;
};

/// An Events call over a VirtualStream.
class VirtualEventsStream final : public kv_events::EventsStream, public StreamEnd {
 public:
  VirtualEventsStream(Route route, const pb::EventsRequest& request, net::Shard& shard,
                      kv_events::EventsStreamOwner& owner)
      : shard_(shard), owner_(owner) {
    stream_ = route.network.connect(route.from, route.to, StreamKind::kEvents, *this);
    stream_->send(request.SerializeAsString());
  }

  void on_message(std::string bytes) override {
    pb::EventBatch batch;
    if (!batch.ParseFromString(bytes)) {
      end("a message does not parse");
      return;
    }
    auto chunk = kv_events::decode(batch);
    if (!chunk) {
      end(chunk.error().message());
      return;
    }
    if (Status taken = owner_.on_chunk(std::move(*chunk)); !taken) {
      end(taken.error().message());
    }
  }
  void on_broken(std::string reason) override { end(std::move(reason)); }

 private:
  /// On the loop's next turn, so that the follower is not called from inside its own call.
  void end(std::string reason) {
    stream_.reset();
    ended_ = shard_.after(Duration::zero(),
                          [this, reason = std::move(reason)] { owner_.on_ended(reason); });
  }

  net::Shard& shard_;
  kv_events::EventsStreamOwner& owner_;
  std::unique_ptr<VirtualStream> stream_;
  net::Timer ended_;
};

class VirtualConnector final : public session::Connector {
 public:
  VirtualConnector(VirtualNetwork& network, NodeId node, Metrics& metrics)
      : network_(network),
        node_(node),
        metrics_(metrics),
        event_reconnects_(metrics.counter("stator_runtime_event_reconnects_total",
                                          "KV event streams opened again")) {}

  std::unique_ptr<session::WorkerSession> open_session(const discovery::InstanceRecord& record,
                                                       net::Shard& shard,
                                                       session::SessionEvents& events) override {
    return std::make_unique<VirtualSession>(
        route_to(record), record,
        std::make_shared<session::SessionInbox>(record.key.worker, shard, events, metrics_));
  }

  std::unique_ptr<kv_events::EventFollower> follow_events(
      const discovery::InstanceRecord& record, net::Shard& shard,
      kv_events::KvEventsListener& listener) override {
    kv_events::StreamFollower::Setup setup{.worker = record.key.worker,
                                           .open = nullptr,
                                           .reconnects = event_reconnects_,
                                           .rejected_messages = metrics_.rejected_messages};
    setup.open = [route = route_to(record), &shard](Incarnation incarnation, uint64_t from_id,
                                                    kv_events::EventsStreamOwner& owner) {
      pb::EventsRequest request;
      request.set_incarnation(incarnation.value());
      request.set_from_id(from_id);
      return std::make_unique<VirtualEventsStream>(route, request, shard, owner);
    };
    return std::make_unique<kv_events::StreamFollower>(std::move(setup), shard, listener);
  }

 private:
  Route route_to(const discovery::InstanceRecord& record) {
    return {network_, node_, network_.node(record.address)};
  }

  VirtualNetwork& network_;
  const NodeId node_;
  const session::SessionMetrics metrics_;
  const Counter event_reconnects_;
};

}  // namespace

std::unique_ptr<session::Connector> make_virtual_connector(VirtualNetwork& network, NodeId node,
                                                           Metrics& metrics) {
  return std::make_unique<VirtualConnector>(network, node, metrics);
}

}  // namespace stator::fault_sim
