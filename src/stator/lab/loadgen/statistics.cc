// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stator::loadgen {
namespace {

double interpolate(std::span<const double> sorted, double percent) {
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - static_cast<double>(below));
}

template <typename Percentile>
void fill_percentiles(Summary& out, const Percentile& at) {
  out.p1 = at(1);
  out.p5 = at(5);
  out.p10 = at(10);
  out.p25 = at(25);
  out.p50 = at(50);
  out.p75 = at(75);
  out.p90 = at(90);
  out.p95 = at(95);
  out.p99 = at(99);
}

/// Continued fraction of the incomplete beta function, by Lentz's method
/// (Abramowitz and Stegun 26.5.8).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1;
  double d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < kTiny ? kTiny : d);
  double result = d;
  for (int m = 1; m <= 300; ++m) {
    const auto step = [&](double coefficient) {
      d = 1 + coefficient * d;
      d = 1 / (std::abs(d) < kTiny ? kTiny : d);
      c = 1 + coefficient / c;
      c = std::abs(c) < kTiny ? kTiny : c;
      result *= c * d;
      return c * d;
    };
    step(m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)));
    if (std::abs(step(-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))) - 1) < 1e-15) {
      break;
    }
  }
  return result;
}

/// Regularised incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) {
    return x <= 0 ? 0 : 1;
  }
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

Summary summarize(std::vector<double>& values) {
  Summary out;
  if (values.empty()) {
    return out;
  }
  std::ranges::sort(values);
  out.count = values.size();
  out.min = values.front();
  out.max = values.back();
  out.sum = std::accumulate(values.begin(), values.end(), 0.0);
  out.avg = out.sum / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) {
    squares += (value - out.avg) * (value - out.avg);
  }
  out.std = std::sqrt(squares / static_cast<double>(values.size()));
  fill_percentiles(out, [&](double percent) { return interpolate(values, percent); });
  return out;
}

Summary summarize(const Histogram& histogram, double scale) {
  Summary out;
  out.count = histogram.count();
  out.min = static_cast<double>(histogram.smallest()) * scale;
  out.max = static_cast<double>(histogram.largest()) * scale;
  out.sum = histogram.sum() * scale;
  out.avg = histogram.mean() * scale;
  out.std = histogram.deviation() * scale;
  fill_percentiles(out, [&](double percent) { return histogram.percentile(percent) * scale; });
  return out;
}

double student_t(double probability, double degrees) {
  const auto within = [degrees](double t) {
    return 1 - incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
  };
  double low = 0;
  double high = 1;
  while (within(high) < probability && high < 1e9) {
    high *= 2;
  }
  for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
    const double middle = (low + high) / 2;
    (within(middle) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

Confidence confidence_95(std::span<const double> values) {
  Confidence out;
  out.runs = values.size();
  if (values.empty()) {
    return out;
  }
  const auto count = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  out.low = out.high = out.mean;
  if (values.size() < 2) {
    return out;
  }
  double squares = 0;
  for (const double value : values) {
    squares += (value - out.mean) * (value - out.mean);
  }
  out.std = std::sqrt(squares / (count - 1));
  const double half = student_t(0.95, count - 1) * out.std / std::sqrt(count);
  out.low = out.mean - half;
  out.high = out.mean + half;
  return out;
}

std::optional<size_t> find_warm_up(std::span<const double> series) {
  constexpr size_t kValuesMin = 10;
  if (series.size() < kValuesMin) {
    return 0;
  }
  // From the back, so that the sums of every tail come for free.
  double sum = 0;
  double squares = 0;
  size_t best = 0;
  double best_error = INFINITY;
  for (size_t cut = series.size(); cut-- > 0;) {
    sum += series[cut];
    squares += series[cut] * series[cut];
    const auto left = static_cast<double>(series.size() - cut);
    if (series.size() - cut < kValuesMin / 2) {
      continue;  // too few to say anything
    }
    const double error = std::max(0.0, squares - sum * sum / left) / (left * left);
    // A tie goes to the earlier cut; the margin forgives rounding.
    if (error <= best_error * (1 + 1e-9) + 1e-30) {
      best_error = error;
      best = cut;
    }
  }
  return best <= series.size() / 2 ? std::optional(best) : std::nullopt;
}

}  // namespace stator::loadgen
