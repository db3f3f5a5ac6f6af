// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/thread.h"
#include "stator/net/timer_queue.h"
#include "stator/net/work_queue.h"

namespace stator::net {

/// Threads for work that takes longer than an event loop may be away: parsing, rendering and
/// tokenizing long requests. The work gets everything it needs and posts its result to the shard
/// that wants it.
///
///   STATOR_CHECK(pool.submit({.bytes = body.size(), .client = client, .run = [job, &shard] {
///     job->result = prepare(job->body);
///     shard.post([job] { … });
///   }}));
///
/// P1  What waits is bounded, in all and by client (Q4 of WorkQueue); beyond, submit() refuses with
///     kOverloaded.
/// P2  A task runs once, or never when stop() came first; then it is destroyed.
/// P3  Whose turn it is, WorkQueue decides: nobody waits for all that another has ordered, requests
///     go before background work, and none waits for ever.
/// P4  With `short_bytes` one more thread takes only tasks of at most so many bytes. The operating
///     system divides the cores, so such tasks go on while long ones run, also on one core.
/// P5  After stop() no thread runs; run_parts() still works, on the caller's thread alone.
///
/// Thread-safe.
class ComputePool {
 public:
  struct Config {
    uint32_t threads = 1;  ///< at least 1
    size_t tasks_max = 4096;
    size_t bytes_max = size_t{256} << 20;
    size_t short_bytes = 0;  ///< 0: no thread for short tasks
  };
  using Priority = WorkPriority;

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

  /// Threads with nothing to do, at this moment, but the one for short tasks.
  uint32_t idle_threads() const;
  /// Without the one for short tasks.
  uint32_t thread_count() const { return config_.threads; }

  /// Lets running tasks end, destroys waiting ones, joins the threads. Idempotent.
  void stop();

 private:
  using Which = WorkQueue::Which;
  struct PartsRun;

  void loop(Which which);
  bool has_work(Which which) const STATOR_REQUIRES(mutex_);
  bool take(Which which, Work& out) STATOR_REQUIRES(mutex_);
  Status admit(const Work& work) STATOR_REQUIRES(mutex_);
  void help(const std::shared_ptr<PartsRun>& run);

  const Config config_;
  const Clock& clock_;
  Counter refused_;
  Counter client_refused_;
  Gauge queue_depth_;
  Gauge busy_threads_;
  Histogram wait_;

  mutable Mutex mutex_;
  std::condition_variable_any wake_;        // threads for all tasks
  std::condition_variable_any wake_short_;  // the one for short tasks
  WorkQueue queue_ STATOR_GUARDED_BY(mutex_);
  std::deque<Task> helpers_ STATOR_GUARDED_BY(mutex_);  // at most one per thread that was idle
  uint32_t idle_ STATOR_GUARDED_BY(mutex_) = 0;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

/// Cores this process may use: its CPU affinity, cut to the quota of its control group.
uint32_t usable_cores();

/// Cores in a control group's cpu.max ("200000 100000" is 2, rounded up); 0 for no limit and for
/// what cannot be read.
uint32_t parse_cpu_max(std::string_view text);

}  // namespace stator::net
