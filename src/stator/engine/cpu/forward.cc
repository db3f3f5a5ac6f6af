// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stator/core/assert.h"
#include "stator/engine/cpu/rope.h"

namespace stator::engine::cpu {

Forward::Forward(const Parts& parts)
    : model_(parts.model),
      kernels_(parts.kernels),
      team_(parts.team),
      cache_(parts.cache),
      matmul_(parts.kernels, parts.team),
      sizes_{.hidden = parts.model.config.hidden_size,
             .query = int64_t{parts.model.config.heads} * parts.model.config.head_dim,
             .key = int64_t{parts.model.config.kv_heads} * parts.model.config.head_dim,
             .inner = parts.model.config.intermediate_size},
      scores_(parts.team.size()) {
  const ModelConfig& config = parts.model.config;
  ropes_.emplace_back(config.rope, config.head_dim);
  if (config.window_rope) {
    ropes_.emplace_back(*config.window_rope, config.head_dim);
  }
  cosines_.resize(ropes_.size());
  sines_.resize(ropes_.size());
}

void Forward::run(std::span<const ForwardRow> rows) {
  STATOR_ASSERT(rows.size() <= kRowsMax, "Forward: too many rows for one run");
  embed(rows);
  const auto count = static_cast<int64_t>(rows.size());
  for (uint32_t layer = 0; layer < model_.config.layers; ++layer) {
    const LayerWeights& weights = model_.weights.layers[layer];
    normalize(weights.attention_norm, count);
    attention(layer, rows);
    normalize(weights.mlp_norm, count);
    if (weights.experts.empty()) {
      mlp(weights, count);
    } else {
      experts(weights, count);
    }
  }
}

void Forward::hidden(uint32_t row_index, float* out) const {
  kernels_.rms_norm(stream_.data() + row_index * sizes_.hidden, model_.weights.final_norm.data(),
                    sizes_.hidden, model_.config.rms_norm_epsilon, out);
}

void Forward::embed(std::span<const ForwardRow> rows) {
  if (rows.size() > capacity_rows_) {
    capacity_rows_ = rows.size();
    stream_.resize(capacity_rows_ * sizes_.hidden);
    normed_.resize(capacity_rows_ * sizes_.hidden);
    query_key_value_.resize(capacity_rows_ * (sizes_.query + 2 * sizes_.key));
    attended_.resize(capacity_rows_ * sizes_.query);
    projected_.resize(capacity_rows_ * sizes_.hidden);
    gate_up_.resize(capacity_rows_ * 2 * sizes_.inner);
    for (size_t i = 0; i < ropes_.size(); ++i) {
      cosines_[i].resize(capacity_rows_ * ropes_[i].pairs());
      sines_[i].resize(capacity_rows_ * ropes_[i].pairs());
    }
  }
  each_row(static_cast<int64_t>(rows.size()), [&](int64_t row) {
    const ForwardRow& source = rows[static_cast<size_t>(row)];
    STATOR_ASSERT(source.token < model_.config.vocab_size, "Forward: token out of the vocabulary");
    model_.weights.embedding.copy_row(source.token, stream_.data() + row * sizes_.hidden);
    if (model_.config.embedding_scale != 1.0F) {
      kernels_.scale(stream_.data() + row * sizes_.hidden, model_.config.embedding_scale,
                     sizes_.hidden);
    }
    for (size_t i = 0; i < ropes_.size(); ++i) {
      const size_t pairs = ropes_[i].pairs();
      ropes_[i].angles(source.position,
                       std::span(cosines_[i]).subspan(static_cast<size_t>(row) * pairs, pairs),
                       std::span(sines_[i]).subspan(static_cast<size_t>(row) * pairs, pairs));
    }
  });
}

void Forward::normalize(const std::vector<float>& weight, int64_t rows) {
  each_row(rows, [&](int64_t row) {
    kernels_.rms_norm(stream_.data() + row * sizes_.hidden, weight.data(), sizes_.hidden,
                      model_.config.rms_norm_epsilon, normed_.data() + row * sizes_.hidden);
  });
}

void Forward::add_to_stream(const std::vector<float>& bias, const std::vector<float>& norm,
                            int64_t rows) {
  each_row(rows, [&](int64_t row) {
    float* projected = projected_.data() + row * sizes_.hidden;
    if (!bias.empty()) {
      kernels_.add(projected, bias.data(), sizes_.hidden);
    }
    if (!norm.empty()) {
      kernels_.rms_norm(projected, norm.data(), sizes_.hidden, model_.config.rms_norm_epsilon,
                        projected);
    }
    kernels_.add(stream_.data() + row * sizes_.hidden, projected, sizes_.hidden);
  });
}

void Forward::attention(uint32_t layer, std::span<const ForwardRow> rows) {
  const LayerWeights& weights = model_.weights.layers[layer];
  const auto count = static_cast<int64_t>(rows.size());
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = count},
              weights.query_key_value, query_key_value_.data(), sizes_.query + 2 * sizes_.key);
  // All keys and values are in place before the first query looks at them.
  each_row(count,
           [&](int64_t row) { store_key_value(layer, rows[static_cast<size_t>(row)], row); });
  const auto kv_heads = static_cast<int64_t>(model_.config.kv_heads);
  team_.run(count * kv_heads, [&](int64_t item, uint32_t member) {
    // The latest rows see the most keys: start with them, so that no member ends with a long one.
    const int64_t row = count - 1 - item / kv_heads;
    attend(layer, rows[static_cast<size_t>(row)], row, static_cast<uint32_t>(item % kv_heads),
           member);
  });
  matmul_.run({.data = attended_.data(), .stride = sizes_.query, .count = count},
              weights.attention_output, projected_.data(), sizes_.hidden);
  add_to_stream(weights.attention_output_bias, weights.attention_output_norm, count);
}

void Forward::store_key_value(uint32_t layer, const ForwardRow& row, int64_t index) {
  const LayerWeights& weights = model_.weights.layers[layer];
  const int64_t dim = model_.config.head_dim;
  const int64_t width = sizes_.query + 2 * sizes_.key;
  const RopeTable& rope = ropes_[rope_of(layer)];
  const size_t pairs = rope.pairs();
  float* query = query_key_value_.data() + index * width;
  float* key = query + sizes_.query;
  if (!weights.query_key_value_bias.empty()) {
    kernels_.add(query, weights.query_key_value_bias.data(), width);
  }
  const auto cosines =
      std::span(cosines_[rope_of(layer)]).subspan(static_cast<size_t>(index) * pairs, pairs);
  const auto sines =
      std::span(sines_[rope_of(layer)]).subspan(static_cast<size_t>(index) * pairs, pairs);
  const auto finish = [&](float* heads, int64_t floats, const std::vector<float>& norm) {
    for (float* head = heads; head < heads + floats; head += dim) {
      if (!norm.empty()) {
        kernels_.rms_norm(head, norm.data(), dim, model_.config.rms_norm_epsilon, head);
      }
      rope.rotate(cosines, sines, head);
    }
  };
  finish(query, sizes_.query, weights.query_norm);
  finish(key, sizes_.key, weights.key_norm);
  const uint32_t block_size = cache_.layout().block_size;
  const kv::BlockId block = row.blocks[row.position / block_size];
  const int64_t offset = row.position % block_size * sizes_.key;
  std::copy_n(key, sizes_.key, cache_.keys(block, layer) + offset);
  std::copy_n(key + sizes_.key, sizes_.key, cache_.values(block, layer) + offset);
}

void Forward::attend(uint32_t layer, const ForwardRow& row, int64_t index, uint32_t kv_head,
                     uint32_t member) {
  const ModelConfig& config = model_.config;
  const int64_t dim = config.head_dim;
  const uint32_t block_size = cache_.layout().block_size;
  const uint32_t window = config.sliding_window[layer];
  const uint32_t end = row.position + 1;
  const uint32_t begin = window != 0 && end > window ? end - window : 0;
  std::vector<float>& scores = scores_[member];
  scores.resize(std::max(scores.size(), static_cast<size_t>(round_up_lanes(end - begin + 1))));
  // Calls body(first position, rows) for the part of each block that the query sees.
  const auto each_block = [&](auto base, const auto& body) {
    for (uint32_t at = begin; at < end;) {
      const uint32_t offset = at % block_size;
      const uint32_t count = std::min(block_size - offset, end - at);
      const float* data = (cache_.*base)(row.blocks[at / block_size], layer);
      body(at, HeadRows{.data = data + offset * sizes_.key + kv_head * dim,
                        .stride = sizes_.key,
                        .count = count,
                        .dim = dim});
      at += count;
    }
  };
  const float scale = config.attention_scale != 0 ? config.attention_scale
                                                  : 1.0F / std::sqrt(static_cast<float>(dim));
  const std::vector<float>& sinks = model_.weights.layers[layer].sinks;
  const uint32_t group = config.heads / config.kv_heads;
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* query =
        query_key_value_.data() + index * (sizes_.query + 2 * sizes_.key) + head * dim;
    float* out = attended_.data() + index * sizes_.query + head * dim;
    each_block(&KvArena::keys, [&](uint32_t at, const HeadRows& keys) {
      kernels_.dot_keys(query, keys, scale, scores.data() + (at - begin));
    });
    if (config.attention_softcap != 0) {
      kernels_.softcap(scores.data(), config.attention_softcap, round_up_lanes(end - begin));
    }
    if (!sinks.empty()) {
      scores[end - begin] = sinks[head];  // takes its share of the sum and gives nothing
    }
    const float sum = kernels_.exp_scores(scores.data(), end - begin + (sinks.empty() ? 0 : 1));
    std::fill_n(out, dim, 0.0F);
    each_block(&KvArena::values, [&](uint32_t at, const HeadRows& values) {
      kernels_.add_values(scores.data() + (at - begin), values, out);
    });
    kernels_.scale(out, 1.0F / sum, dim);
  }
}

void Forward::mlp(const LayerWeights& layer, int64_t rows) {
  const int64_t inner = sizes_.inner;
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = rows}, layer.gate_up,
              gate_up_.data(), 2 * inner);
  each_row(rows, [&](int64_t row) {
    float* gate = gate_up_.data() + row * 2 * inner;
    if (!layer.gate_up_bias.empty()) {
      kernels_.add(gate, layer.gate_up_bias.data(), 2 * inner);
    }
    activate(gate, inner);
  });
  matmul_.run({.data = gate_up_.data(), .stride = 2 * inner, .count = rows}, layer.down,
              projected_.data(), sizes_.hidden);
  add_to_stream(layer.down_bias, layer.mlp_output_norm, rows);
}

void Forward::activate(float* row, int64_t inner) const {
  switch (model_.config.activation) {
    case Activation::kSilu:
      kernels_.silu_multiply(row, row + inner, inner);
      return;
    case Activation::kGelu:
      kernels_.gelu_multiply(row, row + inner, inner);
      return;
    case Activation::kClampedSwiglu:
      kernels_.clamped_swiglu(row, row + inner, model_.config.swiglu_limit, inner);
      return;
  }
}

/// Rows are gathered by expert, so that each expert's weights are read once; a row adds up its
/// experts in order of their number, whatever else is in the batch.
void Forward::experts(const LayerWeights& layer, int64_t rows) {
  choose_experts(layer, rows);
  std::fill_n(projected_.begin(), rows * sizes_.hidden, 0.0F);
  for (uint32_t expert = 0; expert < layer.experts.size(); ++expert) {
    run_expert(layer.experts[expert], expert);
  }
  add_to_stream({}, layer.mlp_output_norm, rows);
}

void Forward::choose_experts(const LayerWeights& layer, int64_t rows) {
  const ExpertConfig& config = model_.config.experts;
  const int64_t stride = layer.router.padded_outputs();
  router_scores_.resize(std::max(router_scores_.size(), static_cast<size_t>(rows * stride)));
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = rows}, layer.router,
              router_scores_.data(), stride);
  choices_.clear();
  std::vector<uint32_t> order(config.count);
  for (int64_t row = 0; row < rows; ++row) {
    float* scores = router_scores_.data() + row * stride;
    for (size_t i = 0; i < layer.router_bias.size(); ++i) {
      scores[i] += layer.router_bias[i];
    }
    std::iota(order.begin(), order.end(), 0U);
    const auto end = order.begin() + config.per_token;
    std::partial_sort(order.begin(), end, order.end(), [scores](uint32_t a, uint32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    const float highest = scores[order.front()];
    float sum = 0;
    for (uint32_t i = 0; i < (config.softmax_first ? config.count : config.per_token); ++i) {
      sum += std::exp(scores[order[i]] - highest);
    }
    float chosen = 0;
    for (auto at = order.begin(); at != end; ++at) {
      chosen += std::exp(scores[*at] - highest) / sum;
    }
    for (auto at = order.begin(); at != end; ++at) {
      const float weight = std::exp(scores[*at] - highest) / sum;
      choices_.push_back({row, *at, config.normalize ? weight / chosen : weight});
    }
  }
  std::ranges::sort(choices_, [](const Choice& a, const Choice& b) {
    return a.expert != b.expert ? a.expert < b.expert : a.row < b.row;
  });
}

void Forward::run_expert(const ExpertWeights& expert, uint32_t index) {
  const auto chosen = std::ranges::equal_range(choices_, index, {}, &Choice::expert);
  const auto count = static_cast<int64_t>(chosen.size());
  if (count == 0) {
    return;
  }
  const int64_t hidden = sizes_.hidden;
  const int64_t inner = model_.config.experts.inner_size;
  const auto grow = [](std::vector<float>& scratch, int64_t floats) {
    scratch.resize(std::max(scratch.size(), static_cast<size_t>(floats)));
  };
  grow(expert_rows_, count * hidden);
  grow(expert_gates_, count * 2 * inner);
  grow(expert_out_, count * hidden);
  each_row(count, [&](int64_t i) {
    std::copy_n(normed_.data() + chosen[static_cast<size_t>(i)].row * hidden, hidden,
                expert_rows_.data() + i * hidden);
  });
  matmul_.run({.data = expert_rows_.data(), .stride = hidden, .count = count}, expert.gate_up,
              expert_gates_.data(), 2 * inner);
  each_row(count, [&](int64_t i) {
    float* gate = expert_gates_.data() + i * 2 * inner;
    if (!expert.gate_up_bias.empty()) {
      kernels_.add(gate, expert.gate_up_bias.data(), 2 * inner);
    }
    activate(gate, inner);
  });
  matmul_.run({.data = expert_gates_.data(), .stride = 2 * inner, .count = count}, expert.down,
              expert_out_.data(), hidden);
  each_row(count, [&](int64_t i) {
    const Choice& choice = chosen[static_cast<size_t>(i)];
    float* out = expert_out_.data() + i * hidden;
    if (!expert.down_bias.empty()) {
      kernels_.add(out, expert.down_bias.data(), hidden);
    }
    kernels_.add_scaled(projected_.data() + choice.row * hidden, out, choice.weight, hidden);
  });
}

void Forward::logits(std::span<const uint32_t> row_indices, float* out) {
  const auto count = static_cast<int64_t>(row_indices.size());
  STATOR_ASSERT(row_indices.size() <= capacity_rows_, "Forward: more logits than rows");
  each_row(count, [&](int64_t row) {
    kernels_.rms_norm(stream_.data() + row_indices[static_cast<size_t>(row)] * sizes_.hidden,
                      model_.weights.final_norm.data(), sizes_.hidden,
                      model_.config.rms_norm_epsilon, normed_.data() + row * sizes_.hidden);
  });
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = count},
              model_.weights.head(), out, logits_stride());
  if (model_.config.logit_softcap != 0) {
    each_row(count, [&](int64_t row) {
      kernels_.softcap(out + row * logits_stride(), model_.config.logit_softcap, logits_stride());
    });
  }
}

}  // namespace stator::engine::cpu
