// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_worker.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "stator/kv_events/event_cursor.h"
#include "stator/kv_events/event_wire.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/server_protocol.h"

namespace stator::fault_sim {
namespace {

namespace pb = worker::v1;

// Coarser than production's, where a load report leaves at most every 100 ms.
constexpr Duration kTick = std::chrono::milliseconds(250);

}  // namespace

struct VirtualWorker::Shared {
  Shared(discovery::InstanceRecord record, engine::Engine& engine, const Machine& machine)
      : context(std::move(record), engine, session::WorkerServerOptions{}, machine.clock,
                machine.metrics) {}
  session::ServerContext context;
};

/// ServerSession over a VirtualStream.
class VirtualWorker::Session final : public StreamEnd, public session::ServerProtocol::Listener {
 public:
  Session(session::ServerContext& context, std::unique_ptr<VirtualStream> stream)
      : stream_(std::move(stream)), protocol_(context, *this) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() override { protocol_.close(); }

  void on_message(std::string bytes) override {
    pb::ClientMessage message;
    if (stream_ == nullptr || !message.ParseFromString(bytes) || !protocol_.receive(message).ok()) {
      end();
      return;
    }
    flush();
  }
  void on_broken(std::string /*reason*/) override { end(); }
  void on_output() noexcept override {
    protocol_.cancel_overflowed();
    flush();
  }

  void flush() {
    while (stream_ != nullptr) {
      const auto next = protocol_.pop();
      if (!next) {
        return;
      }
      pb::WorkerMessage message;
      protocol_.encode(*next, message);
      stream_->send(message.SerializeAsString());
    }
  }
  void end() {
    protocol_.close();
    stream_.reset();
  }
  bool ended() const { return stream_ == nullptr; }
  session::ServerProtocol& protocol() { return protocol_; }

 private:
  std::unique_ptr<VirtualStream> stream_;
  session::ServerProtocol protocol_;
};

/// ServerEvents over a VirtualStream. The first message says from where on.
class VirtualWorker::Events final : public StreamEnd, public kv::EventLogListener {
 public:
  Events(session::ServerContext& context, net::VirtualTime& time,
         std::unique_ptr<VirtualStream> stream)
      : context_(context), time_(time), stream_(std::move(stream)) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() override { end(); }

  void on_message(std::string bytes) override {
    pb::EventsRequest request;
    if (cursor_ || stream_ == nullptr || !request.ParseFromString(bytes)) {
      end();
      return;
    }
    const Incarnation incarnation = context_.record.incarnation;
    const bool same_life = request.incarnation() == incarnation.value();
    cursor_.emplace(context_.engine.events(), incarnation, same_life ? request.from_id() : 0);
    context_.engine.events()
        .subscribe(request.from_id(), this)
        .ignore("at most one stream per frontend");
    on_events_available();
  }
  void on_broken(std::string /*reason*/) override { end(); }
  void on_events_available() noexcept override {
    time_.after(Duration::zero(), [this, weak = std::weak_ptr(alive_)] {
      if (!weak.expired()) {
        send();
      }
    });
  }
  void end() {
    alive_.reset();
    context_.engine.events().unsubscribe(this);
    stream_.reset();
  }
  bool ended() const { return stream_ == nullptr; }

 private:
  void send() {
    while (const auto chunk = cursor_->next()) {
      pb::EventBatch batch;
      kv_events::encode(*chunk, batch);
      stream_->send(batch.SerializeAsString());
    }
  }

  session::ServerContext& context_;
  net::VirtualTime& time_;
  std::unique_ptr<VirtualStream> stream_;
  std::optional<kv_events::EventCursor> cursor_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

VirtualWorker::VirtualWorker(Machine machine, discovery::InstanceRecord record,
                             engine::EngineConfig config,
                             std::unique_ptr<engine::ModelRunner> runner)
    : machine_(machine),
      engine_(std::move(config), std::move(runner), machine.time),
      shared_(std::make_unique<Shared>(std::move(record), engine_, machine_)) {
  machine_.network.listen(machine_.node, this);
  if (machine_.plane != nullptr) {
    const discovery::InstanceRecord& own = shared_->context.record;
    publisher_ = std::make_unique<VirtualPublisher>(*machine_.plane, machine_.node, own.key.worker,
                                                    own.incarnation, engine_.events());
  }
  tick();
}

VirtualWorker::~VirtualWorker() {
  machine_.network.listen(machine_.node, nullptr);
}

const discovery::InstanceRecord& VirtualWorker::record() const {
  return shared_->context.record;
}

StreamEnd* VirtualWorker::on_connect(std::unique_ptr<VirtualStream> stream) {
  if (stream->kind() == StreamKind::kSession) {
    sessions_.push_back(std::make_unique<Session>(shared_->context, std::move(stream)));
    return sessions_.back().get();
  }
  events_.push_back(std::make_unique<Events>(shared_->context, machine_.time, std::move(stream)));
  return events_.back().get();
}

void VirtualWorker::tick() {
  if (!machine_.network.frozen(machine_.node)) {
    std::erase_if(sessions_, [](const auto& session) { return session->ended(); });
    std::erase_if(events_, [](const auto& stream) { return stream->ended(); });
    for (const auto& session : sessions_) {
      session->protocol().expire(machine_.clock.now());
      session->protocol().offer_load(engine_.load());
      session->flush();
    }
  }
  machine_.time.after(kTick, [this, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) {
      tick();
    }
  });
}

void VirtualWorker::drain() {
  shared_->context.draining = true;
  for (const auto& session : sessions_) {
    session->protocol().drain();
    session->flush();
  }
}

void VirtualWorker::hand_over() {
  engine_.stop();
  for (const auto& session : sessions_) {
    session->end();
  }
}

size_t VirtualWorker::in_flight() const {
  size_t count = 0;
  for (const auto& session : sessions_) {
    count += session->protocol().in_flight();
  }
  return count;
}

}  // namespace stator::fault_sim
