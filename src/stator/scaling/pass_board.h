// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/engine/api/forward_pass.h"
#include "stator/perf/calibrated_timing.h"
#include "stator/scaling/observation.h"

namespace stator::scaling {

/// The forward passes of a fleet's workers: the latest of each rank, what all of them computed
/// since the last look, and what they teach the step model. Thread-safe; kRanksMax ranks, more are
/// counted in `refused()`.
class PassBoard {
 public:
  static constexpr size_t kRanksMax = 16'384;
  /// A rank that told nothing for so long and had work is gone.
  static constexpr double kSilent_s = 60;

  /// `timing` may be null and outlives the board.
  explicit PassBoard(perf::CalibratedTiming* timing) : timing_(timing) {}
  void add(uint64_t worker, const engine::ForwardPass& pass, double now_s) STATOR_EXCLUDES(mutex_);
  /// Loads of all ranks, and the window's sums: requests are counted when their prompt is computed,
  /// so a prompt in several chunks counts more than once. For fleets whose frontends tell nothing.
  Observation look(double now_s) STATOR_EXCLUDES(mutex_);
  /// Forgets workers that are not among those.
  void keep_only(const std::set<uint64_t>& workers) STATOR_EXCLUDES(mutex_);
  uint64_t passes() const STATOR_EXCLUDES(mutex_);
  uint64_t refused() const STATOR_EXCLUDES(mutex_);

 private:
  struct Rank {
    engine::ForwardPass last;
    double heard_s = 0;
    bool decodes = false;
  };
  perf::CalibratedTiming* const timing_;
  mutable Mutex mutex_;
  std::map<std::pair<uint64_t, uint32_t>, Rank> ranks_ STATOR_GUARDED_BY(mutex_);
  WindowSums sums_ STATOR_GUARDED_BY(mutex_);
  double looked_s_ STATOR_GUARDED_BY(mutex_) = -1;
  uint64_t passes_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ STATOR_GUARDED_BY(mutex_) = 0;
};

}  // namespace stator::scaling
