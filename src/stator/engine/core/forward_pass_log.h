// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/engine/api/forward_pass.h"

namespace stator::engine {

/// The newest forward passes of an engine, until its one reader takes them. An engine records
/// nothing before somebody reads, because looking at every request costs something in each pass.
///
/// Bound: kRecordsMax; beyond it the oldest go and are counted, and `ForwardPass::counter` shows a
/// gap.
/// Thread-safe: the engine's thread appends, another one takes.
class ForwardPassLog {
 public:
  static constexpr size_t kRecordsMax = 4096;

  /// From now on passes are recorded.
  void start() { recording_.store(true, std::memory_order_relaxed); }
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  void append(const ForwardPass& pass);
  /// What is there, oldest first; waits up to `wait` for the first one.
  std::vector<ForwardPass> take(Duration wait);
  /// How many went unread since the last call.
  uint64_t take_overflow();

 private:
  std::atomic<bool> recording_ = false;
  Mutex mutex_;
  std::condition_variable_any appended_;
  std::deque<ForwardPass> passes_ STATOR_GUARDED_BY(mutex_);
  uint64_t overflow_ STATOR_GUARDED_BY(mutex_) = 0;
};

}  // namespace stator::engine
