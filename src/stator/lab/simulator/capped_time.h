// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "stator/core/clock.h"

namespace stator::simulator {

/// A computed span of virtual time: at most 126 years, which no simulation lasts and 64 bits of
/// nanoseconds hold.
inline Duration capped_time(double nanoseconds) {
  return Duration(std::llround(std::min(nanoseconds, 4e18)));
}

}  // namespace stator::simulator
