// SPDX-License-Identifier: Apache-2.0
#include "stator/session/local_worker.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/kv_events/event_cursor.h"
#include "stator/net/wakeup.h"
#include "stator/session/session_inbox.h"

namespace stator::session {
namespace {

constexpr Duration kLoadInterval = std::chrono::milliseconds(100);
constexpr Duration kSubscribeRetry = std::chrono::seconds(1);
constexpr std::string_view kLogTarget = "session";

/// The engine's side of a session. Calls into the engine hold `mutex_`, so that once detach() has
/// returned the engine may be destroyed; the engine's thread never takes it.
class LocalLink final : public engine::EngineSink {
 public:
  explicit LocalLink(std::shared_ptr<SessionInbox> inbox) : inbox_(std::move(inbox)) {}

  void attach(engine::Engine& engine, bool draining) {
    const MutexLock lock(mutex_);
    engine_ = &engine;
    draining_ = draining;
    session_ = engine.open_session(*this);
  }

  void on_step(inference::StepOutput output) noexcept override { inbox_->push(std::move(output)); }

  Status submit(inference::EngineRequest request) {
    const MutexLock lock(mutex_);
    if (engine_ == nullptr) {
      return Error(Code::kUnavailable, "the worker has shut down");
    }
    if (draining_) {
      return Error(Code::kDraining, "the worker is draining");
    }
    return engine_->submit(session_, std::move(request));
  }

  void cancel(inference::RequestKey key) {
    const MutexLock lock(mutex_);
    if (engine_ != nullptr) {
      engine_->cancel(session_, key);
    }
  }

  std::optional<engine::LoadReport> load() {
    const MutexLock lock(mutex_);
    return engine_ == nullptr ? std::nullopt : std::optional(engine_->load());
  }

  void drain() {
    {
      const MutexLock lock(mutex_);
      draining_ = true;
    }
    inbox_->push(SessionDraining());
  }

  /// The engine is not called after this and does not call.
  void detach() {
    const MutexLock lock(mutex_);
    if (engine::Engine* engine = std::exchange(engine_, nullptr)) {
      engine->close_session(session_);
    }
  }

  SessionInbox& inbox() { return *inbox_; }

 private:
  const std::shared_ptr<SessionInbox> inbox_;
  Mutex mutex_;
  engine::Engine* engine_ STATOR_GUARDED_BY(mutex_) = nullptr;
  engine::SessionId session_ STATOR_GUARDED_BY(mutex_);
  bool draining_ STATOR_GUARDED_BY(mutex_) = false;
};

bool same_load(const engine::LoadReport& a, const engine::LoadReport& b) {
  const auto fields = [](const engine::LoadReport& load) {
    return std::tuple(load.kv_used_blocks, load.kv_cached_blocks, load.kv_total_blocks,
                      load.running, load.waiting, load.prefix_hit_tokens, load.prefix_query_tokens,
                      load.preemptions);
  };
  return fields(a) == fields(b);
}

class InProcessSession final : public WorkerSession {
 public:
  explicit InProcessSession(std::shared_ptr<LocalLink> link) : link_(std::move(link)) {
    report_load();
  }
  InProcessSession(const InProcessSession&) = delete;
  InProcessSession& operator=(const InProcessSession&) = delete;
  ~InProcessSession() override { close(); }

  WorkerId worker() const override { return link_->inbox().requests().worker(); }

  void submit(inference::EngineRequest request) override {
    SessionInbox& inbox = link_->inbox();
    if (!inbox.requests().open()) {
      return;  // on_closed has been delivered or close() called: S3
    }
    const inference::RequestKey key = request.key;
    inbox.requests().begin(key);
    inbox.metrics().messages_sent.add();
    Status submitted = link_->submit(std::move(request));
    if (submitted.has_value()) {
      inbox.push(SessionAccepted{key});
    } else {
      inbox.push(SessionRejected{{key, std::move(submitted.error())}});
    }
  }

  void cancel(inference::RequestKey key, CancelReason /*reason*/) override {
    if (link_->inbox().requests().forget(key)) {
      link_->cancel(key);
    }
  }

  void close() override {
    load_timer_.cancel();
    link_->inbox().close();
    link_->detach();
  }

 private:
  void report_load() {
    const auto load = link_->load();
    if (!load || !link_->inbox().requests().open()) {
      return;
    }
    if (!last_load_ || !same_load(*load, *last_load_)) {
      last_load_ = load;
      link_->inbox().push(*load);
    }
    load_timer_ = link_->inbox().shard().after(kLoadInterval, [this] { report_load(); });
  }

  const std::shared_ptr<LocalLink> link_;  // shared with the worker, which may go first
  std::optional<engine::LoadReport> last_load_;
  net::Timer load_timer_;
};

/// Reads the engine's event log on the listener's loop, woken by the engine's thread.
class LocalFollowerLink final : public kv::EventLogListener,
                                public std::enable_shared_from_this<LocalFollowerLink> {
 public:
  LocalFollowerLink(WorkerId worker, Incarnation incarnation, net::Shard& shard,
                    kv_events::KvEventsListener& listener)
      : incarnation_(incarnation), shard_(shard), assembler_(worker, listener) {}

  void attach(kv::EventLog& log) {
    const MutexLock lock(mutex_);
    log_ = &log;
    cursor_.emplace(log, incarnation_, 0);
    subscribe();
    wake();
  }

  void on_events_available() noexcept override { wake(); }

  /// The log is not touched after this.
  void detach() {
    const MutexLock lock(mutex_);
    if (kv::EventLog* log = std::exchange(log_, nullptr)) {
      log->unsubscribe(this);
    }
  }
  /// On the loop: the listener is not called after this.
  void stop() {
    stopped_ = true;
    retry_.cancel();
    detach();
  }
  uint64_t last_id() const { return assembler_.last_id(); }

 private:
  void wake() {
    if (!woken_.exchange(true)) {
      net::post_wakeup(shard_, [self = shared_from_this()] { self->deliver(); });
    }
  }

  // With the log full of listeners events are late by the retry interval, not lost.
  void subscribe() STATOR_REQUIRES(mutex_) {
    subscribed_ = log_->subscribe(assembler_.resume_from(), this).has_value();
    if (!subscribed_) {
      log::warn(kLogTarget, "too many readers of the KV event log, polling it instead");
    }
  }

  std::optional<kv_events::EventsChunk> read() {
    const MutexLock lock(mutex_);
    if (log_ == nullptr) {
      return std::nullopt;
    }
    if (!subscribed_) {
      retry_ = shard_.after(kSubscribeRetry, [this] { wake(); });
    }
    return cursor_->next();
  }

  void deliver() {
    woken_ = false;
    if (stopped_) {
      return;
    }
    if (auto chunk = read()) {
      const Status taken = assembler_.take(std::move(*chunk));
      STATOR_EXPECT(taken.has_value(), "an event log and its cursor disagree");
      wake();  // one chunk per turn: the loop has other work, too
    }
  }

  const Incarnation incarnation_;
  net::Shard& shard_;
  kv_events::EventAssembler assembler_;  // loop only
  bool stopped_ = false;                 // loop only
  net::Timer retry_;                     // loop only
  std::atomic<bool> woken_{false};
  Mutex mutex_;
  kv::EventLog* log_ STATOR_GUARDED_BY(mutex_) = nullptr;
  std::optional<kv_events::EventCursor> cursor_ STATOR_GUARDED_BY(mutex_);
  bool subscribed_ STATOR_GUARDED_BY(mutex_) = false;
};

class LocalFollower final : public kv_events::EventFollower {
 public:
  explicit LocalFollower(std::shared_ptr<LocalFollowerLink> link) : link_(std::move(link)) {}
  LocalFollower(const LocalFollower&) = delete;
  LocalFollower& operator=(const LocalFollower&) = delete;
  ~LocalFollower() override { link_->stop(); }
  uint64_t last_id() const override { return link_->last_id(); }

 private:
  const std::shared_ptr<LocalFollowerLink> link_;
};

/// Adds to a list of weak pointers, dropping dead ones so that it stays as long as what lives.
template <typename T>
void add_live(std::vector<std::weak_ptr<T>>& list, const std::shared_ptr<T>& entry) {
  std::erase_if(list, [](const auto& weak) { return weak.expired(); });
  list.push_back(entry);
}

}  // namespace

struct LocalWorker::State {
  State(WorkerId worker_in, Incarnation incarnation_in, engine::Engine& engine_in, Metrics& metrics)
      : worker(worker_in), incarnation(incarnation_in), metrics(metrics), engine(&engine_in) {}
  const WorkerId worker;
  const Incarnation incarnation;
  const SessionMetrics metrics;
  Mutex mutex;
  engine::Engine* engine STATOR_GUARDED_BY(mutex);  // null after shutdown
  bool draining STATOR_GUARDED_BY(mutex) = false;
  std::vector<std::weak_ptr<LocalLink>> links STATOR_GUARDED_BY(mutex);
  std::vector<std::weak_ptr<LocalFollowerLink>> followers STATOR_GUARDED_BY(mutex);
};

LocalWorker::LocalWorker(WorkerId worker, Incarnation incarnation, engine::Engine& engine,
                         Metrics& metrics)
    : state_(std::make_unique<State>(worker, incarnation, engine, metrics)) {}

LocalWorker::~LocalWorker() {
  shutdown();
}

WorkerId LocalWorker::worker() const {
  return state_->worker;
}
Incarnation LocalWorker::incarnation() const {
  return state_->incarnation;
}

std::unique_ptr<WorkerSession> LocalWorker::open_session(net::Shard& shard, SessionEvents& events) {
  auto inbox = std::make_shared<SessionInbox>(state_->worker, shard, events, state_->metrics);
  auto link = std::make_shared<LocalLink>(inbox);
  const MutexLock lock(state_->mutex);
  if (state_->engine == nullptr) {
    inbox->push(SessionClosed{Error(Code::kUnavailable, "the worker has shut down")});
    return std::make_unique<InProcessSession>(std::move(link));
  }
  inbox->push(SessionOpened());
  link->attach(*state_->engine, state_->draining);
  if (state_->draining) {
    inbox->push(SessionDraining());
  }
  add_live(state_->links, link);
  return std::make_unique<InProcessSession>(std::move(link));
}

std::unique_ptr<kv_events::EventFollower> LocalWorker::follow_events(
    net::Shard& shard, kv_events::KvEventsListener& listener) {
  auto link =
      std::make_shared<LocalFollowerLink>(state_->worker, state_->incarnation, shard, listener);
  const MutexLock lock(state_->mutex);
  if (state_->engine != nullptr) {
    link->attach(state_->engine->events());
    add_live(state_->followers, link);
  }
  return std::make_unique<LocalFollower>(std::move(link));
}

void LocalWorker::drain() {
  const MutexLock lock(state_->mutex);
  if (std::exchange(state_->draining, true)) {
    return;
  }
  for (const auto& weak : state_->links) {
    if (const auto link = weak.lock()) {
      link->drain();
    }
  }
}

void LocalWorker::shutdown() {
  const MutexLock lock(state_->mutex);
  if (std::exchange(state_->engine, nullptr) == nullptr) {
    return;
  }
  for (const auto& weak : state_->links) {
    if (const auto link = weak.lock()) {
      link->detach();
      link->inbox().push(SessionClosed{Error(
          Code::kDisconnected, fmt::format("worker {} has shut down", state_->worker.value()))});
    }
  }
  for (const auto& weak : state_->followers) {
    if (const auto link = weak.lock()) {
      link->detach();
    }
  }
}

}  // namespace stator::session
