// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/kv_events/detail/durable_state.h"
#include "stator/kv_events/durable_events.h"
#include "stator/kv_events/event_publisher.h"
#include "stator/kv_events/jet_stream.h"
#include "stator/kv_events/object_store.h"
#include "stator/net/thread.h"

namespace stator::kv_events {
namespace {
using detail::DurableState;

constexpr std::string_view kLogTarget = "kv_events::durable";
constexpr Duration kLook = std::chrono::seconds(1);     // at the streams' sizes
constexpr Duration kFresh = std::chrono::seconds(1);    // a state this old is brought up to date
constexpr Duration kCached = std::chrono::seconds(30);  // unused for longer, it is dropped

struct DurableMetrics {
  explicit DurableMetrics(Metrics& metrics)
      : restored(metrics.counter("stator_events_durable_restored_total",
                                 "workers whose blocks were learned from the broker")),
        unknown(metrics.counter("stator_events_durable_unknown_total",
                                "workers that had to be asked, as the broker knew nothing whole")),
        corrupt(metrics.counter("stator_events_durable_corrupt_total",
                                "snapshots and stored messages that cannot be read")),
        snapshots(metrics.counter("stator_events_durable_snapshots_total",
                                  "snapshots given to the broker")),
        beaten(metrics.counter("stator_events_durable_snapshots_beaten_total",
                               "snapshots not stored because another frontend was first")),
        failures(metrics.counter("stator_events_durable_failures_total",
                                 "times that the broker did not do what was asked")),
        messages(metrics.gauge("stator_events_durable_messages",
                               "messages with KV events in the stream")),
        snapshot_bytes(metrics.gauge("stator_events_durable_snapshot_bytes",
                                     "size of the last snapshot written or read")),
        incomplete(metrics.gauge("stator_events_durable_incomplete_workers",
                                 "workers of whose events the broker lacks some")) {}
  Counter restored;
  Counter unknown;
  Counter corrupt;
  Counter snapshots;
  Counter beaten;
  Counter failures;
  Gauge messages;
  Gauge snapshot_bytes;
  Gauge incomplete;
};

StreamConfig stream_config(const DurableEventsConfig& config, const discovery::InstanceKey& key) {
  return {.name = durable_stream(key),
          .subjects = {events_subject(key)},
          .bytes_max = config.stream_bytes_max};
}

/// One component's stream and bucket. On the service's thread.
class Component {
 public:
  Component(const DurableEventsConfig& config, const discovery::InstanceKey& key,
            JetStream& jet_stream, const Clock& clock, const DurableMetrics& metrics)
      : config_(config),
        stream_(stream_config(config, key)),
        jet_stream_(jet_stream),
        objects_(jet_stream, durable_bucket(key), config.snapshot_bytes_max),
        clock_(clock),
        metrics_(metrics) {}

  /// What is there now; made if need be.
  Result<const detail::DurableState*> state() {
    STATOR_CHECK(prepare());
    const TimePoint now = clock_.now();
    used_at_ = now;
    if (state_ && now - read_at_ < kFresh) {
      return &*state_;
    }
    STATOR_CHECK(read());
    read_at_ = now;
    metrics_.incomplete.set(static_cast<double>(state_->incomplete()));
    return &*state_;
  }

  /// Replaces many messages by a snapshot without those who are not `alive`.
  Status compact(const std::set<WorkerId>& alive) {
    STATOR_CHECK(prepare());
    STATOR_TRY(const StreamState now, jet_stream_.state(stream_.name));
    metrics_.messages.set(static_cast<double>(now.messages));
    if (now.messages < config_.snapshot_threshold) {
      return {};
    }
    state_.reset();  // its revision may be old
    STATOR_CHECK(read());
    state_->keep([&](WorkerId worker) { return alive.contains(worker); });
    const std::string snapshot = state_->encode();
    const uint64_t watermark = state_->watermark();
    Status stored =
        objects_.put(std::string(kDurableObject), snapshot, std::exchange(revision_, 0));
    state_.reset();
    if (!stored && stored.error().code() == Code::kAlreadyExists) {
      metrics_.beaten.add();
      return {};
    }
    STATOR_CHECK(std::move(stored));
    STATOR_CHECK(jet_stream_.purge_below(stream_.name, watermark + 1));
    metrics_.snapshots.add();
    metrics_.snapshot_bytes.set(static_cast<double>(snapshot.size()));
    log::info(kLogTarget, "snapshot of KV events stored",
              {{"stream", stream_.name}, {"bytes", snapshot.size()}, {"up_to", watermark}});
    return {};
  }

  void drop_unused() {
    if (clock_.now() - used_at_ > kCached) {
      state_.reset();
    }
  }

 private:
  Status prepare() {
    if (prepared_) {
      return {};
    }
    if (config_.reset) {
      STATOR_CHECK(jet_stream_.delete_stream(stream_.name));
      STATOR_CHECK(objects_.remove());
    }
    STATOR_CHECK(jet_stream_.ensure_stream(stream_));
    STATOR_CHECK(objects_.ensure());
    prepared_ = true;
    return {};
  }

  Status read() {
    if (!state_) {
      STATOR_CHECK(read_snapshot());
    }
    auto found = jet_stream_.state(stream_.name);
    if (!found && found.error().code() == Code::kNotFound) {
      prepared_ = false;  // somebody wiped the broker
      state_.reset();
    }
    STATOR_TRY(const StreamState now, std::move(found));
    metrics_.messages.set(static_cast<double>(now.messages));
    if (now.last < state_->watermark()) {
      state_.emplace();  // another stream than the one the snapshot is of
    }
    if (now.messages == 0) {
      return {};
    }
    return jet_stream_.read({.stream = stream_.name,
                             .subject = stream_.subjects.front(),
                             .from = std::max(state_->watermark() + 1, now.first),
                             .to = now.last},
                            [this](uint64_t sequence, std::string_view payload) -> Status {
                              const auto message = decode_envelope(payload);
                              if (message) {
                                state_->apply(sequence, *message);
                              } else {
                                metrics_.corrupt.add();
                                state_->skip(sequence);
                              }
                              return {};
                            });
  }

  Status read_snapshot() {
    auto found = objects_.get(std::string(kDurableObject));
    state_.emplace();
    revision_ = 0;
    if (!found && found.error().code() == Code::kCorrupt) {
      metrics_.corrupt.add();
      log::warn(kLogTarget, found.error().message());
      prepared_ = false;
      return objects_.remove();  // so that a whole one can take its place
    }
    STATOR_TRY(const auto object, std::move(found));
    if (!object) {
      return {};
    }
    revision_ = object->revision;
    metrics_.snapshot_bytes.set(static_cast<double>(object->bytes.size()));
    auto state = detail::DurableState::decode(object->bytes);
    if (state) {
      state_ = std::move(*state);
    } else {
      metrics_.corrupt.add();
      log::warn(kLogTarget, state.error().message());
    }
    return {};
  }

  const DurableEventsConfig& config_;
  const StreamConfig stream_;
  JetStream& jet_stream_;
  ObjectStore objects_;
  const Clock& clock_;
  const DurableMetrics& metrics_;
  bool prepared_ = false;
  std::optional<detail::DurableState> state_;
  uint64_t revision_ = 0;  // of the snapshot that state_ began with
  TimePoint read_at_{};
  TimePoint used_at_{};
};

class Service final : public DurableEvents {
 public:
  Service(const DurableEventsConfig& config, std::unique_ptr<JetStream> jet_stream,
          const Clock& clock, Metrics& metrics)
      : config_(config),
        jet_stream_(std::move(jet_stream)),
        clock_(clock),
        metrics_(metrics),
        started_at_(clock.now()),
        thread_("durable-events", [this] { run(); }) {}
  ~Service() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void find(const discovery::InstanceRecord& record, Found done) override {
    {
      const MutexLock lock(mutex_);
      asked_.push_back({record.key, record.incarnation, std::move(done)});
      alive_[durable_stream(record.key)].insert(record.key.worker);
    }
    wake_.notify_all();
  }
  void forget(const discovery::InstanceKey& key) override {
    const MutexLock lock(mutex_);
    alive_[durable_stream(key)].erase(key.worker);
  }

 private:
  struct Question {
    discovery::InstanceKey key;
    Incarnation incarnation;
    Found done;
  };

  void run() {
    while (true) {
      std::deque<Question> asked;
      {
        MutexLock lock(mutex_);
        wake_.wait_for(lock, kLook,
                       [this]() STATOR_REQUIRES(mutex_) { return stopping_ || !asked_.empty(); });
        if (stopping_) {
          return;
        }
        asked.swap(asked_);
      }
      for (Question& question : asked) {
        question.done(look_up(question));
      }
      if (asked.empty()) {
        tend();
      }
    }
  }

  Component& component_of(const discovery::InstanceKey& key) {
    return components_
        .try_emplace(durable_stream(key), config_, key, *jet_stream_, clock_, metrics_)
        .first->second;
  }

  std::vector<EventReply> look_up(const Question& question) {
    const auto state = component_of(question.key).state();
    if (!state) {
      failed(state.error());
      metrics_.unknown.add();
      return {};
    }
    auto parts = (*state)->dump(question.key.worker);
    if (!parts.empty() && parts.front().incarnation != question.incarnation) {
      parts.clear();
    }
    (parts.empty() ? metrics_.unknown : metrics_.restored).add();
    return parts;
  }

  void tend() {
    for (auto& [name, component] : components_) {
      component.drop_unused();
      if (clock_.now() - started_at_ < config_.settle) {
        continue;
      }
      std::set<WorkerId> alive;
      {
        const MutexLock lock(mutex_);
        alive = alive_[name];
      }
      if (const Status done = component.compact(alive); !done) {
        failed(done.error());
      }
    }
  }

  void failed(const Error& error) {
    metrics_.failures.add();
    if (clock_.now() - warned_at_ > std::chrono::minutes(1)) {
      warned_at_ = clock_.now();
      log::warn(kLogTarget, error.message());
    }
  }

  const DurableEventsConfig config_;
  const std::unique_ptr<JetStream> jet_stream_;
  const Clock& clock_;
  const DurableMetrics metrics_;
  const TimePoint started_at_;
  TimePoint warned_at_{};
  std::map<std::string, Component> components_;  // of the thread; bounded by components

  Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::deque<Question> asked_ STATOR_GUARDED_BY(mutex_);  // bounded by followers
  std::map<std::string, std::set<WorkerId>> alive_ STATOR_GUARDED_BY(mutex_);
  net::Thread thread_;
};

class Sink final : public DurableSink {
 public:
  Sink(const DurableEventsConfig& config, const discovery::InstanceKey& key,
       std::unique_ptr<JetStream> jet_stream)
      : stream_(stream_config(config, key)), jet_stream_(std::move(jet_stream)) {}

  Status store(std::string_view payload, const std::string& id) override {
    if (!prepared_) {
      STATOR_CHECK(jet_stream_->ensure_stream(stream_));
      prepared_ = true;
    }
    auto stored =
        jet_stream_->publish({.subject = stream_.subjects.front(), .payload = payload, .id = id});
    prepared_ = stored.has_value() || stored.error().code() == Code::kTooLarge;
    return stored ? Status() : Status(std::move(stored.error()));
  }

 private:
  const StreamConfig stream_;
  const std::unique_ptr<JetStream> jet_stream_;
  bool prepared_ = false;
};

std::string base_name(const discovery::InstanceKey& key) {
  return fmt::format("namespace-{}-component-{}", key.namespace_name, key.component);
}

}  // namespace

std::string durable_stream(const discovery::InstanceKey& key) {
  return base_name(key) + "-kv-events";
}

std::string durable_bucket(const discovery::InstanceKey& key) {
  return base_name(key) + "-radix-bucket";
}

Result<std::unique_ptr<DurableEvents>> DurableEvents::start(const DurableEventsConfig& config,
                                                            NatsConnection& nats,
                                                            const Clock& clock, Metrics& metrics) {
  STATOR_TRY(auto jet_stream, JetStream::open(nats));
  return std::make_unique<Service>(config, std::move(jet_stream), clock, metrics);
}

Result<std::unique_ptr<DurableSink>> DurableSink::make(const DurableEventsConfig& config,
                                                       NatsConnection& nats,
                                                       const discovery::InstanceKey& key) {
  STATOR_TRY(auto jet_stream, JetStream::open(nats));
  return std::make_unique<Sink>(config, key, std::move(jet_stream));
}

}  // namespace stator::kv_events
