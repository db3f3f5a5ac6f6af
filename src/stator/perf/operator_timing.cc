// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/operator_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::perf {
namespace {

constexpr double kActivationBytes = 2;
/// Passes of decodes are looked up, larger ones computed.
constexpr size_t kKnownTokens = 1025;

}  // namespace

AttentionShape attention_of_rank(const ModelShape& model, uint32_t ranks) {
  return {.heads = model.heads / ranks,
          .kv_heads = std::max(1U, model.kv_heads / ranks),
          .head_dim = model.head_dim};
}

Result<std::unique_ptr<OperatorTiming>> OperatorTiming::create(
    const ModelShape& model, uint32_t ranks, std::shared_ptr<const OperatorCosts> costs) {
  if (ranks == 0 || model.heads % ranks != 0 || model.intermediate % ranks != 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} heads and {} intermediate columns cannot be cut over tp={}",
                             model.heads, model.intermediate, ranks));
  }
  return std::unique_ptr<OperatorTiming>(new OperatorTiming(model, ranks, std::move(costs)));
}

OperatorTiming::OperatorTiming(const ModelShape& model, uint32_t ranks,
                               std::shared_ptr<const OperatorCosts> costs)
    : model_(model),
      ranks_(ranks),
      attention_(attention_of_rank(model, ranks)),
      costs_(std::move(costs)) {
  known_tokens_ms_.reserve(kKnownTokens);
  for (size_t tokens = 0; tokens < kKnownTokens; ++tokens) {
    known_tokens_ms_.push_back(compute_tokens_ms(static_cast<double>(tokens)));
  }
}

double OperatorTiming::compute_tokens_ms(double tokens) const {
  if (tokens == 0) {
    return 0;
  }
  const double hidden = model_.hidden;
  const double head_columns = double{1} * attention_.heads * attention_.head_dim;
  const double kv_columns = double{2} * attention_.kv_heads * attention_.head_dim;
  const double inner = double{1} * model_.intermediate / ranks_;
  double layer = costs_->gemm_ms(tokens, head_columns + kv_columns, hidden) +
                 costs_->gemm_ms(tokens, hidden, head_columns);
  // Every expert that any token chose is read; each computes its share of the tokens.
  const double chosen = tokens * model_.experts_per_token;
  const double groups = model_.experts == 0 ? 1 : std::min<double>(model_.experts, chosen);
  const double rows = model_.experts == 0 ? tokens : chosen / groups;
  layer +=
      groups * (costs_->gemm_ms(rows, 2 * inner, hidden) + costs_->gemm_ms(rows, hidden, inner));
  layer += 2 * costs_->all_reduce_ms(tokens * hidden, ranks_);
  // Two norms with their sums, the rotation and writing of keys, the activation.
  layer += 2 * costs_->small_ms(4 * kActivationBytes * tokens * hidden) +
           costs_->small_ms(2 * kActivationBytes * tokens * (head_columns + kv_columns)) +
           costs_->small_ms(3 * kActivationBytes * tokens * inner);
  return model_.layers * layer + costs_->small_ms(2 * kActivationBytes * tokens * hidden);
}

double OperatorTiming::tokens_ms(double tokens) const {
  const auto index = static_cast<size_t>(tokens);
  return index < known_tokens_ms_.size() ? known_tokens_ms_[index] : compute_tokens_ms(tokens);
}

double OperatorTiming::prefill_ms(const PassShape& shape) const {
  if (shape.prefill_requests == 0 || shape.prefill_new_tokens == 0) {
    return 0;
  }
  const double batch = shape.prefill_requests;
  const auto tokens = static_cast<double>(shape.prefill_new_tokens);
  const double attention = costs_->context_attention_ms(
      attention_, batch, tokens / batch, static_cast<double>(shape.prefill_prefix_tokens) / batch);
  const double decodes = shape.decode_requests;
  return std::max(0.0, tokens_ms(tokens + decodes) - tokens_ms(decodes)) +
         model_.layers * attention;
}

double OperatorTiming::decode_ms(const PassShape& shape) const {
  if (shape.decode_requests == 0) {
    return 0;
  }
  const double batch = shape.decode_requests;
  const double context = static_cast<double>(shape.context_tokens) / batch;
  return tokens_ms(batch) +
         model_.layers * costs_->generation_attention_ms(attention_, batch, context) +
         costs_->gemm_ms(batch, double{1} * model_.vocabulary / ranks_, model_.hidden);
}

}  // namespace stator::perf
