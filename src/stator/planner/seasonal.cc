// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/seasonal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "stator/planner/detail/minimize.h"

namespace stator::planner {
namespace {

/// An autocorrelation below says nothing about a season.
constexpr double kClear = 0.3;
constexpr double kDamping = 0.98;

struct Rates {
  double level, trend, season;
};

SeasonalModel start(std::span<const double> series, size_t period) {
  SeasonalModel model;
  model.damping = kDamping;
  const auto count = static_cast<double>(period);
  const auto cycle = [&](size_t index) {
    const auto part = series.subspan(index * period, period);
    return std::accumulate(part.begin(), part.end(), 0.0) / count;
  };
  model.trend = (cycle(1) - cycle(0)) / count;
  model.level = cycle(0) - model.trend * (count + 1) / 2;
  model.phases.resize(period);
  const size_t cycles = series.size() / period;
  for (size_t i = 0; i < period; ++i) {
    for (size_t c = 0; c < cycles; ++c) {
      model.phases[i] += (series[c * period + i] - cycle(c)) / static_cast<double>(cycles);
    }
  }
  return model;
}

SeasonalModel smooth(std::span<const double> series, const SeasonalModel& begin,
                     const Rates& rates) {
  SeasonalModel model = begin;
  double squares = 0;
  for (const double y : series) {
    double& phase = model.phases[model.next_phase];
    const double expected = model.level + model.damping * model.trend + phase;
    const double error = y - expected;
    squares += error * error;
    model.level += model.damping * model.trend + rates.level * error;
    model.trend = model.damping * model.trend + rates.level * rates.trend * error;
    phase += rates.season * (1 - rates.level) * error;
    model.next_phase = (model.next_phase + 1) % model.phases.size();
  }
  model.loss = squares / static_cast<double>(std::max<size_t>(series.size(), 1));
  return model;
}

}  // namespace

std::vector<double> SeasonalModel::forecast(size_t steps) const {
  std::vector<double> out(steps);
  double drift = 0, slope = trend;
  for (size_t i = 0; i < steps; ++i) {
    slope *= damping;
    drift += slope;
    out[i] = level + drift + phases[(next_phase + i) % phases.size()];
  }
  return out;
}

SeasonalModel fit_seasonal(std::span<const double> series, size_t period) {
  const SeasonalModel begin = start(series, period);
  const auto rate = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto rates_of = [&](std::span<const double> x) {
    return Rates{rate(x[0]), rate(x[1]), rate(x[2])};
  };
  const auto cost = [&](std::span<const double> x) {
    return std::log(smooth(series, begin, rates_of(x)).loss + 1e-12);
  };
  detail::Minimum best{.x = {}, .cost = std::numeric_limits<double>::infinity()};
  for (const auto& guess : {std::array{-1.4, -3.0, -1.4}, std::array{0.5, -3.0, -3.0}}) {
    auto found = detail::minimize(cost, {guess.begin(), guess.end()}, {.iterations = 30});
    if (found.cost < best.cost) {
      best = std::move(found);
    }
  }
  return smooth(series, begin, rates_of(best.x));
}

size_t find_period(std::span<const double> series) {
  const size_t n = series.size();
  if (n < 8) {
    return 0;
  }
  // The trend goes first: a straight line by least squares.
  const auto count = static_cast<double>(n);
  double mean = 0, slope = 0, spread = 0;
  mean = std::accumulate(series.begin(), series.end(), 0.0) / count;
  for (size_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(i) - (count - 1) / 2;
    slope += x * (series[i] - mean);
    spread += x * x;
  }
  slope /= spread;
  std::vector<double> rest(n);
  double variance = 0;
  for (size_t i = 0; i < n; ++i) {
    rest[i] = series[i] - mean - slope * (static_cast<double>(i) - (count - 1) / 2);
    variance += rest[i] * rest[i];
  }
  if (!(variance > 0)) {
    return 0;
  }
  std::vector<double> correlation(n / 2 + 2, 0.0);
  for (size_t lag = 1; lag < correlation.size(); ++lag) {
    for (size_t i = lag; i < n; ++i) {
      correlation[lag] += rest[i] * rest[i - lag];
    }
    correlation[lag] *= count / static_cast<double>(n - lag) / variance;
  }
  size_t best = 0;
  for (size_t lag = 2; lag + 1 < correlation.size(); ++lag) {
    const bool is_peak =
        correlation[lag] >= correlation[lag - 1] && correlation[lag] > correlation[lag + 1];
    // A multiple of the period correlates as well: only what is clearly better replaces it.
    if (is_peak && correlation[lag] > kClear &&
        (best == 0 || correlation[lag] > correlation[best] + 0.1)) {
      best = lag;
    }
  }
  return best;
}

}  // namespace stator::planner
