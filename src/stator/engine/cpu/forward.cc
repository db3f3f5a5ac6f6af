// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "stator/core/assert.h"
#include "stator/engine/cpu/rope.h"

namespace stator::engine::cpu {

namespace {

PagedAttention::Shape attention_shape(const ModelConfig& config) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .scale = config.attention_scale != 0
                       ? config.attention_scale
                       : 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
          .softcap = config.attention_softcap};
}

}  // namespace

Forward::Forward(const Parts& parts)
    : model_(parts.model),
      kernels_(parts.kernels),
      team_(parts.team),
      cache_(parts.cache),
      matmul_(parts.kernels, parts.team),
      lora_(parts.kernels, parts.team, matmul_),
      paged_(attention_shape(parts.model.config), parts.kernels, parts.team, parts.cache),
      sizes_{
          .hidden = round_up_lanes(parts.model.config.hidden_size),
          .query = round_up_lanes(int64_t{parts.model.config.heads} * parts.model.config.head_dim),
          .key = round_up_lanes(int64_t{parts.model.config.kv_heads} * parts.model.config.head_dim),
          .inner = round_up_lanes(parts.model.config.intermediate_size)} {
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
  adapters_ = std::ranges::any_of(rows, [](const ForwardRow& row) { return row.adapter; });
  embed(rows);
  paged_.set_rows(rows);
  row_adapters_.clear();
  for (size_t i = 0; i < rows.size() && adapters_; ++i) {
    row_adapters_.push_back(rows[i].adapter);
  }
  const auto count = static_cast<int64_t>(rows.size());
  for (uint32_t layer = 0; layer < model_.config.layers; ++layer) {
    const LayerWeights& weights = model_.weights.layers[layer];
    normalize(weights.attention_norm, count);
    attention(layer, rows);
    normalize(weights.mlp_norm, count);
    if (weights.experts.empty()) {
      mlp(layer, rows);
    } else {
      experts(layer, rows);
    }
  }
}

void Forward::hidden(uint32_t row_index, float* out) const {
  std::vector<float> padded(static_cast<size_t>(sizes_.hidden));
  kernels_.rms_norm(stream_.data() + row_index * sizes_.hidden, model_.weights.final_norm.data(),
                    model_.config.hidden_size, model_.config.rms_norm_epsilon, padded.data());
  std::copy_n(padded.data(), model_.config.hidden_size, out);
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
    for (size_t i = 0; i < ropes_.size(); ++i) {
      const size_t pairs = ropes_[i].pairs();
      ropes_[i].angles(source.position, std::max(source.prompt_tokens, source.position + 1),
                       std::span(cosines_[i]).subspan(static_cast<size_t>(row) * pairs, pairs),
                       std::span(sines_[i]).subspan(static_cast<size_t>(row) * pairs, pairs));
    }
  });
  adapt_embedding(rows);
  if (model_.config.embedding_scale != 1.0F) {
    each_row(static_cast<int64_t>(rows.size()), [&](int64_t row) {
      kernels_.scale(stream_.data() + row * sizes_.hidden, model_.config.embedding_scale,
                     sizes_.hidden);
    });
  }
}

void Forward::adapt_embedding(std::span<const ForwardRow> rows) {
  for (size_t i = 0; i < rows.size() && adapters_; ++i) {
    if (const LoraAdapter* adapter = rows[i].adapter; adapter != nullptr) {
      lora_.add_embedding(adapter->embedding, rows[i].token,
                          stream_.data() + static_cast<int64_t>(i) * sizes_.hidden);
    }
  }
}

void Forward::normalize(const std::vector<float>& weight, int64_t rows) {
  if (weight.empty()) {  // the stream as it is
    std::copy_n(stream_.begin(), rows * sizes_.hidden, normed_.begin());
    return;
  }
  each_row(rows, [&](int64_t row) {
    kernels_.rms_norm(stream_.data() + row * sizes_.hidden, weight.data(),
                      model_.config.hidden_size, model_.config.rms_norm_epsilon,
                      normed_.data() + row * sizes_.hidden);
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
      kernels_.rms_norm(projected, norm.data(), model_.config.hidden_size,
                        model_.config.rms_norm_epsilon, projected);
    }
    if (model_.config.residual_scale != 1.0F) {
      kernels_.scale(projected, model_.config.residual_scale, sizes_.hidden);
    }
    kernels_.add(stream_.data() + row * sizes_.hidden, projected, sizes_.hidden);
  });
}

void Forward::attention(uint32_t layer, std::span<const ForwardRow> rows) {
  const LayerWeights& weights = model_.weights.layers[layer];
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t width = sizes_.query + 2 * sizes_.key;
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = count},
              weights.query_key_value, query_key_value_.data(), width);
  const auto adapt_part = [&](LoraTarget target, int64_t offset) {
    adapt(layer, target, rows,
          {normed_.data(), sizes_.hidden, query_key_value_.data() + offset, width});
  };
  adapt_part(LoraTarget::kQuery, 0);
  adapt_part(LoraTarget::kKey, sizes_.query);
  adapt_part(LoraTarget::kValue, sizes_.query + sizes_.key);
  // All keys and values are in place before the first query looks at them.
  each_row(count,
           [&](int64_t row) { store_key_value(layer, rows[static_cast<size_t>(row)], row); });
  paged_.run({.index = layer,
              .window = model_.config.sliding_window[layer],
              .sinks = weights.sinks.empty() ? nullptr : weights.sinks.data()},
             {.queries = query_key_value_.data(),
              .query_stride = width,
              .out = attended_.data(),
              .out_stride = sizes_.query});
  matmul_.run({.data = attended_.data(), .stride = sizes_.query, .count = count},
              weights.attention_output, projected_.data(), sizes_.hidden);
  adapt(layer, LoraTarget::kOutput, rows,
        {attended_.data(), sizes_.query, projected_.data(), sizes_.hidden});
  add_to_stream(weights.attention_output_bias, weights.attention_output_norm, count);
}

void Forward::store_key_value(uint32_t layer, const ForwardRow& row, int64_t index) {
  const LayerWeights& weights = model_.weights.layers[layer];
  const int64_t dim = model_.config.head_dim;
  const int64_t width = sizes_.query + 2 * sizes_.key;
  const size_t which = rope_of(layer);
  const RopeTable& rope = ropes_[which];
  const auto angles = [&](const std::vector<std::vector<float>>& all) {
    return std::span(all[which]).subspan(static_cast<size_t>(index) * rope.pairs(), rope.pairs());
  };
  float* query = query_key_value_.data() + index * width;
  if (!weights.query_key_value_bias.empty()) {
    kernels_.add(query, weights.query_key_value_bias.data(), width);
  }
  const bool rotated = model_.config.unrotated.empty() || !model_.config.unrotated[layer];
  const bool joint = model_.config.joint_query_key_norm;
  if (joint) {
    const auto norm = [&](float* heads, const std::vector<float>& weight, int64_t width) {
      kernels_.rms_norm(heads, weight.data(), width, model_.config.rms_norm_epsilon, heads);
    };
    norm(query, weights.query_norm, model_.config.heads * dim);
    norm(query + sizes_.query, weights.key_norm, model_.config.kv_heads * dim);
  }
  // A head, padded with zeros: in place if it is whole vectors.
  std::vector<float> padded(dim % kLanes == 0 ? 0 : static_cast<size_t>(round_up_lanes(dim)));
  const auto with_padding = [&](float* head, const auto& body) {
    if (padded.empty()) {
      body(head);
      return;
    }
    std::copy_n(head, dim, padded.data());
    body(padded.data());
    std::copy_n(padded.data(), dim, head);
  };
  const auto finish = [&](float* head, const std::vector<float>& norm) {
    if (!norm.empty() && !joint) {
      kernels_.rms_norm(head, norm.data(), dim, model_.config.rms_norm_epsilon, head);
    }
    if (rotated) {
      rope.rotate(angles(cosines_), angles(sines_), head);
    }
  };
  for (uint32_t head = 0; head < model_.config.heads; ++head) {
    with_padding(query + head * dim, [&](float* at) { finish(at, weights.query_norm); });
  }
  const KvLayout& layout = cache_.layout();
  const auto stored = static_cast<int64_t>(layout.padded_dim());
  const kv::BlockId block = row.blocks[row.position / layout.block_size];
  const size_t offset = row.position % layout.block_size;
  const auto store = kernels_.store_kv[static_cast<size_t>(layout.type)];
  const bool scaled = layout.type == KvType::kInt8;
  for (uint32_t head = 0; head < model_.config.kv_heads; ++head) {
    std::byte* keys = cache_.keys(block, layer, head);
    std::byte* values = cache_.values(block, layer, head);
    float key_scale = 0;
    float value_scale = 0;
    with_padding(query + sizes_.query + head * dim, [&](float* at) {
      finish(at, weights.key_norm);
      key_scale = store(at, stored, keys + offset * layout.element_bytes(), layout.block_size);
    });
    with_padding(query + sizes_.query + sizes_.key + head * dim, [&](float* at) {
      value_scale =
          store(at, stored, values + offset * layout.padded_dim() * layout.element_bytes(), 1);
    });
    if (scaled) {
      cache_.scales(keys)[offset] = key_scale;
      cache_.scales(values)[offset] = value_scale;
    }
  }
}

void Forward::adapt(uint32_t layer, LoraTarget target, std::span<const ForwardRow> rows,
                    const Place& place) {
  if (!adapters_) {
    return;
  }
  lora_.adapt_rows(
      static_cast<int64_t>(rows.size()),
      [&](int64_t row) { return rows[static_cast<size_t>(row)].adapter; },
      [&](const LoraAdapter& adapter) {
        return &adapter.layers[layer][static_cast<size_t>(target)];
      },
      place);
}

void Forward::mlp(uint32_t index, std::span<const ForwardRow> rows) {
  const LayerWeights& layer = model_.weights.layers[index];
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t inner = sizes_.inner;
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = count}, layer.gate_up,
              gate_up_.data(), 2 * inner);
  adapt(index, LoraTarget::kGate, rows,
        {normed_.data(), sizes_.hidden, gate_up_.data(), 2 * inner});
  adapt(index, LoraTarget::kUp, rows,
        {normed_.data(), sizes_.hidden, gate_up_.data() + inner, 2 * inner});
  each_row(count, [&](int64_t row) {
    float* gate = gate_up_.data() + row * 2 * inner;
    if (!layer.gate_up_bias.empty()) {
      kernels_.add(gate, layer.gate_up_bias.data(), 2 * inner);
    }
    activate(gate, inner);
  });
  matmul_.run({.data = gate_up_.data(), .stride = 2 * inner, .count = count}, layer.down,
              projected_.data(), sizes_.hidden);
  adapt(index, LoraTarget::kDown, rows,
        {gate_up_.data(), 2 * inner, projected_.data(), sizes_.hidden});
  add_to_stream(layer.down_bias, layer.mlp_output_norm, count);
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
void Forward::experts(uint32_t index, std::span<const ForwardRow> rows) {
  const LayerWeights& layer = model_.weights.layers[index];
  const auto count = static_cast<int64_t>(rows.size());
  choose_experts(index, rows);
  std::fill_n(projected_.begin(), count * sizes_.hidden, 0.0F);
  for (uint32_t expert = 0; expert < layer.experts.size(); ++expert) {
    run_expert(index, expert, rows);
  }
  add_to_stream({}, layer.mlp_output_norm, count);
}

void Forward::choose_experts(uint32_t index, std::span<const ForwardRow> all) {
  const LayerWeights& layer = model_.weights.layers[index];
  const auto rows = static_cast<int64_t>(all.size());
  const ExpertConfig& config = model_.config.experts;
  const int64_t stride = layer.router.padded_outputs();
  router_scores_.resize(std::max(router_scores_.size(), static_cast<size_t>(rows * stride)));
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = rows}, layer.router,
              router_scores_.data(), stride);
  adapt(index, LoraTarget::kRouter, all,
        {normed_.data(), sizes_.hidden, router_scores_.data(), stride});
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

/// `place` has the rows that chose the expert.
void Forward::adapt_expert(const Which& which, std::span<const ForwardRow> rows,
                           const Place& place) {
  if (!adapters_) {
    return;
  }
  const auto chosen = std::ranges::equal_range(choices_, which.expert, {}, &Choice::expert);
  lora_.adapt_rows(
      static_cast<int64_t>(chosen.size()),
      [&](int64_t i) {
        return rows[static_cast<size_t>(chosen[static_cast<size_t>(i)].row)].adapter;
      },
      [&](const LoraAdapter& adapter) -> const LoraPair* {
        const auto& experts = adapter.experts[which.layer];
        return experts.empty() ? nullptr
                               : &experts[which.expert][static_cast<size_t>(which.target)];
      },
      place);
}

void Forward::run_expert(uint32_t layer, uint32_t index, std::span<const ForwardRow> rows) {
  const ExpertWeights& expert = model_.weights.layers[layer].experts[index];
  const auto chosen = std::ranges::equal_range(choices_, index, {}, &Choice::expert);
  const auto count = static_cast<int64_t>(chosen.size());
  if (count == 0) {
    return;
  }
  const int64_t hidden = sizes_.hidden;
  const int64_t inner = round_up_lanes(model_.config.experts.inner_size);
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
  adapt_expert({layer, index, LoraTarget::kGate}, rows,
               {expert_rows_.data(), hidden, expert_gates_.data(), 2 * inner});
  adapt_expert({layer, index, LoraTarget::kUp}, rows,
               {expert_rows_.data(), hidden, expert_gates_.data() + inner, 2 * inner});
  each_row(count, [&](int64_t i) {
    float* gate = expert_gates_.data() + i * 2 * inner;
    if (!expert.gate_up_bias.empty()) {
      kernels_.add(gate, expert.gate_up_bias.data(), 2 * inner);
    }
    activate(gate, inner);
  });
  matmul_.run({.data = expert_gates_.data(), .stride = 2 * inner, .count = count}, expert.down,
              expert_out_.data(), hidden);
  adapt_expert({layer, index, LoraTarget::kDown}, rows,
               {expert_gates_.data(), 2 * inner, expert_out_.data(), hidden});
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
                      model_.weights.final_norm.data(), model_.config.hidden_size,
                      model_.config.rms_norm_epsilon, normed_.data() + row * sizes_.hidden);
  });
  matmul_.run({.data = normed_.data(), .stride = sizes_.hidden, .count = count},
              model_.weights.head(), out, logits_stride());
  if (adapters_) {
    lora_.adapt_rows(
        count, [&](int64_t row) { return row_adapters_[row_indices[static_cast<size_t>(row)]]; },
        [](const LoraAdapter& adapter) { return &adapter.head; },
        {normed_.data(), sizes_.hidden, out, logits_stride()});
  }
  const auto [scale, cap] = std::pair(model_.config.logit_scale, model_.config.logit_softcap);
  each_row(scale != 1.0F ? count : 0, [&](int64_t row) {
    kernels_.scale(out + row * logits_stride(), scale, logits_stride());
  });
  each_row(cap != 0 ? count : 0, [&](int64_t row) {
    kernels_.softcap(out + row * logits_stride(), cap, logits_stride());
  });
}

}  // namespace stator::engine::cpu
