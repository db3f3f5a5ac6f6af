// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "stator/core/result.h"
#include "stator/perf/timing_model.h"

namespace stator::perf {

/// Time as polynomials of degree two: prefill of the new tokens T, decode of the part u of the KV
/// blocks that is in use (0..1).
///   prefill = p[0] + p[1]·T + p[2]·T²        decode = max(decode_min_ms, d[0] + d[1]·u + d[2]·u²)
/// The defaults are the calibration of NVIDIA Dynamo's mock engine, so that results compare.
struct PolynomialCoefficients {
  std::array<double, 3> prefill_ms = {16.50142, 1.518344e-2, 4.209989e-7};
  std::array<double, 3> decode_ms = {5.74, 54.01, -25.74};
  double decode_min_ms = 1;
};

class PolynomialTiming final : public TimingModel {
 public:
  PolynomialTiming() = default;
  /// kInvalidArgument for coefficients that are no numbers, or make passes last for weeks.
  static Result<PolynomialTiming> create(const PolynomialCoefficients& coefficients);

  double prefill_ms(const PassShape& shape) const override;
  double decode_ms(const PassShape& shape) const override;
  bool reads_context() const override { return false; }

 private:
  PolynomialCoefficients coefficients_;
};

}  // namespace stator::perf
