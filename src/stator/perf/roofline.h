// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/perf/accelerator.h"
#include "stator/perf/operator_costs.h"

namespace stator::perf {

/// The shortest time in which an accelerator could do an operation: all its arithmetic at peak, all
/// its traffic at peak, whichever takes longer. Milliseconds.
class SpeedOfLight {
 public:
  SpeedOfLight(const Accelerator& accelerator, Precision weights, Precision kv)
      : accelerator_(accelerator), weights_(weights), kv_(kv) {}

  double gemm_ms(double m, double n, double k) const;
  /// `batch` prompts with `new_tokens` each, behind `prefix` tokens each.
  double context_attention_ms(const AttentionShape& shape, double batch, double new_tokens,
                              double prefix) const;
  /// `batch` sequences of `context` tokens.
  double generation_attention_ms(const AttentionShape& shape, double batch, double context) const;
  /// A ring over `ranks` accelerators.
  double all_reduce_ms(double elements, uint32_t ranks) const;
  double memory_ms(double bytes) const { return bytes / accelerator_.memory_bytes_per_s * 1e3; }

 private:
  Accelerator accelerator_;
  Precision weights_;
  Precision kv_;
};

/// What of the speed of light real kernels reach where nothing was measured.
struct Utilisation {
  double gemm = 0.7;
  double context_attention = 0.55;
  double generation_attention = 0.75;
  double communication = 0.7;
};

/// Costs by the roofline alone.
class RooflineCosts final : public OperatorCosts {
 public:
  RooflineCosts(const SpeedOfLight& light, const Utilisation& utilisation)
      : light_(light), utilisation_(utilisation) {}

  double gemm_ms(double m, double n, double k) const override;
  double context_attention_ms(const AttentionShape& shape, double batch, double new_tokens,
                              double prefix) const override;
  double generation_attention_ms(const AttentionShape& shape, double batch,
                                 double context) const override;
  double all_reduce_ms(double elements, uint32_t ranks) const override;
  double small_ms(double bytes) const override;

 private:
  SpeedOfLight light_;
  Utilisation utilisation_;
};

}  // namespace stator::perf
