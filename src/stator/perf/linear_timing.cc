// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/linear_timing.h"

#include <fmt/format.h>

#include <cmath>

namespace stator::perf {
namespace {

constexpr double kUsPerMs = 1e3;

}  // namespace

Result<LinearTiming> LinearTiming::create(const LinearCoefficients& coefficients) {
  for (const double coefficient :
       {coefficients.step_us, coefficients.prefill_token_us, coefficients.prefill_pair_us,
        coefficients.decode_sequence_us, coefficients.decode_context_token_us}) {
    if (!std::isfinite(coefficient) || coefficient < 0) {
      return Error(Code::kInvalidArgument,
                   fmt::format("timing coefficient {} must be a number ≥ 0", coefficient));
    }
  }
  LinearTiming timing;
  timing.coefficients_ = coefficients;
  return timing;
}

double LinearTiming::prefill_ms(const PassShape& shape) const {
  if (shape.prefill_new_tokens == 0) {
    return 0;
  }
  const double once = shape.decode_requests == 0 ? coefficients_.step_us : 0;
  return (once + coefficients_.prefill_token_us * static_cast<double>(shape.prefill_new_tokens) +
          coefficients_.prefill_pair_us * static_cast<double>(shape.prefill_pairs)) /
         kUsPerMs;
}

double LinearTiming::decode_ms(const PassShape& shape) const {
  if (shape.decode_requests == 0) {
    return 0;
  }
  return (coefficients_.step_us +
          coefficients_.decode_sequence_us * static_cast<double>(shape.decode_requests) +
          coefficients_.decode_context_token_us * static_cast<double>(shape.context_tokens)) /
         kUsPerMs;
}

}  // namespace stator::perf
