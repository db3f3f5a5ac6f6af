// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load/worker_rates.h"

#include <algorithm>
#include <cmath>

namespace stator::router {
namespace {

// Half the weight is on the last 140 observations: a minute or so of a busy worker.
constexpr double kForgetting = 0.995;
// x is scaled to about 1, so that both coefficients are learned equally fast.
constexpr double kTokensPerUnit = 1000;
constexpr double kRequestsPerUnit = 16;
// Forgetting without news would let the covariance grow without bound.
constexpr double kCovarianceMax = 1e4;
// Equal workers differ by a fifth, by what they have to do at the moment.
constexpr double kClearly = 1.25;
constexpr double kFactorMax = 100;
constexpr double kObservationsMin = 20;
// The last ten or so.
constexpr double kRecentForgetting = 0.9;
// Short against the minutes that a worker without requests costs its fleet, long against the
// seconds between two requests of a fleet with little to do.
constexpr double kRecentHalfLifeSeconds = 3;
// One observation of just now is believed in full, less evidence in part.
constexpr double kRecentEnough = 1;

}  // namespace

bool LineFit::observe(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y) || x < 0 || y < 0) {
    return false;
  }
  const double g0 = p00_ + p01_ * x;
  const double g1 = p01_ + p11_ * x;
  const double scale = 1 / (kForgetting + g0 + x * g1);
  const double error = y - (base_ + slope_ * x);
  base_ += g0 * scale * error;
  slope_ += g1 * scale * error;
  p00_ = std::min(kCovarianceMax, (p00_ - g0 * g0 * scale) / kForgetting);
  p01_ = (p01_ - g0 * g1 * scale) / kForgetting;
  p11_ = std::min(kCovarianceMax, (p11_ - g1 * g1 * scale) / kForgetting);
  const double bound = std::sqrt(std::max(0.0, p00_ * p11_));
  p01_ = std::clamp(p01_, -bound, bound);
  ++observations_;
  return true;
}

void Pace::Sums::observe(double forgetting, double actual_now, double expected_now) {
  actual = forgetting * actual + actual_now;
  expected = forgetting * expected + expected_now;
  observations = forgetting * observations + 1;
}

double Pace::Sums::ratio() const {
  return expected > 0 ? std::clamp(actual / expected, 1 / kFactorMax, kFactorMax) : 1;
}

double Pace::recent_left(TimePoint now) const {
  const double idle = std::chrono::duration<double>(now - last_).count();
  return std::exp2(-std::max(0.0, idle) / kRecentHalfLifeSeconds);
}

void Pace::observe(double actual, double expected, TimePoint now) {
  habit_.observe(kForgetting, actual, expected);
  recent_.observe(kRecentForgetting * recent_left(now), actual, expected);
  last_ = std::max(last_, now);
}

double Pace::factor(TimePoint now) const {
  if (habit_.observations < kObservationsMin) {
    return 1;
  }
  const double habit = habit_.ratio();
  const double recent = recent_.ratio();
  if (habit < kClearly && habit > 1 / kClearly) {
    return 1;
  }
  const double agreed = habit > 1 ? std::clamp(recent, 1.0, habit) : std::clamp(recent, habit, 1.0);
  const double believed = std::min(1.0, recent_.observations * recent_left(now) / kRecentEnough);
  const double factor = std::pow(agreed, believed);
  return factor > kClearly || factor < 1 / kClearly ? factor : 1;
}

WorkerRates::WorkerRates()
    : ttft_(Rates().ttft_base_ms, Rates().ttft_ms_per_token * kTokensPerUnit),
      itl_(Rates().itl_base_ms, Rates().itl_ms_per_request * kRequestsPerUnit) {}

void WorkerRates::add_slot(LoadSlot slot) {
  if (slot >= paces_.size()) {
    paces_.resize(slot + 1);
    factors_.resize(slot + 1);
  }
  paces_[slot] = {};
  factors_[slot] = {};
}

WorkerRates::Rates WorkerRates::fleet_rates() const {
  const auto at_least = [](double low, double value) {
    return static_cast<float>(std::max(low, value));
  };
  return {.ttft_base_ms = at_least(0, ttft_.base()),
          .ttft_ms_per_token = at_least(1e-6, ttft_.slope() / kTokensPerUnit),
          .itl_base_ms = at_least(0, itl_.base()),
          .itl_ms_per_request = at_least(0, itl_.slope() / kRequestsPerUnit)};
}

WorkerRates::Rates WorkerRates::scaled(const Rates& fleet, const Factors& factors) {
  return {.ttft_base_ms = fleet.ttft_base_ms * factors.ttft,
          .ttft_ms_per_token = fleet.ttft_ms_per_token * factors.ttft,
          .itl_base_ms = fleet.itl_base_ms * factors.itl,
          .itl_ms_per_request = fleet.itl_ms_per_request * factors.itl};
}

WorkerRates::Rates WorkerRates::of(LoadSlot slot) const {
  return scaled(fleet_rates(), factors_[slot]);
}

void WorkerRates::read(std::span<const LoadSlot> slots, std::span<Rates> rates) const {
  const Rates fleet = fleet_rates();
  for (size_t i = 0; i < slots.size(); ++i) {
    rates[i] = scaled(fleet, factors_[slots[i]]);
  }
}

void WorkerRates::scale(std::span<const Factors> factors, std::span<Rates> rates) const {
  const Rates fleet = fleet_rates();
  for (size_t i = 0; i < factors.size(); ++i) {
    rates[i] = scaled(fleet, factors[i]);
  }
}

void WorkerRates::observe(LineFit& line, Pace& pace, double x, double y, TimePoint now) {
  const double expected = line.at(x);  // as the line is: coefficients made positive would be biased
  if (line.observe(x, y)) {
    pace.observe(y, std::max(0.0, expected), now);
  }
}

WorkerRates::Factors WorkerRates::factors_at(LoadSlot slot, TimePoint now) const {
  return {.ttft = static_cast<float>(paces_[slot].ttft.factor(now)),
          .itl = static_cast<float>(paces_[slot].itl.factor(now))};
}

void WorkerRates::first_token(LoadSlot slot, double prefill_tokens, double milliseconds,
                              TimePoint now) {
  observe(ttft_, paces_[slot].ttft, prefill_tokens / kTokensPerUnit, milliseconds, now);
  factors_[slot].ttft = static_cast<float>(paces_[slot].ttft.factor(now));
}

void WorkerRates::next_tokens(LoadSlot slot, double active_requests, double milliseconds_per_token,
                              TimePoint now) {
  observe(itl_, paces_[slot].itl, active_requests / kRequestsPerUnit, milliseconds_per_token, now);
  factors_[slot].itl = static_cast<float>(paces_[slot].itl.factor(now));
}

std::span<const LoadSlot> WorkerRates::age(TimePoint now) {
  aged_.clear();
  if (now < next_aging_) {
    return aged_;
  }
  next_aging_ = now + kAgingInterval;
  for (LoadSlot slot = 0; slot < factors_.size(); ++slot) {
    if (factors_[slot] == Factors()) {
      continue;
    }
    const Factors faded = factors_at(slot, now);
    if (faded != factors_[slot]) {
      factors_[slot] = faded;
      aged_.push_back(slot);
    }
  }
  return aged_;
}

}  // namespace stator::router
