// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::perf {

/// Heads of one rank's attention.
struct AttentionShape {
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
};

/// How long the operations of a transformer take on one accelerator, in milliseconds. Pure; safe to
/// share between threads.
class OperatorCosts {
 public:
  virtual ~OperatorCosts() = default;
  virtual double gemm_ms(double m, double n, double k) const = 0;
  virtual double context_attention_ms(const AttentionShape& shape, double batch, double new_tokens,
                                      double prefix) const = 0;
  virtual double generation_attention_ms(const AttentionShape& shape, double batch,
                                         double context) const = 0;
  virtual double all_reduce_ms(double elements, uint32_t ranks) const = 0;
  /// Norms, activations, embeddings: traffic and the start of a kernel.
  virtual double small_ms(double bytes) const = 0;
};

}  // namespace stator::perf
