// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/planner/budget.h"

namespace stator::planner {

/// What the workers of two pools may draw together. Watts of a worker are its GPUs' limits.
struct PowerBudget {
  double limit_watts = -1;  ///< -1: none
  double prefill_watts = 0, decode_watts = 0;

  double draw(PairSize size) const {
    return size.prefill * prefill_watts + size.decode * decode_watts;
  }
};

struct PowerClamp {
  PairSize size;
  bool staged = false;   ///< one pool shrinks first, the other waits until it has
  bool limited = false;  ///< more was wanted than the limit carries
};

/// A ceiling, never a reason to grow. Where one pool grows as the other shrinks, both exist for a
/// while: if the larger sizes of both would draw too much together, only the shrinking one moves.
/// What does not fit at its `least` size stays at the smaller of `current` and `wanted`.
PowerClamp clamp_power(PairSize current, PairSize wanted, PairSize least,
                       const PowerBudget& budget);

}  // namespace stator::planner
