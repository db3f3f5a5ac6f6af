// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stator::planner {

struct ArimaOrder {
  uint32_t p = 0;  ///< autoregressive terms
  uint32_t d = 0;  ///< differences taken
  uint32_t q = 0;  ///< moving average terms
  bool intercept = false;
  friend auto operator<=>(const ArimaOrder&, const ArimaOrder&) = default;
};

/// The largest p and q that are searched.
inline constexpr uint32_t kArimaOrderMax = 5;

/// A fitted ARIMA model: (1 − φ(B)) (Δᵈ y − μ) = (1 + θ(B)) ε.
struct ArimaModel {
  ArimaOrder order;
  std::vector<double> phi;
  std::vector<double> theta;
  double mean = 0;  ///< of the differenced series
  double sigma2 = 0;
  double log_likelihood = 0;
  double aic = 0;
  std::vector<double> state;  ///< after the last observation, one step ahead
  std::vector<double> tails;  ///< the last values of the series after 0, 1, … d−1 differences

  std::vector<double> forecast(size_t steps) const;
};

/// Exact maximum likelihood by the innovations of the state-space form, in the region where the
/// model is stationary and invertible. Nothing if the likelihood is not finite anywhere near, or
/// the series too short for the order.
/// Source: Gardner, Harvey, Phillips, AS 154 (1980); Jones (1980) for the region's coordinates.
std::optional<ArimaModel> fit_arima(std::span<const double> series, const ArimaOrder& order);

/// How often the series must be differenced to look stationary: the KPSS test at 5 %, at most
/// twice. Source: Kwiatkowski, Phillips, Schmidt, Shin (1992).
uint32_t find_differences(std::span<const double> series);

/// Chooses order and intercept by AIC, stepwise. Nothing for an empty series.
/// Source: Hyndman, Khandakar, Automatic Time Series Forecasting, JSS 27 (2008).
std::optional<ArimaModel> search_arima(std::span<const double> series);

}  // namespace stator::planner
