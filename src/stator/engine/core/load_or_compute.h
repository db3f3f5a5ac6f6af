// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/core/clock.h"

namespace stator::engine {

/// Whether blocks that lie in lower tiers are worth loading, or sooner computed again: both are
/// measured as they happen (exponentially weighted means over about the last 16). Pure; one thread.
///
/// It says load until kLoadsMin loads and some computing were measured, and after that unless
/// computing takes less than half as long: a few slow answers are no reason to compute everything.
/// When computing is better it still loads one request of `kProbeEvery`, so that a disk that has
/// become fast again is noticed.
class LoadOrCompute {
 public:
  /// A load of `blocks` blocks took so long, waiting included. Of 0 blocks nothing is learned.
  void saw_load(uint64_t blocks, Duration took);
  /// A pass computed so many tokens.
  void saw_compute(uint64_t tokens, Duration took);

  /// For `blocks` blocks of `block_tokens` tokens.
  bool worth_loading(uint64_t blocks, uint32_t block_tokens);

  double seconds_per_block() const { return seconds_per_block_; }  ///< 0: not known
  double seconds_per_token() const { return seconds_per_token_; }  ///< 0: not known

 private:
  static constexpr double kWeight = 1.0 / 16;
  static constexpr uint32_t kProbeEvery = 16;
  static constexpr uint32_t kLoadsMin = 8;
  static constexpr double kMuchSlower = 2;
  static void learn(double& mean, double value);

  double seconds_per_block_ = 0;
  double seconds_per_token_ = 0;
  uint32_t loads_ = 0;  // measured, up to kLoadsMin
  uint32_t refused_ = 0;
};

}  // namespace stator::engine
