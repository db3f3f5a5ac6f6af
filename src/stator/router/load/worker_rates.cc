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

void Pace::observe(double actual, double expected) {
  actual_ = kForgetting * actual_ + actual;
  expected_ = kForgetting * expected_ + expected;
  observations_ = kForgetting * observations_ + 1;
}

double Pace::factor() const {
  if (observations_ < kObservationsMin || !(expected_ > 0)) {
    return 1;
  }
  const double factor = std::clamp(actual_ / expected_, 1 / kFactorMax, kFactorMax);
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

void WorkerRates::observe(LineFit& line, Pace& pace, double x, double y) {
  const double expected = line.at(x);  // as the line is: coefficients made positive would be biased
  if (line.observe(x, y)) {
    pace.observe(y, std::max(0.0, expected));
  }
}

void WorkerRates::first_token(LoadSlot slot, double prefill_tokens, double milliseconds) {
  observe(ttft_, paces_[slot].ttft, prefill_tokens / kTokensPerUnit, milliseconds);
  factors_[slot].ttft = static_cast<float>(paces_[slot].ttft.factor());
}

void WorkerRates::next_tokens(LoadSlot slot, double active_requests,
                              double milliseconds_per_token) {
  observe(itl_, paces_[slot].itl, active_requests / kRequestsPerUnit, milliseconds_per_token);
  factors_[slot].itl = static_cast<float>(paces_[slot].itl.factor());
}

}  // namespace stator::router
