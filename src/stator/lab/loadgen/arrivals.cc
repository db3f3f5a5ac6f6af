// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/arrivals.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stator::loadgen {

Duration ArrivalSchedule::next() {
  const double gap = draw_gap();
  if (started_ || options_.pattern != ArrivalPattern::kConstant) {
    arrived_ += gap;
  }
  started_ = true;
  // The expected number of arrivals until t is rate·t²/(2·ramp) during the ramp and grows by `rate`
  // per second after it; its inverse turns unit-rate arrivals into times.
  const double ramp = std::chrono::duration<double>(options_.ramp).count();
  const double in_ramp = options_.rate_per_s * ramp / 2;
  const double seconds = arrived_ < in_ramp ? std::sqrt(2 * ramp * arrived_ / options_.rate_per_s)
                                            : arrived_ / options_.rate_per_s + ramp / 2;
  constexpr double kSecondsMax = 1e9;  // 30 years; keeps the conversion defined
  return Duration(std::llround(std::min(seconds, kSecondsMax) * 1e9));
}

double ArrivalSchedule::draw_gap() {
  switch (options_.pattern) {
    case ArrivalPattern::kConstant:
      return 1;
    case ArrivalPattern::kPoisson:
      return -std::log1p(-random_.uniform());
    case ArrivalPattern::kGamma:
      return draw_gamma(options_.burstiness) / options_.burstiness;
  }
  return 1;
}

double ArrivalSchedule::draw_normal() {  // Box and Muller, 1958
  const double radius = std::sqrt(-2 * std::log1p(-random_.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random_.uniform());
}

double ArrivalSchedule::draw_gamma(double shape) {  // Marsaglia and Tsang, 2000
  if (shape < 1) {
    const double boost = std::pow(1 - random_.uniform(), 1 / shape);
    return draw_gamma(shape + 1) * boost;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = draw_normal();
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log1p(-random_.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return d * v;
    }
  }
}

}  // namespace stator::loadgen
