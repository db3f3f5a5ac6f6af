// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "stator/core/result.h"
#include "stator/perf/model_shape.h"
#include "stator/perf/operator_costs.h"
#include "stator/perf/timing_model.h"

namespace stator::perf {

/// Heads of one of `ranks` tensor-parallel ranks; ranks beyond the KV heads hold copies of them.
AttentionShape attention_of_rank(const ModelShape& model, uint32_t ranks);

/// Time of a pass as the sum of its operations over all layers: projections and experts for all
/// tokens of the pass together, attention for prompts and for decodes apart, all-reduces between
/// tensor-parallel ranks, the head for sequences that get a token.
///
/// decode_ms() is the pass without its prompts, prefill_ms() what they add.
class OperatorTiming final : public TimingModel {
 public:
  /// kInvalidArgument if the model cannot be cut over `ranks`.
  static Result<std::unique_ptr<OperatorTiming>> create(const ModelShape& model, uint32_t ranks,
                                                        std::shared_ptr<const OperatorCosts> costs);

  double prefill_ms(const PassShape& shape) const override;
  double decode_ms(const PassShape& shape) const override;
  bool reads_context() const override { return true; }

 private:
  OperatorTiming(const ModelShape& model, uint32_t ranks,
                 std::shared_ptr<const OperatorCosts> costs);
  double compute_tokens_ms(double tokens) const;
  /// All but attention and the head; between whole numbers of tokens it is linear.
  double tokens_ms(double tokens) const;

  ModelShape model_;
  uint32_t ranks_;
  AttentionShape attention_;
  std::shared_ptr<const OperatorCosts> costs_;
  std::vector<double> known_tokens_ms_;  // of 0, 1, 2, … tokens
};

}  // namespace stator::perf
