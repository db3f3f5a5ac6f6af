// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_plane.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <variant>

#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/event_publisher.h"
#include "stator/kv_events/plane_cursor.h"
#include "stator/kv_events/reply_cursor.h"
#include "stator/net/backoff.h"

namespace stator::fault_sim {
namespace {

using namespace std::chrono_literals;
using kv_events::PlaneCursor;

constexpr Duration kLatencyMin = 100us;
constexpr Duration kLatencyMore = 400us;
constexpr Duration kLook = 100ms;  // of a publisher, for events and the time
// As nats_connector_service.cc.
constexpr Duration kAnswer = 2s;
constexpr Duration kRetryMin = 100ms;
constexpr Duration kRetryMax = 8s;

std::string events_of(WorkerId worker) {
  return fmt::format("events.{}", worker.value());
}
std::string questions_to(WorkerId worker) {
  return fmt::format("questions.{}", worker.value());
}

/// A question names where its answers go, as the reply subject of a broker does.
struct Question {
  std::string reply_to;
  uint64_t number = 0;
  std::string query;
};

std::string pack(uint64_t number, std::string_view reply_to, std::string_view body) {
  return fmt::format("{} {}\n{}", number, reply_to, body);
}

Question unpack(std::string_view bytes) {
  const size_t line = bytes.find('\n');
  const size_t space = bytes.find(' ');
  return {.reply_to = std::string(bytes.substr(space + 1, line - space - 1)),
          .number = std::stoull(std::string(bytes.substr(0, space))),
          .query = std::string(bytes.substr(line + 1))};
}

/// Production's cursor with the timers of its shell.
class PlaneFollower final : public kv_events::EventFollower {
 public:
  PlaneFollower(VirtualPlane& plane, NodeId node, const discovery::InstanceRecord& record,
                net::Shard& shard, kv_events::KvEventsListener& listener, std::string inbox)
      : plane_(plane),
        node_(node),
        worker_(record.key.worker),
        shard_(shard),
        inbox_(std::move(inbox)),
        cursor_(record.key.worker, listener),
        events_(plane, node, events_of(worker_),
                [this](const std::string& bytes) { on_loop([&] { on_message(bytes); }); }),
        answers_(plane, node, inbox_,
                 [this](const std::string& bytes) { on_loop([&] { on_answer(bytes); }); }) {
    send(cursor_.start());
  }

  uint64_t last_id() const override { return cursor_.last_id(); }

 private:
  void on_loop(const std::function<void()>& task) { plane_.time().on_loop(shard_, task); }
  void on_message(const std::string& bytes) {
    auto message = kv_events::decode_envelope(bytes);
    if (message) {
      if (const auto query = cursor_.on_message(std::move(*message))) {
        send(*query);
      }
    }
  }
  void on_answer(const std::string& bytes) {
    const Question answer = unpack(bytes);
    auto reply = kv_events::decode_reply(answer.query);
    if (!reply) {
      return;
    }
    if (const auto query = cursor_.on_reply(answer.number, std::move(*reply))) {
      send(*query);
    } else if (!cursor_.asking()) {
      retry_.reset();
      timer_.cancel();
    } else if (answer.number == asked_) {
      await_answer();
    }
  }
  void send(const kv_events::PlaneCursor::Query& query) {
    asked_ = query.number;
    plane_.send(node_, questions_to(worker_), pack(query.number, inbox_, encode(query.query)));
    await_answer();
  }
  void await_answer() {
    timer_ = shard_.after(kAnswer, [this] {
      timer_ = shard_.after(retry_.next(), [this] { send(cursor_.on_timeout()); });
    });
  }

  VirtualPlane& plane_;
  const NodeId node_;
  const WorkerId worker_;
  net::Shard& shard_;
  const std::string inbox_;
  kv_events::PlaneCursor cursor_;
  net::Backoff retry_{kRetryMin, kRetryMax};
  uint64_t asked_ = 0;
  net::Timer timer_;
  VirtualPlane::Subscription events_;
  VirtualPlane::Subscription answers_;
};

class PlaneConnector final : public session::Connector {
 public:
  PlaneConnector(std::unique_ptr<session::Connector> sessions, VirtualPlane& plane, NodeId node)
      : sessions_(std::move(sessions)), plane_(plane), node_(node) {}

  std::unique_ptr<session::WorkerSession> open_session(const discovery::InstanceRecord& record,
                                                       net::Shard& shard,
                                                       session::SessionEvents& events) override {
    return sessions_->open_session(record, shard, events);
  }
  std::unique_ptr<kv_events::EventFollower> follow_events(
      const discovery::InstanceRecord& record, net::Shard& shard,
      kv_events::KvEventsListener& listener) override {
    return std::make_unique<PlaneFollower>(plane_, node_, record, shard, listener,
                                           fmt::format("inbox.{}.{}", node_, ++inboxes_));
  }

 private:
  const std::unique_ptr<session::Connector> sessions_;
  VirtualPlane& plane_;
  const NodeId node_;
  uint64_t inboxes_ = 0;
};

}  // namespace

VirtualPlane::Subscription::Subscription(VirtualPlane& plane, NodeId node, std::string subject,
                                         Hear hear)
    : plane_(plane),
      node_(node),
      subject_(std::move(subject)),
      hear_(std::move(hear)),
      id_(++plane.last_id_) {
  plane_.subscribers_[id_] = this;
}

VirtualPlane::Subscription::~Subscription() {
  plane_.subscribers_.erase(id_);
}

void VirtualPlane::send(NodeId from, const std::string& subject, const std::string& message) {
  if (!works(from)) {
    return;
  }
  const auto draw_late = [this] {
    return Duration(random_.below(static_cast<uint64_t>(kLate.count())));
  };
  for (const auto& [id, subscriber] : subscribers_) {
    if (subscriber->subject_ != subject || random_.uniform() < faults_.drop) {
      continue;
    }
    Duration after = kLatencyMin +
                     Duration(random_.below(static_cast<uint64_t>(Duration(kLatencyMore).count())));
    after += random_.uniform() < faults_.late ? draw_late() : Duration::zero();
    deliver(id, message, after);
    if (random_.uniform() < faults_.duplicate) {
      deliver(id, message, after + draw_late());
    }
  }
}

void VirtualPlane::deliver(uint64_t subscriber, const std::string& message, Duration after) {
  time_.after(after, [this, subscriber, message] {
    const auto known = subscribers_.find(subscriber);
    if (known != subscribers_.end() && works(known->second->node_)) {
      known->second->hear_(message);
    }
  });
}

VirtualPublisher::VirtualPublisher(VirtualPlane& plane, NodeId node, WorkerId worker,
                                   Incarnation incarnation, kv::EventLog& log)
    : plane_(plane),
      node_(node),
      worker_(worker),
      incarnation_(incarnation),
      log_(log),
      questions_(plane, node, questions_to(worker),
                 [this](const std::string& question) { answer(question); }) {
  log_.subscribe(1, this).ignore("the log of a worker that begins has room for it");
  tick();
}

VirtualPublisher::~VirtualPublisher() {
  log_.unsubscribe(this);
}

void VirtualPublisher::on_events_available() noexcept {
  plane_.time().after(Duration::zero(), [this, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) {
      publish_all();
    }
  });
}

void VirtualPublisher::tick() {
  publish_all();
  plane_.time().after(kLook, [this, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) {
      tick();
    }
  });
}

void VirtualPublisher::publish_all() {
  while (true) {
    auto read = log_.read_from(next_id_, kv_events::ReplyCursor::kPartLimits.events);
    if (const auto* gap = std::get_if<kv::EventLog::Gap>(&read)) {
      next_id_ = gap->last_id + 1;
      continue;
    }
    auto& events = std::get<std::vector<kv::KvEvent>>(read);
    const bool is_heartbeat = events.empty();
    if (is_heartbeat && plane_.time().now() - sent_at_ < kv_events::EventPublisher::kHeartbeat) {
      return;
    }
    const uint64_t last_id = is_heartbeat ? next_id_ - 1 : events.back().event_id;
    publish(std::move(events), last_id);
    if (is_heartbeat) {
      return;
    }
  }
}

void VirtualPublisher::publish(std::vector<kv::KvEvent> events, uint64_t last_id) {
  plane_.send(node_, events_of(worker_),
              encode(kv_events::EventEnvelope{.publisher = worker_,
                                              .incarnation = incarnation_,
                                              .sequence = sequence_++,
                                              .last_event_id = last_id,
                                              .events = std::move(events)}));
  sent_at_ = plane_.time().now();
  next_id_ = last_id + 1;
}

void VirtualPublisher::answer(const std::string& bytes) {
  const Question question = unpack(bytes);
  const auto query = kv_events::decode_query(question.query);
  if (!query) {
    return;
  }
  kv_events::ReplyCursor cursor(log_, worker_, incarnation_,
                                kv_events::ReplyCursor::start_of(*query, incarnation_));
  while (const auto reply = cursor.next()) {
    plane_.send(node_, question.reply_to, pack(question.number, "", encode(*reply)));
  }
}

std::unique_ptr<session::Connector> make_virtual_plane_connector(
    std::unique_ptr<session::Connector> sessions, VirtualPlane& plane, NodeId node) {
  return std::make_unique<PlaneConnector>(std::move(sessions), plane, node);
}

}  // namespace stator::fault_sim
