// SPDX-License-Identifier: Apache-2.0
#include "stator/net/shard.h"

#include <algorithm>
#include <chrono>
#include <latch>
#include <string>
#include <utility>

#include "stator/core/assert.h"
#include "stator/net/detail/name_lookup.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;

// How often the loop's own punctuality is measured.
constexpr Duration kHeartbeat = milliseconds(100);
// Longest wait without an event; only a bound, posts wake the loop.
constexpr Duration kWaitMax = std::chrono::seconds(1);
// Messages per turn: those behind them wait for the next one, after sockets, timers and flushes.
constexpr size_t kTasksPerTurn = 1024;
// Drained tasks' vector is kept for reuse up to this capacity.
constexpr size_t kBatchKept = 4096;

constexpr double kDelayBounds[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02,
                                   0.05,   0.1,   0.25,  0.5,   1.0,  5.0};

thread_local const Shard* t_current_shard = nullptr;

}  // namespace

struct Shard::Loop {
  EventLoop events;
  std::unique_ptr<detail::NameLookup> names;  // from the first look-up on
  std::vector<Task> running;                  // of deferred_; kept for its capacity
  size_t next = 0;                            // of batch_: those before have run
  bool draining = false;                      // a task of batch_ runs
  size_t left = 0;                            // of batch_, for the next turn; under mutex_
  Counter long_turns;                         // that left some
};

Shard::Shard(uint32_t index, Clock& clock, Metrics& metrics)
    : index_(index),
      clock_(clock),
      metrics_(metrics),
      inbox_full_(metrics.counter("stator_shard_inbox_full_total",
                                  "Messages refused because a shard's inbox was full.")),
      loop_delay_(metrics.histogram("stator_event_loop_delay_seconds",
                                    "How late the shards' 100 ms heartbeat ran.", kDelayBounds)),
      loop_(std::make_unique<Loop>()) {
  loop_->long_turns = metrics.counter("stator_shard_long_turns_total",
                                      "Loop turns that left messages for the next one.");
}

Shard::~Shard() {
  STATOR_ASSERT(!thread_.joinable(), "H3: a shard is stopped before it is destroyed");
  loop_->names.reset();
  deferred_.clear();
}

EventLoop& Shard::loop() {
  return loop_->events;
}

TimePoint Shard::now() {
  return now_fresh_ ? now_ : refresh_now();
}

TimePoint Shard::refresh_now() {
  now_ = clock_.now();
  now_fresh_ = true;
  return now_;
}

bool Shard::push(Task task, Bound bound) {
  bool first = false;
  {
    const MutexLock lock(mutex_);
    if (bound == Bound::kInboxMax && (stopping_ || inbox_.size() + loop_->left >= kInboxMax)) {
      inbox_full_.add();
      return false;
    }
    first = inbox_.empty();
    inbox_.push_back(std::move(task));
  }
  if (first) {
    loop_->events.wake();  // one per batch: every turn drains
  }
  return true;
}

bool Shard::post(Task task) {
  return push(std::move(task), Bound::kInboxMax);
}

void Shard::post_past_bound(Task task) {
  static_cast<void>(push(std::move(task), Bound::kCaller));
}

void Shard::defer(Task task) {
  deferred_.push_back(std::move(task));
}

detail::NameLookup& Shard::names() {
  if (loop_->names == nullptr) {
    loop_->names = std::make_unique<detail::NameLookup>(*this);
  }
  return *loop_->names;
}

bool Shard::run_and_wait(Task task) {
  if (on_loop() || !running_.load(std::memory_order_acquire)) {
    task();
    return true;
  }
  std::latch done(1);
  const bool posted = post([&task, &done] {
    task();
    done.count_down();
  });
  if (posted) {
    done.wait();
  }
  return posted;
}

bool Shard::on_loop() const {
  return t_current_shard == this;
}

Timer Shard::after(Duration delay, Task callback) {
  return timers_.at(clock_.now() + std::max(delay, Duration::zero()), std::move(callback));
}

void Shard::add_turn_hook(TurnPhase phase, TurnHook& hook) {
  hooks_[static_cast<size_t>(phase)].push_back(&hook);
}

void Shard::remove_turn_hook(TurnHook& hook) {
  for (auto& phase : hooks_) {
    // Nulled, not erased: a hook may remove itself or another while the list is walked.
    std::ranges::replace(phase, &hook, static_cast<TurnHook*>(nullptr));
  }
}

void Shard::start() {
  STATOR_ASSERT(!thread_.joinable(), "a shard starts once");
  running_.store(true, std::memory_order_release);
  thread_ = Thread("shard-" + std::to_string(index_), [this] { run(); });
}

void Shard::request_stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  loop_->events.wake();
}

void Shard::join() {
  thread_.join();
  running_.store(false, std::memory_order_release);
  heartbeat_.cancel();
}

void Shard::run() {
  t_current_shard = this;
  heartbeat_due_ = clock_.now();
  heartbeat();
  for (;;) {
    run_turn();
    const MutexLock lock(mutex_);
    if (stopping_) {
      break;
    }
  }
  // Nobody can post any more: what is left is the last batch.
  while (drain_inbox() > 0) {
  }
  run_hooks();
  t_current_shard = nullptr;
}

void Shard::run_turn() {
  const bool had_deferred = !deferred_.empty();
  now_fresh_ = false;
  run_deferred();  // before what has come since: who deferred it was first
  const bool idle = !had_deferred && deferred_.empty();
  loop_->events.turn(idle ? time_to_next_timer() : Duration::zero());
  now_fresh_ = false;
  run_deferred();
  timers_.run_due(clock_.now());
  drain_inbox();
  run_deferred();
  run_hooks();
}

/// On the caller's thread, which is the loop's for that long.
void Shard::run_by_hand(Task& task) {
  const Shard* outer = std::exchange(t_current_shard, this);
  now_fresh_ = false;
  task();
  t_current_shard = outer;
}

/// A turn on the caller's thread, for VirtualTime. Only messages and timers: nobody has sockets
/// there. False if there was nothing to do.
bool Shard::run_turn_by_hand() {
  const Shard* outer = std::exchange(t_current_shard, this);
  now_fresh_ = false;
  const size_t timers = timers_.run_due(clock_.now());
  const size_t messages = drain_inbox();
  run_deferred();
  if (timers + messages > 0) {
    run_hooks();
  }
  t_current_shard = outer;
  return timers + messages > 0;
}

size_t Shard::drain_inbox() {
  STATOR_ASSERT(!loop_->draining, "the inbox is drained from the loop, not from a task");
  if (batch_.empty()) {
    const MutexLock lock(mutex_);
    batch_.swap(inbox_);
  }
  const size_t first = loop_->next;
  const size_t end = std::min(batch_.size(), first + kTasksPerTurn);
  loop_->draining = true;
  for (; loop_->next < end; ++loop_->next) {
    batch_[loop_->next]();
    batch_[loop_->next] = nullptr;
  }
  loop_->draining = false;
  const size_t left = batch_.size() - end;
  bool more = left > 0;
  if (left > 0 || first > 0) {
    const MutexLock lock(mutex_);
    loop_->left = left;
    more = more || !inbox_.empty();  // whose ring may have been heard meanwhile
  }
  if (more) {
    loop_->events.wake();  // the next turn does not wait
  }
  if (left > 0) {
    loop_->long_turns.add();
    return end - first;
  }
  loop_->next = 0;
  batch_.clear();
  if (batch_.capacity() > kBatchKept) {
    batch_ = std::vector<Task>();
  }
  return end - first;
}

/// Those that they defer have their turn next.
void Shard::run_deferred() {
  if (deferred_.empty()) {
    return;
  }
  std::vector<Task>& running = loop_->running;
  running.swap(deferred_);
  for (Task& task : running) {
    task();
  }
  running.clear();
}

void Shard::run_hooks() {
  for (auto& phase : hooks_) {
    for (size_t i = 0; i < phase.size(); ++i) {
      if (phase[i] != nullptr) {
        phase[i]->on_turn_end();
      }
    }
    std::erase(phase, nullptr);
  }
}

void Shard::heartbeat() {
  const TimePoint now = clock_.now();
  loop_delay_.observe(std::chrono::duration<double>(now - heartbeat_due_).count());
  heartbeat_due_ = now + kHeartbeat;
  heartbeat_ = after(kHeartbeat, [this] { heartbeat(); });
}

Duration Shard::time_to_next_timer() const {
  const auto deadline = timers_.next_deadline();
  if (!deadline) {
    return kWaitMax;
  }
  return std::clamp<Duration>(std::chrono::ceil<milliseconds>(*deadline - clock_.now()),
                              Duration::zero(), kWaitMax);
}

ShardSet::ShardSet(uint32_t count, Clock& clock, Metrics& metrics) {
  STATOR_ASSERT(count > 0, "a shard set has at least one shard");
  for (uint32_t i = 0; i < count; ++i) {
    shards_.push_back(std::make_unique<Shard>(i, clock, metrics));
  }
}

ShardSet::~ShardSet() {
  stop();
}

void ShardSet::start() {
  for (auto& shard : shards_) {
    shard->start();
  }
}

void ShardSet::stop() {
  for (auto& shard : shards_) {
    shard->request_stop();
  }
  for (auto& shard : shards_) {
    shard->join();
  }
}

}  // namespace stator::net
