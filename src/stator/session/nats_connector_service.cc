// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/event_publisher.h"
#include "stator/kv_events/plane_cursor.h"
#include "stator/net/backoff.h"
#include "stator/session/nats_connector.h"

namespace stator::session {
namespace {

using kv_events::PlaneCursor;

constexpr std::string_view kLogTarget = "kv_events";
constexpr size_t kInFlightBytesMax = size_t{64} << 20;
constexpr size_t kAskingMax = 16;  // dumps at once: a new frontend asks every worker
constexpr Duration kTurn = std::chrono::milliseconds(50);  // until it looks for its turn again
constexpr Duration kAnswer = std::chrono::seconds(2);      // without a part of the answer
constexpr Duration kRetryMin = std::chrono::milliseconds(100);
constexpr Duration kRetryMax = std::chrono::seconds(8);

/// Who may ask now: kAskingMax at once, the others in the order they came. Thread-safe.
class Turns {
 public:
  explicit Turns(Gauge asking) : asking_gauge_(asking) {}
  /// `ticket` is the caller's place in the queue; 0: it has none yet.
  bool try_take(uint64_t& ticket) {
    const MutexLock lock(mutex_);
    if (ticket == 0) {
      ticket = ++tickets_;
      waiting_.insert(ticket);
    }
    const size_t free = kAskingMax - asking_;
    const auto before = std::distance(waiting_.begin(), waiting_.find(ticket));
    if (static_cast<size_t>(before) >= free) {
      return false;
    }
    waiting_.erase(std::exchange(ticket, 0));
    asking_gauge_.set(static_cast<double>(++asking_));
    return true;
  }
  void give_back() {
    const MutexLock lock(mutex_);
    asking_gauge_.set(static_cast<double>(--asking_));
  }
  void leave_queue(uint64_t& ticket) {
    const MutexLock lock(mutex_);
    waiting_.erase(std::exchange(ticket, 0));
  }

 private:
  const Gauge asking_gauge_;
  Mutex mutex_;
  size_t asking_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t tickets_ STATOR_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> waiting_ STATOR_GUARDED_BY(mutex_);  // bounded by followers
};

/// What is on its way from the broker to loops. Shared with all of that, which may outlive the
/// connector.
struct InFlightBytes {
  explicit InFlightBytes(Metrics& metrics)
      : gauge(metrics.gauge("stator_events_plane_in_flight_bytes",
                            "messages on their way from the broker to a loop")) {}
  Gauge gauge;
  std::atomic<size_t> count{0};
};

/// Shared by the followers of a process.
struct Plane {
  Plane(kv_events::NatsConnection& connection, Metrics& metrics)
      : nats(connection),
        inbox(connection.make_inbox()),
        messages(metrics.counter("stator_events_plane_messages_total",
                                 "messages with KV events that came over the broker")),
        corrupt(metrics.counter("stator_events_plane_corrupt_total",
                                "messages from the broker that cannot be read")),
        dropped(metrics.counter("stator_events_plane_dropped_total",
                                "messages dropped because a loop is too slow; asked for again")),
        queries(metrics.counter("stator_events_plane_queries_total",
                                "times that a worker was asked for events or a dump")),
        unanswered(metrics.counter("stator_events_plane_unanswered_total",
                                   "questions to workers without a whole answer in time")),
        turns(metrics.gauge("stator_events_plane_asking",
                            "workers whose answer is awaited, at most 16")),
        in_flight(std::make_shared<InFlightBytes>(metrics)) {}
  kv_events::NatsConnection& nats;
  const std::string inbox;  ///< answers come to `inbox`.WORKER.NUMBER
  Counter messages;
  Counter corrupt;
  Counter dropped;
  Counter queries;
  Counter unanswered;
  Turns turns;
  const std::shared_ptr<InFlightBytes> in_flight;
};

/// Room for a message until the loop has taken it.
class InFlight {
 public:
  InFlight(std::shared_ptr<InFlightBytes> all, size_t bytes) : all_(std::move(all)), bytes_(bytes) {
    all_->gauge.set(static_cast<double>(all_->count += bytes_));
  }
  InFlight(InFlight&& other) noexcept : all_(std::move(other.all_)), bytes_(other.bytes_) {}
  InFlight& operator=(InFlight&&) = delete;
  ~InFlight() {
    if (all_ != nullptr) {
      all_->gauge.set(static_cast<double>(all_->count -= bytes_));
    }
  }

 private:
  std::shared_ptr<InFlightBytes> all_;
  size_t bytes_;
};

class Followers;

/// One follower's part that messages on their way may outlive. On the loop but for its making.
class Follower : public std::enable_shared_from_this<Follower> {
 public:
  Follower(const discovery::InstanceRecord& record, net::Shard& home,
           kv_events::KvEventsListener& listener, Plane& plane)
      : shard(home),
        plane_(plane),
        worker_(record.key.worker),
        subject_(kv_events::events_query_subject(record.key)),
        cursor_(std::in_place, record.key.worker, listener) {}

  void start() { send(cursor_->start()); }
  /// The first question goes to the broker's memory.
  void start(const discovery::InstanceRecord& record, kv_events::DurableEvents& durable,
             Followers& followers);
  /// What that says of the first question; nothing: the worker is asked.
  void on_restored(const kv_events::PlaneCursor::Query& query,
                   std::vector<kv_events::EventReply> parts) {
    if (!cursor_) {
      return;
    }
    if (parts.empty()) {
      send(query);
      return;
    }
    for (kv_events::EventReply& part : parts) {
      on_reply(query.number, std::move(part));
    }
    if (cursor_->asking()) {
      send(cursor_->on_timeout());
    }
  }
  void close() {
    cursor_.reset();
    timer_.cancel();
    end_turn();
    plane_.turns.leave_queue(ticket_);
  }
  uint64_t last_id() const { return cursor_ ? cursor_->last_id() : 0; }

  void on_message(kv_events::EventEnvelope message) {
    if (cursor_) {
      act(cursor_->on_message(std::move(message)));
    }
  }
  void on_reply(uint64_t number, kv_events::EventReply reply) {
    if (!cursor_) {
      return;
    }
    const auto query = cursor_->on_reply(number, std::move(reply));
    if (query) {
      send(*query);
    } else if (!cursor_->asking()) {
      retry_.reset();
      timer_.cancel();
      end_turn();
    } else if (number == asked_ && has_turn_) {
      await_answer();
    }
  }
  /// Nobody listens where the question went.
  void on_refusal(uint64_t number) {
    if (cursor_ && cursor_->asking() && number == asked_ && has_turn_) {
      fail();
    }
  }

  net::Shard& shard;

 private:
  void act(const std::optional<kv_events::PlaneCursor::Query>& query) {
    if (query) {
      send(*query);
    }
  }
  void send(const kv_events::PlaneCursor::Query& query) {
    has_turn_ = has_turn_ || plane_.turns.try_take(ticket_);
    if (!has_turn_) {
      timer_ = shard.after(kTurn, [this, query] { send(query); });
      return;
    }
    plane_.queries.add();
    asked_ = query.number;
    const std::string answers =
        fmt::format("{}.{}.{}", plane_.inbox, worker_.value(), query.number);
    if (plane_.nats.publish(subject_, encode(query.query), answers).has_value()) {
      await_answer();
    } else {
      fail();
    }
  }
  void await_answer() {
    timer_ = shard.after(kAnswer, [this] { fail(); });
  }
  /// Others first, then again.
  void fail() {
    plane_.unanswered.add();
    end_turn();
    timer_ = shard.after(retry_.next(), [this] { send(cursor_->on_timeout()); });
  }
  void end_turn() {
    if (std::exchange(has_turn_, false)) {
      plane_.turns.give_back();
    }
  }

  Plane& plane_;
  const WorkerId worker_;
  const std::string subject_;
  std::optional<kv_events::PlaneCursor> cursor_;  // empty once closed
  net::Backoff retry_{kRetryMin, kRetryMax};
  uint64_t ticket_ = 0;    // in the queue of those who want to ask
  bool has_turn_ = false;  // while an answer is awaited
  uint64_t asked_ = 0;     // number of the newest question
  net::Timer timer_;
};

/// The number after the last dot, which is cut off with it.
std::optional<uint64_t> take_number(std::string_view& subject) {
  const size_t dot = subject.rfind('.');
  if (dot == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view digits = subject.substr(dot + 1);
  subject = subject.substr(0, dot);
  uint64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

/// Which follower a message is for. Thread-safe.
class Followers {
 public:
  void add(WorkerId worker, const std::shared_ptr<Follower>& follower) {
    const MutexLock lock(mutex_);
    all_.insert_or_assign(worker, follower);
  }
  void remove(WorkerId worker, const std::shared_ptr<Follower>& follower) {
    const MutexLock lock(mutex_);
    const auto found = all_.find(worker);
    if (found != all_.end() && found->second == follower) {
      all_.erase(found);
    }
  }
  /// Under the lock, so that the shard of a follower that is there is there, too.
  template <typename Deliver>
  void post(WorkerId worker, Plane& plane, size_t bytes, Deliver deliver) {
    const MutexLock lock(mutex_);
    const auto found = all_.find(worker);
    if (found == all_.end()) {
      return;
    }
    const bool fits = plane.in_flight->count + bytes <= kInFlightBytesMax;
    if (!fits || !found->second->shard.post(
                     [follower = found->second, room = InFlight(plane.in_flight, bytes),
                      deliver = std::move(deliver)]() mutable { deliver(*follower); })) {
      plane.dropped.add();
    }
  }

 private:
  Mutex mutex_;
  FlatMap<WorkerId, std::shared_ptr<Follower>> all_ STATOR_GUARDED_BY(mutex_);  // shared: see above
};

void Follower::start(const discovery::InstanceRecord& record, kv_events::DurableEvents& durable,
                     Followers& followers) {
  durable.find(record, [&followers, &plane = plane_, worker = worker_,
                        query = cursor_->start()](std::vector<kv_events::EventReply> parts) {
    followers.post(worker, plane, 0, [query, parts = std::move(parts)](Follower& follower) mutable {
      follower.on_restored(query, std::move(parts));
    });
  });
}

class MessageListener final : public kv_events::NatsListener {
 public:
  MessageListener(Plane& plane, Followers& followers) : plane_(plane), followers_(followers) {}
  void on_message(std::string_view /*subject*/, std::string_view payload,
                  std::string_view /*reply*/) override {
    auto message = kv_events::decode_envelope(payload);
    if (!message.has_value()) {
      plane_.corrupt.add();
      return;
    }
    plane_.messages.add();
    const WorkerId worker = message->publisher;
    followers_.post(worker, plane_, payload.size(),
                    [message = std::move(*message)](Follower& follower) mutable {
                      follower.on_message(std::move(message));
                    });
  }

 private:
  Plane& plane_;
  Followers& followers_;
};

class ReplyListener final : public kv_events::NatsListener {
 public:
  ReplyListener(Plane& plane, Followers& followers) : plane_(plane), followers_(followers) {}
  void on_message(std::string_view subject, std::string_view payload,
                  std::string_view /*reply*/) override {
    const auto number = take_number(subject);
    const auto asked_worker = take_number(subject);
    if (payload.empty() && number && asked_worker) {
      followers_.post(WorkerId(*asked_worker), plane_, 0,
                      [number = *number](Follower& follower) { follower.on_refusal(number); });
      return;
    }
    auto answer = kv_events::decode_reply(payload);
    if (!answer.has_value() || !number || answer->worker.value() != asked_worker) {
      plane_.corrupt.add();
      return;
    }
    const WorkerId worker = answer->worker;
    followers_.post(worker, plane_, payload.size(),
                    [number = *number, answer = std::move(*answer)](Follower& follower) mutable {
                      follower.on_reply(number, std::move(answer));
                    });
  }

 private:
  Plane& plane_;
  Followers& followers_;
};

class NatsFollower final : public kv_events::EventFollower {
 public:
  NatsFollower(discovery::InstanceKey key, std::shared_ptr<Follower> follower, Followers& followers,
               kv_events::DurableEvents* durable)
      : key_(std::move(key)),
        follower_(std::move(follower)),
        followers_(followers),
        durable_(durable) {}
  ~NatsFollower() override {
    followers_.remove(key_.worker, follower_);
    follower_->close();
    if (durable_ != nullptr) {
      durable_->forget(key_);
    }
  }
  uint64_t last_id() const override { return follower_->last_id(); }

 private:
  const discovery::InstanceKey key_;
  const std::shared_ptr<Follower> follower_;  // shared with messages on their way
  Followers& followers_;
  kv_events::DurableEvents* const durable_;
};

class NatsConnector final : public Connector {
 public:
  NatsConnector(std::unique_ptr<Connector> sessions, kv_events::NatsConnection& nats,
                Metrics& metrics, std::unique_ptr<kv_events::DurableEvents> durable)
      : sessions_(std::move(sessions)),
        plane_(nats, metrics),
        messages_(plane_, followers_),
        replies_(plane_, followers_),
        durable_(std::move(durable)) {
    subscribe(plane_.inbox + ".*.*", replies_);
  }

  std::unique_ptr<WorkerSession> open_session(const discovery::InstanceRecord& record,
                                              net::Shard& shard, SessionEvents& events) override {
    return sessions_->open_session(record, shard, events);
  }

  std::unique_ptr<kv_events::EventFollower> follow_events(
      const discovery::InstanceRecord& record, net::Shard& shard,
      kv_events::KvEventsListener& listener) override {
    subscribe(kv_events::events_subject(record.key), messages_);
    auto follower = std::make_shared<Follower>(record, shard, listener, plane_);
    followers_.add(record.key.worker, follower);
    if (durable_ == nullptr) {
      follower->start();
    } else {
      subscribe(kv_events::events_alive_subject(record.key), messages_);
      follower->start(record, *durable_, followers_);
    }
    return std::make_unique<NatsFollower>(record.key, std::move(follower), followers_,
                                          durable_.get());
  }

 private:
  /// Once per subject.
  void subscribe(const std::string& subject, kv_events::NatsListener& listener) {
    const MutexLock lock(mutex_);
    if (subscriptions_.contains(subject)) {
      return;
    }
    auto subscription = plane_.nats.subscribe(subject, listener);
    if (subscription.has_value()) {
      subscriptions_.emplace(subject, std::move(*subscription));
    } else {
      log::error(kLogTarget, subscription.error().message());
    }
  }

  const std::unique_ptr<Connector> sessions_;
  Plane plane_;
  Followers followers_;
  MessageListener messages_;
  ReplyListener replies_;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<kv_events::NatsConnection::Subscription>> subscriptions_
      STATOR_GUARDED_BY(mutex_);  // bounded by components
  const std::unique_ptr<kv_events::DurableEvents>
      durable_;  // null: none. Goes first: it calls followers
};

}  // namespace

std::unique_ptr<Connector> make_nats_connector(std::unique_ptr<Connector> sessions,
                                               kv_events::NatsConnection& nats, Metrics& metrics,
                                               std::unique_ptr<kv_events::DurableEvents> durable) {
  return std::make_unique<NatsConnector>(std::move(sessions), nats, metrics, std::move(durable));
}

}  // namespace stator::session
