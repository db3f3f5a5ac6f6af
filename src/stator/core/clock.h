// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace stator {

using Duration = std::chrono::nanoseconds;

/// A point on the monotonic time line of one process (or of one simulation). Not comparable across
/// processes.
struct MonotonicTag {
  using rep = int64_t;
  using period = std::nano;
  using duration = Duration;
  using time_point = std::chrono::time_point<MonotonicTag, Duration>;
  static constexpr bool is_steady = true;
};
using TimePoint = MonotonicTag::time_point;

/// Wall time, for log lines, `created` fields and leases in shared folders only.
using WallTime = std::chrono::sys_time<Duration>;

/// Where time comes from. Cores never read it: they take `now` as an argument. Shells hold a
/// `Clock&`. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  virtual WallTime wall_now() const = 0;
};

/// The operating system's clocks.
class SystemClock final : public Clock {
 public:
  TimePoint now() const override;
  WallTime wall_now() const override;
};

/// Time that stands still until a test or simulation moves it. Single-threaded use.
class SimClock final : public Clock {
 public:
  explicit SimClock(WallTime wall_start = WallTime(std::chrono::seconds(1'700'000'000)))
      : wall_start_(wall_start) {}
  TimePoint now() const override { return now_; }
  WallTime wall_now() const override { return wall_start_ + now_.time_since_epoch(); }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
  WallTime wall_start_;
};

inline int64_t unix_seconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

}  // namespace stator
