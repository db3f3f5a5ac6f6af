// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/arima.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "stator/planner/detail/minimize.h"
#include "stator/planner/detail/small_linear.h"

namespace stator::planner {
namespace {

constexpr size_t kStatesMax = kArimaOrderMax + 1;
constexpr double kWorst = 1e10;
/// Partial autocorrelations are kept this far from 1, where the likelihood has no maximum.
constexpr double kPartialMax = 0.9999;

using States = std::array<double, kStatesMax>;
using Covariance = std::array<States, kStatesMax>;

std::vector<double> difference(std::span<const double> series) {
  std::vector<double> out(series.size() > 0 ? series.size() - 1 : 0);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = series[i + 1] - series[i];
  }
  return out;
}

/// Partial autocorrelations → coefficients of a stationary AR polynomial (Durbin, Levinson).
std::vector<double> from_partial(std::span<const double> partial) {
  std::vector<double> phi;
  for (const double r : partial) {
    std::vector<double> next = phi;
    for (size_t i = 0; i < phi.size(); ++i) {
      next[i] = phi[i] - r * phi[phi.size() - 1 - i];
    }
    next.push_back(r);
    phi = std::move(next);
  }
  return phi;
}

/// The inverse; nothing if the polynomial is not stationary.
std::optional<std::vector<double>> to_partial(std::vector<double> phi) {
  std::vector<double> partial(phi.size());
  for (size_t k = phi.size(); k-- > 0;) {
    const double r = phi[k];
    if (!(std::abs(r) < 1)) {
      return {};
    }
    partial[k] = r;
    std::vector<double> lower(k);
    for (size_t i = 0; i < k; ++i) {
      lower[i] = (phi[i] + r * phi[k - 1 - i]) / (1 - r * r);
    }
    phi = std::move(lower);
  }
  return partial;
}

/// One model's state-space form, Harvey's: the state's first element is the series.
struct Form {
  size_t states = 1;
  States phi{};
  States ma{};  // 1, θ1, θ2, …

  Form(std::span<const double> ar, std::span<const double> theta)
      : states(std::max(ar.size(), theta.size() + 1)) {
    std::ranges::copy(ar, phi.begin());
    ma[0] = 1;
    std::ranges::copy(theta, ma.begin() + 1);
  }

  /// P = T P Tᵀ + R Rᵀ, as linear equations of the upper triangle.
  bool stationary(Covariance& p) const {
    const size_t count = states * (states + 1) / 2;
    std::array<std::array<size_t, kStatesMax>, kStatesMax> at{};
    size_t next = 0;
    for (size_t i = 0; i < states; ++i) {
      for (size_t j = i; j < states; ++j) {
        at[i][j] = at[j][i] = next++;
      }
    }
    detail::LinearSystem system(count);
    for (size_t i = 0; i < states; ++i) {
      for (size_t j = i; j < states; ++j) {
        const size_t row = at[i][j];
        system.at(row, row) += 1;
        system.at(row, at[0][0]) -= phi[i] * phi[j];
        if (j + 1 < states) {
          system.at(row, at[0][j + 1]) -= phi[i];
        }
        if (i + 1 < states) {
          system.at(row, at[i + 1][0]) -= phi[j];
        }
        if (i + 1 < states && j + 1 < states) {
          system.at(row, at[i + 1][j + 1]) -= 1;
        }
        system.right(row) = ma[i] * ma[j];
      }
    }
    if (!system.solve()) {
      return false;
    }
    for (size_t i = 0; i < states; ++i) {
      for (size_t j = 0; j < states; ++j) {
        p[i][j] = system.right(at[i][j]);
      }
    }
    return p[0][0] > 0;
  }
};

struct Innovations {
  double sum_squares = 0;     // Σ v²/f
  double sum_logarithms = 0;  // Σ ln f
  States state{};
  bool ok = false;
};

/// Filters the series less its mean.
Innovations filter(const Form& form, std::span<const double> series, double mean) {
  Innovations out;
  Covariance p{};
  if (!form.stationary(p)) {
    return out;
  }
  const size_t n = form.states;
  States a{};
  bool steady = false;
  double f = p[0][0];
  for (const double y : series) {
    if (!steady) {
      f = p[0][0];
    }
    if (!(f > 1e-12)) {
      return out;
    }
    const double v = y - mean - a[0];
    out.sum_squares += v * v / f;
    out.sum_logarithms += std::log(f);
    States gain{};
    for (size_t i = 0; i < n; ++i) {
      gain[i] = p[i][0] / f;
      a[i] += gain[i] * v;
    }
    const double first = a[0];
    for (size_t i = 0; i < n; ++i) {
      a[i] = form.phi[i] * first + (i + 1 < n ? a[i + 1] : 0);
    }
    if (steady) {
      continue;  // gain and variance no longer change
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i + 1; j-- > 0;) {
        p[i][j] -= gain[i] * gain[j] * f;
        p[j][i] = p[i][j];
      }
    }
    Covariance next{};
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = form.phi[i] * form.phi[j] * p[0][0] + form.ma[i] * form.ma[j];
        sum += j + 1 < n ? form.phi[i] * p[0][j + 1] : 0;
        sum += i + 1 < n ? form.phi[j] * p[i + 1][0] : 0;
        sum += i + 1 < n && j + 1 < n ? p[i + 1][j + 1] : 0;
        next[i][j] = next[j][i] = sum;
      }
    }
    steady = std::abs(next[0][0] - f) < 1e-12 * f && std::abs(next[0][0] - 1) < 1e-9;
    p = next;
  }
  out.state = a;
  out.ok = std::isfinite(out.sum_squares) && std::isfinite(out.sum_logarithms);
  return out;
}

/// Coordinates of the optimiser: partial autocorrelations through atanh, then the mean in units of
/// the series' deviation.
struct Coordinates {
  const ArimaOrder& order;
  double mean = 0;
  double deviation = 1;

  std::vector<double> polynomial(std::span<const double> x) const {
    std::vector<double> partial(x.size());
    std::ranges::transform(x, partial.begin(), [](double u) { return kPartialMax * std::tanh(u); });
    return from_partial(partial);
  }
  std::vector<double> phi(std::span<const double> x) const {
    return polynomial(x.subspan(0, order.p));
  }
  std::vector<double> theta(std::span<const double> x) const {
    // 1 + θ(B) is invertible where 1 − φ(B) with φ = −θ is stationary.
    std::vector<double> out = polynomial(x.subspan(order.p, order.q));
    std::ranges::transform(out, out.begin(), std::negate<>());
    return out;
  }
  double mean_of(std::span<const double> x) const {
    return order.intercept ? mean + deviation * x[order.p + order.q] : 0;
  }
  size_t size() const { return order.p + order.q + (order.intercept ? 1 : 0); }
};

/// Regression on own lags and on the residuals of a long autoregression (Hannan, Rissanen 1982).
std::vector<double> start_values(std::span<const double> series, const ArimaOrder& order,
                                 const Coordinates& coordinates) {
  std::vector<double> x(coordinates.size(), 0.0);
  const size_t lag_max = std::max(order.p, order.q);
  const size_t longest = std::min<size_t>(series.size() / 4, 2 * lag_max + 3);
  if (lag_max == 0 || longest == 0 || series.size() < longest + lag_max + order.p + order.q + 3) {
    return x;
  }
  const double mean = order.intercept ? coordinates.mean : 0;
  std::vector<double> residuals(series.size(), 0.0);
  const auto value = [&](size_t t) { return series[t] - mean; };
  detail::LeastSquares autoregression(longest);
  std::vector<double> row(longest);
  for (size_t t = longest; t < series.size(); ++t) {
    for (size_t i = 0; i < longest; ++i) {
      row[i] = value(t - 1 - i);
    }
    autoregression.add(row, value(t));
  }
  const std::vector<double> long_phi = autoregression.solve();
  for (size_t t = longest; t < series.size(); ++t) {
    residuals[t] = value(t);
    for (size_t i = 0; i < longest; ++i) {
      residuals[t] -= long_phi[i] * value(t - 1 - i);
    }
  }
  detail::LeastSquares both(order.p + order.q);
  row.resize(order.p + order.q);
  for (size_t t = longest + lag_max; t < series.size(); ++t) {
    for (size_t i = 0; i < order.p; ++i) {
      row[i] = value(t - 1 - i);
    }
    for (size_t i = 0; i < order.q; ++i) {
      row[order.p + i] = residuals[t - 1 - i];
    }
    both.add(row, value(t));
  }
  std::vector<double> fitted = both.solve();
  const auto fill = [&](size_t begin, size_t count, double sign) {
    std::vector<double> part(count);
    for (size_t i = 0; i < count; ++i) {
      part[i] = sign * fitted[begin + i];
    }
    if (const auto partial = to_partial(std::move(part))) {
      for (size_t i = 0; i < count; ++i) {
        x[begin + i] = std::atanh(std::clamp((*partial)[i], -0.95, 0.95));
      }
    }
  };
  fill(0, order.p, 1);
  fill(order.p, order.q, -1);
  return x;
}

}  // namespace

std::optional<ArimaModel> fit_arima(std::span<const double> series, const ArimaOrder& order) {
  ArimaModel model;
  model.order = order;
  std::vector<double> differenced(series.begin(), series.end());
  for (uint32_t i = 0; i < order.d; ++i) {
    if (differenced.size() < 2) {
      return {};
    }
    model.tails.push_back(differenced.back());
    differenced = difference(differenced);
  }
  const size_t count = differenced.size();
  const size_t terms = static_cast<size_t>(order.p) + order.q;
  if (count < 1 || (terms > 0 && count <= terms + 1) || order.p > kArimaOrderMax ||
      order.q > kArimaOrderMax) {
    return {};
  }
  Coordinates coordinates{order};
  const auto n = static_cast<double>(count);
  coordinates.mean = std::accumulate(differenced.begin(), differenced.end(), 0.0) / n;
  double squares = 0;
  for (const double y : differenced) {
    squares += (y - coordinates.mean) * (y - coordinates.mean);
  }
  coordinates.deviation = std::max(std::sqrt(squares / n), 1e-9);
  const auto cost = [&](std::span<const double> x) {
    const Form form(coordinates.phi(x), coordinates.theta(x));
    const Innovations got = filter(form, differenced, coordinates.mean_of(x));
    if (!got.ok) {
      return kWorst;
    }
    const double sigma2 = std::max(got.sum_squares / n, 1e-300);
    return 0.5 * (std::log(sigma2) + got.sum_logarithms / n);
  };
  std::vector<double> best = start_values(differenced, order, coordinates);
  if (!best.empty()) {
    best = detail::minimize(cost, std::move(best), {.iterations = 50}).x;
  }
  model.phi = coordinates.phi(best);
  model.theta = coordinates.theta(best);
  model.mean = coordinates.mean_of(best);
  const Form form(model.phi, model.theta);
  const Innovations got = filter(form, differenced, model.mean);
  if (!got.ok) {
    return {};
  }
  model.sigma2 = std::max(got.sum_squares / n, 1e-300);
  model.log_likelihood = -0.5 * (n * (std::log(2 * std::numbers::pi) + std::log(model.sigma2) + 1) +
                                 got.sum_logarithms);
  model.aic = -2 * model.log_likelihood + 2 * (static_cast<double>(coordinates.size()) + 1);
  model.state.assign(got.state.begin(), got.state.begin() + static_cast<ptrdiff_t>(form.states));
  return model;
}

std::vector<double> ArimaModel::forecast(size_t steps) const {
  std::vector<double> out(steps);
  std::vector<double> a = state;
  std::vector<double> level = tails;
  for (double& value : out) {
    double next = (a.empty() ? 0 : a[0]) + mean;
    const double first = a.empty() ? 0 : a[0];
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = (i < phi.size() ? phi[i] * first : 0) + (i + 1 < a.size() ? a[i + 1] : 0);
    }
    for (size_t i = level.size(); i-- > 0;) {  // undo the differences, the last one first
      level[i] += next;
      next = level[i];
    }
    value = next;
  }
  return out;
}

}  // namespace stator::planner
