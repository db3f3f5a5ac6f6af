// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <map>
#include <numeric>

#include "stator/planner/arima.h"

namespace stator::planner {
namespace {

/// 5 % critical value of the KPSS level statistic.
constexpr double kKpssCritical = 0.463;
constexpr uint32_t kDifferencesMax = 2;
constexpr size_t kFitsMax = 100;
constexpr double kRootMin = 1.01;

bool is_constant(std::span<const double> series) {
  return std::ranges::all_of(series, [&](double x) { return x == series.front(); });
}

double kpss_statistic(std::span<const double> series) {
  const size_t n = series.size();
  const auto count = static_cast<double>(n);
  const double mean = std::accumulate(series.begin(), series.end(), 0.0) / count;
  const auto lags = static_cast<size_t>(3 * std::sqrt(count) / 13);
  double sum = 0, squares = 0, variance = 0;
  for (const double x : series) {
    sum += x - mean;
    squares += sum * sum;
    variance += (x - mean) * (x - mean);
  }
  for (size_t lag = 1; lag <= lags; ++lag) {
    double product = 0;
    for (size_t t = lag; t < n; ++t) {
      product += (series[t] - mean) * (series[t - lag] - mean);
    }
    variance += 2 * (1 - static_cast<double>(lag) / static_cast<double>(lags + 1)) * product;
  }
  variance /= count;
  return variance > 0 ? squares / (count * count) / variance : 0;
}

/// Whether a root of 1 − c1 z − c2 z² … lies nearly on the unit circle, by Durand and Kerner.
bool has_unit_root(std::span<const double> coefficients) {
  size_t degree = coefficients.size();
  while (degree > 0 && std::abs(coefficients[degree - 1]) < 1e-9) {
    --degree;
  }
  if (degree == 0) {
    return false;
  }
  // The reciprocal polynomial zᵖ − c1 zᵖ⁻¹ − … has the inverse roots, which are inside.
  std::vector<std::complex<double>> roots(degree);
  for (size_t i = 0; i < degree; ++i) {
    roots[i] = std::pow(std::complex<double>(0.4, 0.9), static_cast<double>(i));
  }
  for (int iteration = 0; iteration < 200; ++iteration) {
    double moved = 0;
    for (size_t i = 0; i < degree; ++i) {
      std::complex<double> value = 1, others = 1;
      for (size_t k = 0; k < degree; ++k) {
        value = value * roots[i] - coefficients[k];
        if (k != i) {
          others *= roots[i] - roots[k];
        }
      }
      if (std::abs(others) < 1e-300) {
        others = 1e-300;
      }
      const auto step = value / others;
      roots[i] -= step;
      moved = std::max(moved, std::abs(step));
    }
    if (moved < 1e-10) {
      break;
    }
  }
  return std::ranges::any_of(roots, [](const auto& root) { return std::abs(root) > 1 / kRootMin; });
}

bool is_usable(const ArimaModel& model) {
  std::vector<double> ma(model.theta.size());
  std::ranges::transform(model.theta, ma.begin(), std::negate<>());
  return std::isfinite(model.aic) && !has_unit_root(model.phi) && !has_unit_root(ma);
}

/// The stepwise walk: fits each order once, remembers the best.
class Walk {
 public:
  Walk(std::span<const double> series, uint32_t differences)
      : series_(series), differences_(differences) {}

  /// Whether it is better than all before.
  bool visit(int p, int q, bool intercept) {
    if (p < 0 || q < 0 || p > static_cast<int>(kArimaOrderMax) ||
        q > static_cast<int>(kArimaOrderMax) || p + q > static_cast<int>(kArimaOrderMax) ||
        (intercept && differences_ > 1) || seen_.size() >= kFitsMax) {
      return false;
    }
    const ArimaOrder order{.p = static_cast<uint32_t>(p),
                           .d = differences_,
                           .q = static_cast<uint32_t>(q),
                           .intercept = intercept};
    if (!seen_.emplace(order, true).second) {
      return false;
    }
    auto model = fit_arima(series_, order);
    if (!model || !is_usable(*model) || (best_ && !(model->aic < best_->aic))) {
      return false;
    }
    best_ = std::move(model);
    return true;
  }
  std::optional<ArimaModel>& best() { return best_; }

 private:
  std::span<const double> series_;
  uint32_t differences_;
  std::map<ArimaOrder, bool> seen_;
  std::optional<ArimaModel> best_;
};

void climb(Walk& walk) {
  while (walk.best()) {
    const ArimaOrder from = walk.best()->order;
    const int p = static_cast<int>(from.p), q = static_cast<int>(from.q);
    const bool c = from.intercept;
    const bool better =
        walk.visit(p - 1, q, c) || walk.visit(p, q - 1, c) || walk.visit(p + 1, q, c) ||
        walk.visit(p, q + 1, c) || walk.visit(p - 1, q - 1, c) || walk.visit(p - 1, q + 1, c) ||
        walk.visit(p + 1, q - 1, c) || walk.visit(p + 1, q + 1, c) || walk.visit(p, q, !c);
    if (!better) {
      return;
    }
  }
}

}  // namespace

uint32_t find_differences(std::span<const double> series) {
  std::vector<double> rest(series.begin(), series.end());
  uint32_t count = 0;
  while (count < kDifferencesMax && rest.size() > 2 && !is_constant(rest) &&
         kpss_statistic(rest) > kKpssCritical) {
    for (size_t i = 0; i + 1 < rest.size(); ++i) {
      rest[i] = rest[i + 1] - rest[i];
    }
    rest.pop_back();
    ++count;
  }
  return count;
}

std::optional<ArimaModel> search_arima(std::span<const double> series) {
  if (series.empty()) {
    return {};
  }
  if (is_constant(series)) {
    return fit_arima(series, {.p = 0, .d = 0, .q = 0, .intercept = true});
  }
  const uint32_t differences = find_differences(series);
  std::vector<double> rest(series.begin(), series.end());
  for (uint32_t i = 0; i < differences; ++i) {
    for (size_t k = 0; k + 1 < rest.size(); ++k) {
      rest[k] = rest[k + 1] - rest[k];
    }
    rest.pop_back();
  }
  const bool intercept = differences < 2;
  if (is_constant(rest)) {
    return fit_arima(series, {.p = 0, .d = differences, .q = 0, .intercept = intercept});
  }
  Walk walk(series, differences);
  walk.visit(2, 2, intercept);
  walk.visit(0, 0, intercept);
  walk.visit(1, 0, intercept);
  walk.visit(0, 1, intercept);
  if (intercept) {
    walk.visit(0, 0, false);
  }
  climb(walk);
  if (!walk.best()) {
    return fit_arima(series, {.p = 0, .d = differences, .q = 0, .intercept = intercept});
  }
  return std::move(walk.best());
}

}  // namespace stator::planner
