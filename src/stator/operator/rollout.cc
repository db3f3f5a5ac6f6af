// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/rollout.h"

#include <algorithm>

namespace stator::op {

RolloutTargets plan_rollout(RolloutView view) {
  if (view.surge == 0 && view.unavailable == 0) {
    view.surge = 1;
  }
  const int64_t zero = 0;
  const int64_t minimum = view.desired - view.unavailable;
  const int64_t new_missing = std::max(zero, view.new_spec - view.new_available);
  const int64_t scaled_down_max =
      std::max(zero, view.old_spec + view.new_spec - minimum - new_missing);
  const int64_t idle = view.old_spec - view.old_available;
  const int64_t spare = std::max(zero, view.old_available + view.new_available - minimum);
  return {.old_replicas = std::max(zero, view.old_spec - std::min(scaled_down_max, idle + spare)),
          .new_replicas = std::min(
              view.desired, view.new_spec + std::max(zero, view.desired + view.surge -
                                                               view.old_spec - view.new_spec))};
}

}  // namespace stator::op
