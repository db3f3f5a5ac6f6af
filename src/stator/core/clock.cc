// SPDX-License-Identifier: Apache-2.0
#include "stator/core/clock.h"

namespace stator {

TimePoint SystemClock::now() const {
  return TimePoint(
      std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

WallTime SystemClock::wall_now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
}

}  // namespace stator
