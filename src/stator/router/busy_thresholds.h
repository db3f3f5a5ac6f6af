// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/router/load_lease.h"
#include "stator/router/worker_table.h"

namespace stator::router {

/// When a worker is too busy for more; negative values are unset. Strict: more than, not equal to.
struct BusyThresholds {
  double prefill_tokens = -1;    ///< prompt tokens waiting to be computed there
  double prefill_fraction = -1;  ///< the same, as a part of its max_num_batched_tokens
  double kv_fraction = -1;       ///< KV blocks in use, as a part of its total

  bool any() const { return prefill_tokens >= 0 || prefill_fraction >= 0 || kv_fraction >= 0; }
  /// Whether the load is beyond `tolerance` times one of them.
  bool exceeded(const LoadRow& load, const WorkerFacts& facts, double tolerance = 1) const;
};

/// Whom overload meets first. A request of tier t is refused when all workers are beyond
/// 1 + t · `step` times the busy thresholds: as load rises, the lowest tier goes first, and what is
/// left is for those above it.
struct BrownOut {
  static constexpr int32_t kTierMin = -1;
  static constexpr int32_t kTierMax = 4;
  double step = 0.2;  ///< 0: all tiers are equal

  double tolerance(int32_t tier) const { return 1 + (step * tier); }
};
/// Its strict priority, as far as there are tiers; -1 for a request that has none and asks for less
/// than others with a negative priority.
int32_t tier_of(uint32_t strict_priority, double priority);

}  // namespace stator::router
