// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/net/event_loop.h"
#include "stator/net/thread.h"
#include "stator/net/timer_queue.h"

namespace stator::net {

namespace detail {
class NameLookup;
}

/// Work at the end of a loop turn, after everything that was ready has run: the place to send what
/// the turn produced in one piece. Called every turn, so it must be cheap when there is nothing to
/// do. The owner adds and removes it on the loop (or while the loop is not running).
class TurnHook {
 public:
  virtual ~TurnHook() = default;
  virtual void on_turn_end() = 0;
};

/// Hooks run phase by phase: producers write into streams, then streams flush.
enum class TurnPhase : uint8_t { kProduce, kFlush };

/// One thread with one event loop. Connections, streams and requests live on the shard that
/// accepted them and are touched only there; everybody else sends a message with `post`.
///
///   ShardSet shards(2, clock, metrics);
///   shards.start();
///   shards.shard(0).post([&] { session.cancel(key); });
///
/// A turn: run what the last one deferred; wait for I/O, a timer or a message; run what is ready
/// (at most 256 handlers), the due timers, up to 1,024 messages, and what they deferred; then
/// the turn hooks.
///
/// H1  post() may be called from any thread; everything else on the loop, or by one thread while
///     the loop is not running (before start, after stop), unless it says otherwise.
/// H2  A posted task runs exactly once, in posting order per thread, or post() returned false.
/// H3  After stop() the inbox is empty and the thread has ended; timers left over never run.
class Shard {
 public:
  /// Messages waiting at once. A task is 64 bytes or so: 4 MiB at the bound.
  static constexpr size_t kInboxMax = 64 * 1024;

  Shard(uint32_t index, Clock& clock, Metrics& metrics);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard();

  uint32_t index() const { return index_; }
  Clock& clock() const { return clock_; }
  Metrics& metrics() const { return metrics_; }
  /// The time at its first use in this turn: good enough for deadlines, one clock read per turn.
  TimePoint now();
  /// Reads the clock now, for the rest of this turn, too: where less than a turn counts.
  TimePoint refresh_now();
  EventLoop& loop();

  /// Any thread. Queues `task`; a batch of tasks costs one wake-up. False, with `task` destroyed
  /// and stator_shard_inbox_full_total counted, when kInboxMax tasks wait or the shard is stopping.
  [[nodiscard]] bool post(Task task);

  /// The same past kInboxMax, for what its caller bounds: see post_wakeup().
  void post_past_bound(Task task);

  /// Runs `task` later in this turn, or first in the next, which then does not wait. On the loop.
  void defer(Task task);

  /// Looks names up on a thread that the first call starts. On the loop.
  detail::NameLookup& names();

  /// Runs `task` on the loop and waits for it; runs it right here when called on the loop or while
  /// the loop is not running. For set-up and tear-down. Any thread, but not concurrently with
  /// ShardSet::start() and stop(). False when the inbox is full: `task` did not run.
  [[nodiscard]] bool run_and_wait(Task task);

  /// True on the loop's own thread.
  bool on_loop() const;

  /// Runs `callback` on the loop once `delay` has passed (resolution about 1 ms). Destroying the
  /// Timer cancels. Timers must be gone before the shard is destroyed.
  [[nodiscard]] Timer after(Duration delay, Task callback);

  void add_turn_hook(TurnPhase phase, TurnHook& hook);
  void remove_turn_hook(TurnHook& hook);

 private:
  friend class ShardSet;
  friend class VirtualTime;
  struct Loop;

  void start();
  void request_stop();
  void join();
  void run();
  void run_turn();
  void run_by_hand(Task& task);
  bool run_turn_by_hand();
  size_t drain_inbox();
  enum class Bound : uint8_t { kInboxMax, kCaller };
  bool push(Task task, Bound bound);
  void run_deferred();
  void run_hooks();
  void heartbeat();
  Duration time_to_next_timer() const;

  const uint32_t index_;
  Clock& clock_;
  Metrics& metrics_;
  Counter inbox_full_;
  Histogram loop_delay_;
  std::unique_ptr<Loop> loop_;
  TimerQueue timers_;
  Timer heartbeat_;
  TimePoint heartbeat_due_;
  TimePoint now_;
  bool now_fresh_ = false;
  std::vector<TurnHook*> hooks_[2];
  std::vector<Task> batch_;  // drained tasks; kept for its capacity
  std::vector<Task> deferred_;

  Mutex mutex_;
  std::vector<Task> inbox_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;

  std::atomic<bool> running_{false};
  Thread thread_;
};

/// The shards of one process. Destroy what lives on the shards first, then this.
class ShardSet {
 public:
  /// `count` ≥ 1. Threads start with start().
  ShardSet(uint32_t count, Clock& clock, Metrics& metrics);
  ShardSet(const ShardSet&) = delete;
  ShardSet& operator=(const ShardSet&) = delete;
  /// Stops.
  ~ShardSet();

  void start();
  /// Refuses new messages on every shard, lets each run the messages it has and one last end of
  /// turn, joins the threads. From outside the loops; a second call does nothing. Not restartable.
  void stop();

  uint32_t count() const { return static_cast<uint32_t>(shards_.size()); }
  Shard& shard(uint32_t index) const { return *shards_[index]; }

 private:
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace stator::net
