// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "stator/core/clock.h"

namespace stator::net {

/// Waiting times between attempts: doubling from `min` to `max`.
class Backoff {
 public:
  Backoff(Duration min, Duration max) : min_(min), max_(max), next_(min) {}
  Duration next() {
    const Duration wait = next_;
    next_ = std::min(next_ * 2, max_);
    return wait;
  }
  void reset() { next_ = min_; }

 private:
  const Duration min_;
  const Duration max_;
  Duration next_;
};

}  // namespace stator::net
