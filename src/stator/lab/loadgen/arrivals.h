// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/core/clock.h"
#include "stator/core/random.h"

namespace stator::loadgen {

enum class ArrivalPattern : uint8_t { kConstant, kPoisson, kGamma };

struct ArrivalOptions {
  ArrivalPattern pattern = ArrivalPattern::kPoisson;
  double rate_per_s = 1;  ///< > 0
  /// Shape of the gamma distribution of gaps: 1 = Poisson, smaller = burstier, larger = smoother.
  double burstiness = 1;
  Duration ramp{};  ///< the rate grows linearly from 0 to rate_per_s in this time
  uint64_t seed = 1;
};

/// When requests of an open loop are due, from the start of the run. A function of its options
/// alone: every thread of a run makes the same schedule and takes its own share of it.
class ArrivalSchedule {
 public:
  explicit ArrivalSchedule(const ArrivalOptions& options)
      : options_(options), random_(options.seed) {}

  /// The next arrival; never before the one returned last.
  Duration next();

 private:
  double draw_gap();  // mean 1
  double draw_normal();
  double draw_gamma(double shape);  // mean `shape`

  ArrivalOptions options_;
  Random random_;
  double arrived_ = 0;  // in units of expected arrivals
  bool started_ = false;
};

}  // namespace stator::loadgen
