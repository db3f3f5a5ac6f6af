// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::planner {

enum class PredictorKind : uint8_t { kConstant, kKalman, kArima, kSeasonal };

/// "constant", "kalman", "arima" or "seasonal".
Result<PredictorKind> find_predictor(std::string_view name);
std::string_view name_of(PredictorKind kind);

/// How a series is forecast. Defaults are those of NVIDIA Dynamo's planner.
struct PredictorConfig {
  PredictorKind kind = PredictorKind::kArima;
  bool select = false;        ///< the kind that lost least on the past (back_test())
  bool log1p = false;         ///< works on ln(1 + x)
  double kalman_q_level = 1;  ///< variance of the level's random walk per step
  double kalman_q_trend = 0.1;
  double kalman_r = 10;          ///< variance of an observation
  size_t kalman_min_points = 5;  ///< with fewer the last value is the forecast
  size_t seasonal_period = 0;    ///< steps; 0 = the strongest autocorrelation, if there is one
  size_t window = 512;           ///< most recent values kept, of the kinds that keep any
  /// A forecast of a series that was never negative is not negative, either.
  bool clamp = true;
  /// Differences without any ARMA part are fitted once more to ln(1 + x).
  bool arima_log1p_fallback = false;
};

/// `name` is one of those, "prophet" (the reference's name for what seasonal does) or "auto".
Status choose_predictor(std::string_view name, PredictorConfig& config);

/// Forecasts one series with equal steps. Not a number counts as 0; zeros before the first other
/// value are skipped: a service that has not opened yet says nothing about its load. A pure core,
/// bounded by PredictorConfig::window.
class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual void add(double value) = 0;
  /// The next `steps` values. Does not change what later calls return.
  virtual std::vector<double> forecast(size_t steps) const = 0;
  /// 0 before the first value.
  virtual double last() const = 0;
  /// Skips zeros again up to the next other value: after a warm start from a trace.
  virtual void rearm() = 0;
};

std::unique_ptr<Predictor> make_predictor(const PredictorConfig& config);

/// A series as text: one value per line, or the last of several columns; a first line that is not
/// numbers is a header; empty lines and lines that begin with # are skipped. kInvalidArgument names
/// the line.
Result<std::vector<double>> parse_series(std::string_view text);
inline constexpr size_t kSeriesMax = 1'000'000;

}  // namespace stator::planner
