// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/result.h"
#include "stator/perf/timing_model.h"

namespace stator::perf {

/// Time as sums, in microseconds:
///
///   step_us                                      once per pass
///   + prefill_token_us · (prompt tokens computed)
///   + prefill_pair_us · (pairs of such a token and one it attends to)
///   + decode_sequence_us · (sequences that get a token)
///   + decode_context_token_us · Σ length of those
///
/// The defaults look like a mid-size accelerator with an 8B model: 8 ms per decode step of a large
/// batch, 20 k prefill tokens per second.
struct LinearCoefficients {
  double step_us = 5'000;
  double prefill_token_us = 50;
  double prefill_pair_us = 0.002;
  double decode_sequence_us = 20;
  double decode_context_token_us = 0.02;
};

class LinearTiming final : public TimingModel {
 public:
  LinearTiming() = default;
  /// kInvalidArgument for coefficients that are not numbers ≥ 0.
  static Result<LinearTiming> create(const LinearCoefficients& coefficients);

  /// Has the step's fixed cost if nobody decodes, else decode_ms has it.
  double prefill_ms(const PassShape& shape) const override;
  double decode_ms(const PassShape& shape) const override;
  bool reads_context() const override { return coefficients_.decode_context_token_us != 0; }

 private:
  LinearCoefficients coefficients_;
};

}  // namespace stator::perf
