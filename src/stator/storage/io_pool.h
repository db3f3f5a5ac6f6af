// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/thread.h"

namespace stator::storage {

/// Threads that wait for disks and object stores. Loads go before saves, because a request waits
/// for them. Whoever posts bounds what it posts.
class IoPool {
 public:
  enum class Lane : uint8_t { kLoad, kSave };
  using Job = std::function<void()>;

  explicit IoPool(uint32_t threads);
  /// Runs what is queued, then joins.
  ~IoPool();
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  void post(Lane lane, Job job);
  /// Returns when nothing is queued or running.
  void settle();
  size_t queued(Lane lane) const;

 private:
  void run();
  std::deque<Job>& queue(Lane lane) STATOR_REQUIRES(mutex_) {
    return lane == Lane::kLoad ? loads_ : saves_;
  }

  mutable Mutex mutex_;
  std::condition_variable_any work_;
  std::condition_variable_any idle_;
  std::deque<Job> loads_ STATOR_GUARDED_BY(mutex_);
  std::deque<Job> saves_ STATOR_GUARDED_BY(mutex_);
  uint32_t running_ STATOR_GUARDED_BY(mutex_) = 0;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::vector<net::Thread> threads_;
};

}  // namespace stator::storage
