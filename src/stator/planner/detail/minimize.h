// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace stator::planner::detail {

struct MinimizeOptions {
  size_t iterations = 50;
  double step = 1e-5;       ///< of the central differences
  double tolerance = 1e-8;  ///< on the gradient and on what an iteration gains
};
struct Minimum {
  std::vector<double> x;
  double cost = 0;
};

/// BFGS with numeric gradients and backtracking, for smooth costs of a few unknowns.
/// Source: Nocedal, Wright, Numerical Optimization (2006), algorithm 6.1.
template <typename Cost>
Minimum minimize(const Cost& cost, std::vector<double> x, const MinimizeOptions& options) {
  const size_t n = x.size();
  const auto gradient_at = [&](const std::vector<double>& at) {
    std::vector<double> gradient(n), probe = at;
    for (size_t i = 0; i < n; ++i) {
      probe[i] = at[i] + options.step;
      const double up = cost(std::span<const double>(probe));
      probe[i] = at[i] - options.step;
      const double down = cost(std::span<const double>(probe));
      probe[i] = at[i];
      gradient[i] = (up - down) / (2 * options.step);
    }
    return gradient;
  };
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  std::vector<double> inverse(n * n, 0.0);
  const auto reset = [&] {
    std::ranges::fill(inverse, 0.0);
    for (size_t i = 0; i < n; ++i) {
      inverse[i * n + i] = 1;
    }
  };
  reset();
  double value = cost(std::span<const double>(x));
  std::vector<double> gradient = gradient_at(x);
  for (size_t iteration = 0; iteration < options.iterations; ++iteration) {
    std::vector<double> direction(n, 0.0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        direction[i] -= inverse[i * n + j] * gradient[j];
      }
    }
    double slope = dot(direction, gradient);
    if (!(slope < 0)) {
      reset();
      for (size_t i = 0; i < n; ++i) {
        direction[i] = -gradient[i];
      }
      slope = dot(direction, gradient);
      if (!(slope < -options.tolerance * options.tolerance)) {
        break;
      }
    }
    const double length = std::sqrt(dot(direction, direction));
    double rate = length > 2 ? 2 / length : 1;
    std::vector<double> next(n);
    double next_value = value;
    bool found = false;
    for (int halving = 0; halving < 30; ++halving, rate /= 2) {
      for (size_t i = 0; i < n; ++i) {
        next[i] = x[i] + rate * direction[i];
      }
      next_value = cost(std::span<const double>(next));
      if (next_value <= value + 1e-4 * rate * slope) {
        found = true;
        break;
      }
    }
    if (!found) {
      break;
    }
    const std::vector<double> next_gradient = gradient_at(next);
    std::vector<double> s(n), y(n);
    for (size_t i = 0; i < n; ++i) {
      s[i] = next[i] - x[i];
      y[i] = next_gradient[i] - gradient[i];
    }
    const double gain = value - next_value;
    x = next;
    value = next_value;
    gradient = next_gradient;
    if (gain < options.tolerance * (std::abs(value) + options.tolerance) &&
        std::sqrt(dot(gradient, gradient)) < 1e-4) {
      break;
    }
    const double sy = dot(s, y);
    if (sy > 1e-12) {  // H = (I − ρ s yᵀ) H (I − ρ y sᵀ) + ρ s sᵀ
      std::vector<double> hy(n, 0.0);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
          hy[i] += inverse[i * n + j] * y[j];
        }
      }
      const double factor = (1 + dot(y, hy) / sy) / sy;
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
          inverse[i * n + j] += factor * s[i] * s[j] - (hy[i] * s[j] + s[i] * hy[j]) / sy;
        }
      }
    }
  }
  return {std::move(x), value};
}

}  // namespace stator::planner::detail
