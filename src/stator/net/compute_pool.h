// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/thread.h"
#include "stator/net/timer_queue.h"

namespace stator::net {

/// Threads for work that takes longer than an event loop may be away: parsing, rendering and
/// tokenizing long requests. The work gets everything it needs and posts its result to the shard
/// that wants it.
///
///   STATOR_CHECK(pool.submit({.bytes = body.size(), .run = [job, &shard] {
///     job->result = prepare(job->body);
///     shard.post([job] { … });
///   }}));
///
/// P1  At most `tasks_max` tasks and `bytes_max` bytes wait; beyond, submit() refuses with
///     kOverloaded. A task over `bytes_max` is taken when nothing else waits.
/// P2  A task runs once, or never when stop() came first; then it is destroyed.
/// P3  Requests go before background work, but every eighth task taken is the oldest background
///     one, so that none waits for ever.
/// P4  After stop() no thread runs; run_parts() still works, on the caller's thread alone.
///
/// Thread-safe.
class ComputePool {
 public:
  struct Config {
    uint32_t threads = 1;  ///< at least 1
    size_t tasks_max = 4096;
    size_t bytes_max = size_t{256} << 20;
  };
  enum class Priority : uint8_t { kRequest, kBackground };
  struct Work {
    Priority priority = Priority::kRequest;
    size_t bytes = 0;  ///< of memory it keeps while it waits
    Task run;
  };

  /// Starts the threads. `clock` and `metrics` outlive it.
  ComputePool(Config config, const Clock& clock, Metrics& metrics);
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;
  /// Stops.
  ~ComputePool();

  /// kOverloaded (P1) or, after stop(), kUnavailable: the work is destroyed, not run.
  Status submit(Work work);

  /// Runs `part(0)` … `part(count - 1)` on this thread and on those that are idle now, and returns
  /// when all have ended. From any thread, also from inside a task: whoever is busy just does not
  /// help. `part` must not throw.
  void run_parts(size_t count, const std::function<void(size_t)>& part);

  /// Threads with nothing to do, at this moment.
  uint32_t idle_threads() const;
  uint32_t thread_count() const { return config_.threads; }

  /// Lets running tasks end, destroys waiting ones, joins the threads. Idempotent.
  void stop();

 private:
  struct Waiting {
    Work work;
    TimePoint since;
  };
  struct PartsRun;

  void loop();
  bool take(Waiting& out) STATOR_REQUIRES(mutex_);
  size_t waiting() const STATOR_REQUIRES(mutex_);

  const Config config_;
  const Clock& clock_;
  Counter refused_;
  Gauge queue_depth_;
  Gauge busy_threads_;
  Histogram wait_;

  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  std::array<std::deque<Waiting>, 2> queues_ STATOR_GUARDED_BY(mutex_);  // by Priority
  size_t bytes_ STATOR_GUARDED_BY(mutex_) = 0;
  uint32_t idle_ STATOR_GUARDED_BY(mutex_) = 0;
  uint32_t taken_ STATOR_GUARDED_BY(mutex_) = 0;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

/// Cores this process may use: its CPU affinity, cut to the quota of its control group.
uint32_t usable_cores();

/// Cores in a control group's cpu.max ("200000 100000" is 2, rounded up); 0 for no limit and for
/// what cannot be read.
uint32_t parse_cpu_max(std::string_view text);

}  // namespace stator::net
