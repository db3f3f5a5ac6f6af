// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "stator/core/clock.h"

namespace stator::engine::adapters {

/// Tells a server that stands still from one that is busy: a busy one still answers a question
/// about its health, or goes on with one of its answers. Pure.
///
///   silence.heard();                                    // whenever bytes came
///   if (silence.lasts(question_is_open, now, limit)) …  // after each look at what came
///
/// Time in which nobody looked counts for a quarter of the limit at most: when this process, or the
/// whole machine, stood still, the server gets its chance to answer.
class Silence {
 public:
  void heard() { heard_ = true; }

  /// True once a question has been open for `limit` while nothing at all came; then it starts over.
  bool lasts(bool question_open, TimePoint now, Duration limit) {
    const TimePoint before = std::exchange(looked_, now);
    if (std::exchange(heard_, false) || !std::exchange(open_, question_open) || !question_open) {
      lasted_ = {};
      return false;
    }
    lasted_ += std::clamp(now - before, Duration::zero(), limit / 4);
    if (lasted_ < limit) {
      return false;
    }
    lasted_ = {};
    return true;
  }

 private:
  bool heard_ = false;
  bool open_ = false;  // at the last look
  Duration lasted_{};
  TimePoint looked_{};
};

}  // namespace stator::engine::adapters
