// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::op {

/// Replicas of one worker component while its old generation gives way to a new one.
struct RolloutView {
  int64_t desired = 0;
  int64_t surge = 0;        ///< more than desired that may run at once
  int64_t unavailable = 0;  ///< fewer than desired that may serve
  int64_t old_spec = 0;
  int64_t old_available = 0;
  int64_t new_spec = 0;
  int64_t new_available = 0;
};

struct RolloutTargets {
  int64_t old_replicas = 0;
  int64_t new_replicas = 0;
};

/// The next step: never fewer than desired − unavailable serve by our doing, never more than
/// desired + surge exist. Unavailable old replicas go first. The same formulas as in the API's
/// reference: with surge and unavailable both 0 the surge is 1.
RolloutTargets plan_rollout(RolloutView view);

}  // namespace stator::op
