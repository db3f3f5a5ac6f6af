// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace stator::planner {

/// Local linear trend: a level that moves by a trend, both random walks, seen with noise.
/// Source: Harvey, Forecasting, Structural Time Series Models and the Kalman Filter (1989), 2.3.
class KalmanTrend {
 public:
  KalmanTrend(double q_level, double q_trend, double r);

  /// The first value sets the level, each later one is predicted and then corrected.
  void add(double value);
  /// The level `steps` > 0 steps on. 0 before the first value.
  double forecast(size_t steps) const { return level_ + static_cast<double>(steps) * trend_; }
  /// Variance of the observation `steps` on.
  double forecast_variance(size_t steps) const;
  double level() const { return level_; }
  double trend() const { return trend_; }

 private:
  double q_level_, q_trend_, r_;
  bool started_ = false;
  double level_ = 0, trend_ = 0;
  double p00_ = 1000, p01_ = 0, p11_ = 1000;
};

}  // namespace stator::planner
