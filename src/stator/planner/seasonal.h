// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace stator::planner {

/// Level, trend that fades, and one value per phase of the period.
struct SeasonalModel {
  double level = 0;
  double trend = 0;
  double damping = 1;
  std::vector<double> phases;
  size_t next_phase = 0;
  double loss = 0;  ///< mean squared one-step error of the fit
  std::vector<double> forecast(size_t steps) const;
};

/// Exponential smoothing with additive seasons, its rates chosen by one-step errors. The series
/// holds two periods or more.
/// Source: Hyndman, Athanasopoulos, Forecasting: Principles and Practice, 8.3 (Holt, Winters).
SeasonalModel fit_seasonal(std::span<const double> series, size_t period);

/// The lag of the strongest autocorrelation after the trend is taken out; 0 if none is clear.
size_t find_period(std::span<const double> series);

}  // namespace stator::planner
