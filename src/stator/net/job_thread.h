// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "stator/core/mutex.h"
#include "stator/net/thread.h"

namespace stator::net {

/// A thread that runs jobs one after another, in the order they came. It is started by the first
/// one: whoever never has work has no thread.
///
/// J1  Each job is called exactly once: by the thread with Turn::kRun, or with Turn::kStopped by
///     stop() or, after it, by add().
///
/// Threads: add() and stop() from any thread, stop() not from a job. The number of jobs that wait
/// is the caller's to bound.
class JobThread {
 public:
  enum class Turn : uint8_t { kRun, kStopped };
  using Job = std::function<void(Turn turn)>;

  /// The kernel shows 15 characters of `name`.
  explicit JobThread(std::string name) : name_(std::move(name)) {}
  ~JobThread() { stop(); }
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  void add(Job job);
  /// Waits for the job under way. Idempotent.
  void stop();

 private:
  void work();

  const std::string name_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Job> jobs_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  bool started_ STATOR_GUARDED_BY(mutex_) = false;
  Thread thread_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::net
