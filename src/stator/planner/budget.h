// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::planner {

/// GPUs that two pools share; -1: no limit.
struct GpuBudget {
  int32_t min_gpus = -1;
  int32_t max_gpus = -1;
};
struct PoolFootprint {
  uint32_t gpus_per_worker = 1;
  uint32_t min_workers = 1;
};
struct PairSize {
  uint32_t prefill = 0, decode = 0;
  friend bool operator==(const PairSize&, const PairSize&) = default;
};

/// Two pools within the band [min − tolerance, max]; the maximum is hard. Both 0: not even the
/// minimum fits. The tolerance is the larger engine, where both limits are set.
PairSize clamp_pair(PairSize wanted, const PoolFootprint& prefill, const PoolFootprint& decode,
                    const GpuBudget& budget);
/// One pool; 0 where not even its minimum fits.
uint32_t clamp_single(uint32_t wanted, const PoolFootprint& pool, const GpuBudget& budget);

}  // namespace stator::planner
