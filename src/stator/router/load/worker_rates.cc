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

WorkerRates::Fits WorkerRates::fits_from(const Rates& rates) {
  return {.ttft = LineFit(rates.ttft_base_ms, rates.ttft_ms_per_token * kTokensPerUnit),
          .itl = LineFit(rates.itl_base_ms, rates.itl_ms_per_request * kRequestsPerUnit)};
}

WorkerRates::Rates WorkerRates::rates_from(const Fits& fits) {
  return {.ttft_base_ms = std::max(0.0, fits.ttft.base()),
          .ttft_ms_per_token = std::max(1e-6, fits.ttft.slope() / kTokensPerUnit),
          .itl_base_ms = std::max(0.0, fits.itl.base()),
          .itl_ms_per_request = std::max(0.0, fits.itl.slope() / kRequestsPerUnit)};
}

void WorkerRates::add_slot(LoadSlot slot) {
  const Rates fleet = rates_from(fleet_);
  if (slot >= fits_.size()) {
    fits_.resize(slot + 1, fits_from(fleet));
    rates_.resize(slot + 1, fleet);
  }
  fits_[slot] = fits_from(fleet);
  rates_[slot] = fleet;
}

void WorkerRates::first_token(LoadSlot slot, double prefill_tokens, double milliseconds) {
  if (fits_[slot].ttft.observe(prefill_tokens / kTokensPerUnit, milliseconds)) {
    fleet_.ttft.observe(prefill_tokens / kTokensPerUnit, milliseconds);
    rates_[slot] = rates_from(fits_[slot]);
  }
}

void WorkerRates::next_tokens(LoadSlot slot, double active_requests,
                              double milliseconds_per_token) {
  if (fits_[slot].itl.observe(active_requests / kRequestsPerUnit, milliseconds_per_token)) {
    fleet_.itl.observe(active_requests / kRequestsPerUnit, milliseconds_per_token);
    rates_[slot] = rates_from(fits_[slot]);
  }
}

}  // namespace stator::router
