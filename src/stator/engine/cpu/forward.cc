// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/forward.h"

#include <algorithm>
#include <cmath>

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
      frequencies_(rope_frequencies(parts.model.config.rope, parts.model.config.head_dim)),
      scores_(parts.team.size()) {}

void Forward::run(std::span<const ForwardRow> rows) {
  STATOR_ASSERT(rows.size() <= kRowsMax, "Forward: too many rows for one run");
  embed(rows);
  const auto count = static_cast<int64_t>(rows.size());
  for (uint32_t layer = 0; layer < model_.config.layers; ++layer) {
    const LayerWeights& weights = model_.weights.layers[layer];
    normalize(weights.attention_norm, count);
    attention(layer, rows);
    normalize(weights.mlp_norm, count);
    mlp(weights, count);
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
    cosines_.resize(capacity_rows_ * frequencies_.size());
    sines_.resize(capacity_rows_ * frequencies_.size());
  }
  each_row(static_cast<int64_t>(rows.size()), [&](int64_t row) {
    const ForwardRow& source = rows[static_cast<size_t>(row)];
    STATOR_ASSERT(source.token < model_.config.vocab_size, "Forward: token out of the vocabulary");
    model_.weights.embedding.copy_row(source.token, stream_.data() + row * sizes_.hidden);
    const size_t half = frequencies_.size();
    rope_angles(frequencies_, source.position,
                std::span(cosines_).subspan(static_cast<size_t>(row) * half, half),
                std::span(sines_).subspan(static_cast<size_t>(row) * half, half));
  });
}

void Forward::normalize(const std::vector<float>& weight, int64_t rows) {
  each_row(rows, [&](int64_t row) {
    kernels_.rms_norm(stream_.data() + row * sizes_.hidden, weight.data(), sizes_.hidden,
                      model_.config.rms_norm_epsilon, normed_.data() + row * sizes_.hidden);
  });
}

void Forward::add_to_stream(const std::vector<float>& bias, int64_t rows) {
  each_row(rows, [&](int64_t row) {
    float* projected = projected_.data() + row * sizes_.hidden;
    if (!bias.empty()) {
      kernels_.add(projected, bias.data(), sizes_.hidden);
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
  add_to_stream(weights.attention_output_bias, count);
}

void Forward::store_key_value(uint32_t layer, const ForwardRow& row, int64_t index) {
  const LayerWeights& weights = model_.weights.layers[layer];
  const int64_t dim = model_.config.head_dim;
  const int64_t width = sizes_.query + 2 * sizes_.key;
  const size_t half = frequencies_.size();
  float* query = query_key_value_.data() + index * width;
  float* key = query + sizes_.query;
  if (!weights.query_key_value_bias.empty()) {
    kernels_.add(query, weights.query_key_value_bias.data(), width);
  }
  const auto cosines = std::span(cosines_).subspan(static_cast<size_t>(index) * half, half);
  const auto sines = std::span(sines_).subspan(static_cast<size_t>(index) * half, half);
  const auto finish = [&](float* heads, int64_t floats, const std::vector<float>& norm) {
    for (float* head = heads; head < heads + floats; head += dim) {
      if (!norm.empty()) {
        kernels_.rms_norm(head, norm.data(), dim, model_.config.rms_norm_epsilon, head);
      }
      rope_rotate(cosines, sines, head);
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
  scores.resize(std::max(scores.size(), static_cast<size_t>(round_up_lanes(end - begin))));
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
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const uint32_t group = config.heads / config.kv_heads;
  for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* query =
        query_key_value_.data() + index * (sizes_.query + 2 * sizes_.key) + head * dim;
    float* out = attended_.data() + index * sizes_.query + head * dim;
    each_block(&KvArena::keys, [&](uint32_t at, const HeadRows& keys) {
      kernels_.dot_keys(query, keys, scale, scores.data() + (at - begin));
    });
    const float sum = kernels_.exp_scores(scores.data(), end - begin);
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
    kernels_.silu_multiply(gate, gate + inner, inner);
  });
  matmul_.run({.data = gate_up_.data(), .stride = 2 * inner, .count = rows}, layer.down,
              projected_.data(), sizes_.hidden);
  add_to_stream(layer.down_bias, rows);
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
}

}  // namespace stator::engine::cpu
