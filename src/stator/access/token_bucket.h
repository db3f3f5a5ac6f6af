// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "stator/core/clock.h"

namespace stator::access {

/// A rate with a burst of one minute. What is taken may exceed what is there: then it is owed, and
/// nothing more is given until that is made up for, so that over time the rate is met exactly even
/// where the cost of a request is known only when it ends. A pure core; one thread at a time.
///
/// B1  Over any span, what was given without being owed at its end is at most a minute's rate plus
///     rate × span.
class TokenBucket {
 public:
  /// `per_minute` 0: unlimited. Full at first.
  explicit TokenBucket(double per_minute) : per_minute_(per_minute), level_(per_minute) {}

  bool unlimited() const { return per_minute_ <= 0; }
  /// Whether a request that costs at least `least` may begin.
  bool may_take(TimePoint now, double least) {
    refill(now);
    return unlimited() || level_ >= std::min(least, per_minute_);
  }
  void take(TimePoint now, double amount) {
    refill(now);
    level_ -= amount;
  }
  /// What was taken and not used.
  void give_back(double amount) { level_ = std::min(level_ + amount, per_minute_); }
  /// Until may_take(least) is true.
  Duration wait(double least) const {
    const double missing = std::max(std::min(least, per_minute_) - level_, 0.0);
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(missing * kMinuteS / std::max(per_minute_, 1e-9)));
  }
  double level() const { return level_; }
  /// A new rate; what is there or owed stays, as far as it fits.
  void set_rate(double per_minute) {
    level_ = unlimited() ? per_minute : std::min(level_, per_minute);
    per_minute_ = per_minute;
  }
  double per_minute() const { return per_minute_; }

 private:
  static constexpr double kMinuteS = 60;
  void refill(TimePoint now) {
    const double seconds = std::chrono::duration<double>(now - filled_at_).count();
    if (started_ && seconds > 0) {
      level_ = std::min(per_minute_, level_ + seconds * per_minute_ / kMinuteS);
    }
    if (!started_ || seconds > 0) {
      filled_at_ = now;
      started_ = true;
    }
  }

  double per_minute_;
  double level_;
  TimePoint filled_at_{};
  bool started_ = false;
};

}  // namespace stator::access
