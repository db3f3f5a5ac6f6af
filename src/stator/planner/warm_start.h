// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stator/planner/predictor.h"

namespace stator::planner {

/// Load of one window of the past: requests, and their mean lengths (0 where none came).
struct LoadWindow {
  double requests = 0;
  double input_tokens = 0;
  double output_tokens = 0;
};

/// One request of the past.
struct PastRequest {
  double at_s = 0;
  double input_tokens = 0;
  double output_tokens = 0;
};
/// Windows of `interval_s` from the first request on; empty ones have no requests. At most
/// kWindowsMax, the latest.
std::vector<LoadWindow> bin_requests(std::span<const PastRequest> requests, double interval_s);
inline constexpr size_t kWindowsMax = 100'000;

/// Forecasts requests and lengths of the next window. Windows without requests have the lengths of
/// the one before, so that lengths of zero are not learned. A pure core.
class LoadPredictor {
 public:
  explicit LoadPredictor(const PredictorConfig& config);
  void add(const LoadWindow& window);
  LoadWindow next() const;
  /// Feeds the past in order; idle windows until the next request are skipped then.
  void warm_up(std::span<const LoadWindow> past);

 private:
  std::unique_ptr<Predictor> requests_, input_tokens_, output_tokens_;
};

/// What a predictor lost when it forecast each window of the past from those before.
struct PredictorScore {
  std::string name;  ///< "kalman_reactive_log1p"
  PredictorConfig config;
  double loss = 0;  ///< mean over windows
};
/// Every preset on the last windows (at most 48 are forecast), the best first; others of `base`
/// hold for all. Of each window the loss is 0.4·e(requests·input) + 0.4·e(requests·output) +
/// 0.1·e(input) + 0.1·e(output) with e the difference of logarithms of 1 + x: what sizes a fleet.
/// Empty with fewer than 8 windows.
std::vector<PredictorScore> back_test(std::span<const LoadWindow> past,
                                      const PredictorConfig& base);
/// The same of a single series: e of its values.
std::vector<PredictorScore> back_test(std::span<const double> series, const PredictorConfig& base);

}  // namespace stator::planner
