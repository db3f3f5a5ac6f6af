// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/polynomial_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <tuple>

namespace stator::perf {
namespace {

double evaluate(const std::array<double, 3>& coefficients, double x) {
  return coefficients[0] + coefficients[1] * x + coefficients[2] * x * x;
}

}  // namespace

Result<PolynomialTiming> PolynomialTiming::create(const PolynomialCoefficients& coefficients) {
  // Virtual time is 64 bits of nanoseconds: passes of days would overflow it.
  const auto& [prefill, decode, decode_min] = coefficients;
  const std::array<std::tuple<std::string_view, double, double>, 7> limits = {
      {{"p0", prefill[0], 1e6},
       {"p1", prefill[1], 1e3},
       {"p2", prefill[2], 1},
       {"d0", decode[0], 1e6},
       {"d1", decode[1], 1e6},
       {"d2", decode[2], 1e6},
       {"decode_min", decode_min, 1e6}}};
  for (const auto& [name, value, limit] : limits) {
    if (!(std::abs(value) <= limit)) {  // nor NaN
      return Error(Code::kInvalidArgument, fmt::format("timing 'polynomial': {} must be from {} to "
                                                       "{} ms, is {}",
                                                       name, -limit, limit, value));
    }
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
  return std::max({0.0, coefficients_.decode_min_ms, evaluate(coefficients_.decode_ms, used)});
}

}  // namespace stator::perf
