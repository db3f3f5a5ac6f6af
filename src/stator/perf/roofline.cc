// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/roofline.h"

#include <algorithm>

namespace stator::perf {
namespace {

constexpr double kMs = 1e3;
constexpr double kActivationBytes = 2;  // bfloat16
constexpr double kMemoryUtilisation = 0.8;
constexpr double kKernelStartMs = 0.003;

}  // namespace

double SpeedOfLight::gemm_ms(double m, double n, double k) const {
  const double math = 2 * m * n * k / accelerator_.flops(weights_);
  const double bytes = bytes_of(weights_) * (m * k + n * k) + kActivationBytes * m * n;
  return std::max(math, bytes / accelerator_.memory_bytes_per_s) * kMs;
}

double SpeedOfLight::context_attention_ms(const AttentionShape& shape, double batch,
                                          double new_tokens, double prefix) const {
  const double length = prefix + new_tokens;
  // Two products per pair of a query and a key that it sees, two operations each.
  const double pairs = new_tokens * prefix + new_tokens * new_tokens / 2;
  const double math =
      4 * batch * pairs * shape.heads * shape.head_dim / accelerator_.bfloat16_flops;
  const double bytes = batch * shape.head_dim *
                       (2 * kActivationBytes * shape.heads * new_tokens +
                        2 * bytes_of(kv_) * shape.kv_heads * length);
  return std::max(math, bytes / accelerator_.memory_bytes_per_s) * kMs;
}

double SpeedOfLight::generation_attention_ms(const AttentionShape& shape, double batch,
                                             double context) const {
  const double math =
      4 * batch * shape.heads * shape.head_dim * context / accelerator_.bfloat16_flops;
  const double bytes =
      batch * shape.head_dim *
      (2 * kActivationBytes * shape.heads + 2 * bytes_of(kv_) * shape.kv_heads * context);
  return std::max(math, bytes / accelerator_.memory_bytes_per_s) * kMs;
}

double SpeedOfLight::all_reduce_ms(double elements, uint32_t ranks) const {
  return ranks < 2 ? 0
                   : 2 * kActivationBytes * elements * (ranks - 1) / ranks /
                         accelerator_.link_bytes_per_s * kMs;
}

double RooflineCosts::gemm_ms(double m, double n, double k) const {
  return light_.gemm_ms(m, n, k) / utilisation_.gemm;
}

double RooflineCosts::context_attention_ms(const AttentionShape& shape, double batch,
                                           double new_tokens, double prefix) const {
  return light_.context_attention_ms(shape, batch, new_tokens, prefix) /
         utilisation_.context_attention;
}

double RooflineCosts::generation_attention_ms(const AttentionShape& shape, double batch,
                                              double context) const {
  return light_.generation_attention_ms(shape, batch, context) / utilisation_.generation_attention;
}

double RooflineCosts::all_reduce_ms(double elements, uint32_t ranks) const {
  return light_.all_reduce_ms(elements, ranks) / utilisation_.communication;
}

double RooflineCosts::small_ms(double bytes) const {
  return light_.memory_ms(bytes) / kMemoryUtilisation + kKernelStartMs;
}

}  // namespace stator::perf
