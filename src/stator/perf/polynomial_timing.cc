// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/polynomial_timing.h"

#include <algorithm>
#include <cmath>

namespace stator::perf {
namespace {

double evaluate(const std::array<double, 3>& coefficients, double x) {
  return coefficients[0] + coefficients[1] * x + coefficients[2] * x * x;
}

}  // namespace

Result<PolynomialTiming> PolynomialTiming::create(const PolynomialCoefficients& coefficients) {
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!std::ranges::all_of(coefficients.prefill_ms, finite) ||
      !std::ranges::all_of(coefficients.decode_ms, finite) || !finite(coefficients.decode_min_ms)) {
    return Error(Code::kInvalidArgument, "timing coefficients must be finite numbers");
  }
  PolynomialTiming timing;
  timing.coefficients_ = coefficients;
  return timing;
}

double PolynomialTiming::prefill_ms(const PassShape& shape) const {
  if (shape.prefill_requests == 0 || shape.prefill_new_tokens == 0) {
    return 0;
  }
  return std::max(
      0.0, evaluate(coefficients_.prefill_ms, static_cast<double>(shape.prefill_new_tokens)));
}

double PolynomialTiming::decode_ms(const PassShape& shape) const {
  if (shape.decode_requests == 0) {
    return 0;
  }
  const double used = std::min(
      1.0, static_cast<double>(shape.kv_tokens) / static_cast<double>(shape.kv_tokens_max));
  return std::max(coefficients_.decode_min_ms, evaluate(coefficients_.decode_ms, used));
}

}  // namespace stator::perf
