// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "stator/core/clock.h"

namespace stator::session::detail {

/// When an engine's thread may write to a socket itself: ten times a millisecond, eight at once. A
/// write takes it some 10 µs and saves its reader the 40 to 100 µs until another thread has woken
/// for it; an engine that steps faster than this, or for many frontends, has a thread awake for the
/// rest anyway, and what waits for that merges. Thread-safe.
class WritePace {
 public:
  bool take(TimePoint now) {
    TimePoint next = next_.load(std::memory_order_relaxed);
    while (next <= now) {
      const TimePoint later = std::max(next, now - (kBurst - 1) * kInterval) + kInterval;
      if (next_.compare_exchange_weak(next, later, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

 private:
  static constexpr Duration kInterval = std::chrono::microseconds(100);
  static constexpr int kBurst = 8;
  std::atomic<TimePoint> next_{TimePoint::min()};
};

}  // namespace stator::session::detail
