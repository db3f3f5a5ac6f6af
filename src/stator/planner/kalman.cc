// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/kalman.h"

#include <algorithm>

namespace stator::planner {

KalmanTrend::KalmanTrend(double q_level, double q_trend, double r)
    : q_level_(std::max(q_level, 1e-12)),
      q_trend_(std::max(q_trend, 1e-12)),
      r_(std::max(r, 1e-9)) {}

void KalmanTrend::add(double value) {
  if (!started_) {
    started_ = true;
    level_ = value;
    return;
  }
  // Predict: x = F x, P = F P Fᵀ + Q with F = [[1, 1], [0, 1]].
  level_ += trend_;
  const double p00 = p00_ + 2 * p01_ + p11_ + q_level_;
  const double p01 = p01_ + p11_;
  const double p11 = p11_ + q_trend_;
  // Correct by what the observation of the level says.
  const double innovation = value - level_;
  const double variance = p00 + r_;
  const double gain_level = p00 / variance;
  const double gain_trend = p01 / variance;
  level_ += gain_level * innovation;
  trend_ += gain_trend * innovation;
  // P = (I − K H) P; its symmetric form keeps rounding from making it indefinite.
  p00_ = (1 - gain_level) * p00;
  p01_ = (1 - gain_level) * p01;
  p11_ = p11 - gain_trend * p01;
}

double KalmanTrend::forecast_variance(size_t steps) const {
  double p00 = p00_, p01 = p01_, p11 = p11_;
  for (size_t i = 0; i < std::min<size_t>(steps, 10'000); ++i) {
    p00 += 2 * p01 + p11 + q_level_;
    p01 += p11;
    p11 += q_trend_;
  }
  return p00 + r_;
}

}  // namespace stator::planner
