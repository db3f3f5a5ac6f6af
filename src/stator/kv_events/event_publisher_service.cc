// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <condition_variable>
#include <optional>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/event_publisher.h"
#include "stator/kv_events/reply_cursor.h"
#include "stator/net/thread.h"

namespace stator::kv_events {
namespace {

constexpr auto kPartLimits = ReplyCursor::kPartLimits;
// How soon it looks again for a broker that is away.
constexpr Duration kRetry = std::chrono::milliseconds(100);

int64_t unix_millis(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

struct PublisherMetrics {
  explicit PublisherMetrics(Metrics& metrics)
      : messages(metrics.counter("stator_events_published_total",
                                 "messages with KV events given to the broker")),
        overwritten(metrics.counter("stator_events_overwritten_total",
                                    "times that events left the log before the broker took them; "
                                    "readers get a dump")),
        oversized(metrics.counter("stator_events_oversized_total",
                                  "events larger than the broker takes; readers get a dump")),
        stored(metrics.counter("stator_events_stored_total",
                               "messages with KV events that the broker has on its disk")),
        unstored(metrics.counter("stator_events_unstored_total",
                                 "messages that had to go out without being stored; newcomers "
                                 "ask the worker")),
        queries(metrics.counter("stator_events_queries_answered_total",
                                "questions of readers that lost events")),
        unsent(metrics.gauge("stator_events_unsent", "KV events that wait for the broker")) {}
  Counter messages;
  Counter overwritten;
  Counter oversized;
  Counter stored;
  Counter unstored;
  Counter queries;
  Gauge unsent;
};

class Service final : public EventPublisher, public kv::EventLogListener, public NatsListener {
 public:
  Service(NatsConnection& nats, const discovery::InstanceRecord& record, kv::EventLog& log,
          const Clock& clock, Metrics& metrics, std::unique_ptr<DurableSink> sink)
      : nats_(nats),
        log_(log),
        clock_(clock),
        metrics_(metrics),
        worker_(record.key.worker),
        incarnation_(record.incarnation),
        subject_(events_subject(record.key)),
        alive_subject_(sink == nullptr ? subject_ : events_alive_subject(record.key)),
        sink_(std::move(sink)) {}
  ~Service() override {
    queries_.reset();
    log_.unsubscribe(this);
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  Status start(const discovery::InstanceKey& key) {
    STATOR_TRY(queries_, nats_.subscribe(events_query_subject(key), *this));
    STATOR_CHECK(log_.subscribe(1, this));
    thread_ = net::Thread("kv-events", [this] { run(); });
    return {};
  }

  void on_events_available() noexcept override {
    {
      const MutexLock lock(mutex_);
      available_ = true;
    }
    wake_.notify_all();
  }

  void on_message(std::string_view subject, std::string_view payload,
                  std::string_view reply) override;

 private:
  void run();
  void publish_all();
  void publish(std::vector<kv::KvEvent> events, uint64_t last_id);
  Status send(const std::string& message, bool is_heartbeat, uint64_t last_id);
  bool send_reply(std::string_view to, const EventReply& reply);
  void answer(const EventQuery& query, std::string_view to);
  bool answer_from(uint64_t start, uint32_t& part, std::string_view to);

  NatsConnection& nats_;
  kv::EventLog& log_;
  const Clock& clock_;
  PublisherMetrics metrics_;
  const WorkerId worker_;
  const Incarnation incarnation_;
  const std::string subject_;
  const std::string alive_subject_;
  const std::unique_ptr<DurableSink> sink_;  // null: nothing is stored
  std::unique_ptr<NatsConnection::Subscription> queries_;

  // Of the thread.
  uint64_t next_id_ = 1;
  uint64_t sequence_ = 0;
  bool sent_ = false;  // the last attempt got through
  TimePoint sent_at_{};
  std::optional<TimePoint> refused_at_;  // since when the broker stores nothing

  Mutex mutex_;
  std::condition_variable_any wake_;
  bool available_ STATOR_GUARDED_BY(mutex_) = false;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

void Service::run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      wake_.wait_for(lock, kRetry,
                     [this]() STATOR_REQUIRES(mutex_) { return available_ || stopping_; });
      if (stopping_) {
        return;
      }
      available_ = false;
    }
    publish_all();
    metrics_.unsent.set(static_cast<double>(log_.last_id() + 1 - next_id_));
  }
}

void Service::publish_all() {
  while (nats_.connected()) {
    auto read = log_.read_from(next_id_, kPartLimits.events);
    if (const auto* gap = std::get_if<kv::EventLog::Gap>(&read)) {
      metrics_.overwritten.add();
      next_id_ = gap->last_id + 1;
      continue;
    }
    auto& events = std::get<std::vector<kv::KvEvent>>(read);
    const bool is_heartbeat = events.empty();
    if (is_heartbeat && sent_ && clock_.now() - sent_at_ < kHeartbeat) {
      return;
    }
    size_t blocks = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      blocks += block_count(events[i]);
      if (blocks > kPartLimits.blocks && i > 0) {
        events.resize(i);
      }
    }
    const uint64_t last_id = is_heartbeat ? next_id_ - 1 : events.back().event_id;
    publish(std::move(events), last_id);
    if (is_heartbeat || !sent_) {
      return;
    }
  }
}

/// Stores what is to be stored; kUnavailable means again later.
Status Service::send(const std::string& message, bool is_heartbeat, uint64_t last_id) {
  if (sink_ == nullptr || is_heartbeat) {
    return nats_.publish(is_heartbeat ? alive_subject_ : subject_, message);
  }
  Status stored = sink_->store(
      message, fmt::format("{}-{}-{}", worker_.value(), incarnation_.value(), last_id));
  if (stored) {
    refused_at_.reset();
    metrics_.stored.add();
    return stored;
  }
  const TimePoint now = clock_.now();
  refused_at_ = refused_at_.value_or(now);
  if (stored.error().code() == Code::kTooLarge || now - *refused_at_ < kStoreWait) {
    return stored;
  }
  metrics_.unstored.add();
  return nats_.publish(subject_, message);
}

void Service::publish(std::vector<kv::KvEvent> events, uint64_t last_id) {
  const bool is_heartbeat = events.empty();
  const Status sent = send(encode(EventEnvelope{.publisher = worker_,
                                                .incarnation = incarnation_,
                                                .sequence = sequence_,
                                                .published_at_ms = unix_millis(clock_.wall_now()),
                                                .last_event_id = last_id,
                                                .events = std::move(events)}),
                           is_heartbeat, last_id);
  sent_ = sent.has_value();
  if (sent_) {
    metrics_.messages.add();
    ++sequence_;
    sent_at_ = clock_.now();
  } else if (sent.error().code() == Code::kTooLarge) {
    metrics_.oversized.add();
    sent_ = true;  // go on behind it
  } else {
    return;
  }
  next_id_ = last_id + 1;
}

void Service::on_message(std::string_view /*subject*/, std::string_view payload,
                         std::string_view reply) {
  const auto query = decode_query(payload);
  if (!query.has_value()) {
    log::warn("kv_events", query.error().message());
    return;
  }
  if (!reply.empty() && query->worker == worker_ && query->dp_rank == 0) {
    metrics_.queries.add();
    answer(*query, reply);
  }
}

void Service::answer(const EventQuery& query, std::string_view to) {
  uint32_t part = 0;
  if (!answer_from(ReplyCursor::start_of(query, incarnation_), part, to)) {
    answer_from(0, part, to);  // an event too large for the broker: a dump has smaller parts
  }
}

/// False: a part was too large.
bool Service::answer_from(uint64_t start, uint32_t& part, std::string_view to) {
  ReplyCursor cursor(log_, worker_, incarnation_, start, part);
  while (const auto reply = cursor.next()) {
    if (!send_reply(to, *reply)) {
      return false;
    }
    ++part;
  }
  return true;
}

bool Service::send_reply(std::string_view to, const EventReply& reply) {
  const Status sent = nats_.publish(to, encode(reply));
  if (!sent.has_value() && sent.error().code() == Code::kTooLarge) {
    metrics_.oversized.add();
    return false;
  }
  return true;  // should the broker be gone, the reader asks again
}

}  // namespace

std::string events_subject(const discovery::InstanceKey& key) {
  return fmt::format("namespace.{}.component.{}.kv-events", key.namespace_name, key.component);
}

std::string events_alive_subject(const discovery::InstanceKey& key) {
  return events_subject(key) + ".alive";
}

std::string events_query_subject(const discovery::InstanceKey& key) {
  return fmt::format("namespace.{}.component.{}.kv_indexer_query.{}", key.namespace_name,
                     key.component, key.worker.value());
}

Result<std::unique_ptr<EventPublisher>> EventPublisher::start(
    NatsConnection& nats, const discovery::InstanceRecord& record, kv::EventLog& log,
    const Clock& clock, Metrics& metrics, std::unique_ptr<DurableSink> sink) {
  auto service = std::make_unique<Service>(nats, record, log, clock, metrics, std::move(sink));
  STATOR_CHECK(service->start(record.key), "publishing KV events");
  return service;
}

}  // namespace stator::kv_events
