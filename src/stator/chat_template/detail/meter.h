// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/core/cancel_token.h"

namespace stator::chat_template {

/// What one render has done so far, in steps: statements, expressions, and bulk work by its size.
/// Everything that works for a render charges the same meter: reading its JSON, its dicts, the
/// interpreter. Beyond the limit, and within kLookEvery steps (well below a millisecond) of the
/// moment that nobody waits any more, charging throws detail::Failure.
class Meter {
 public:
  static constexpr uint64_t kLookEvery = 1024;

  /// `cancel` may be null; else it outlives this.
  Meter(uint64_t steps_max, const CancelToken* cancel) : steps_max_(steps_max), cancel_(cancel) {
    plan_look();
  }

  void charge(uint64_t steps) {
    steps_ += steps;
    if (steps_ >= next_look_) [[unlikely]] {
      look();
    }
  }
  uint64_t steps() const { return steps_; }

 private:
  void look();
  void plan_look();

  const uint64_t steps_max_;
  const CancelToken* const cancel_;
  uint64_t steps_ = 0;
  uint64_t next_look_ = 0;
};

}  // namespace stator::chat_template
