// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/encoder.h"

#include <algorithm>
#include <cmath>

#include "stator/core/assert.h"
#include "stator/engine/cpu/pooling/encoder_math.h"

namespace stator::engine::cpu {

Encoder::Encoder(const EncoderModel& model, const Kernels& kernels, ThreadTeam& team)
    : model_(model), kernels_(kernels), team_(team), matmul_(kernels, team), scores_(team.size()) {}

std::span<const float> Encoder::run(std::span<const PoolSequence> sequences) {
  embed(sequences);
  const auto rows = static_cast<int64_t>(part_of_row_.size());
  for (const EncoderLayer& layer : model_.layers) {
    attention(layer, rows);
    feed_forward(layer, rows);
  }
  return std::span(stream_).first(part_of_row_.size() * model_.config.hidden_size);
}

void Encoder::embed(std::span<const PoolSequence> sequences) {
  const EncoderConfig& config = model_.config;
  const int64_t hidden = config.hidden_size;
  parts_.clear();
  part_of_row_.clear();
  for (const PoolSequence& sequence : sequences) {
    STATOR_ASSERT(sequence.tokens.size() <= config.tokens_max(), "Encoder: sequence too long");
    const auto begin = static_cast<int64_t>(part_of_row_.size());
    part_of_row_.resize(part_of_row_.size() + sequence.tokens.size(),
                        static_cast<int64_t>(parts_.size()));
    parts_.push_back({begin, static_cast<int64_t>(sequence.tokens.size())});
  }
  const size_t rows = part_of_row_.size();
  const auto grow = [rows](std::vector<float>& vector, int64_t width) {
    vector.resize(std::max(vector.size(), rows * static_cast<size_t>(width)));
  };
  grow(stream_, hidden);
  grow(attended_, hidden);
  grow(projected_, hidden);
  grow(query_key_value_, 3 * hidden);
  grow(inner_, config.intermediate_size);
  team_.run(static_cast<int64_t>(rows), [&](int64_t row, uint32_t /*member*/) {
    const auto part = static_cast<size_t>(part_of_row_[static_cast<size_t>(row)]);
    const PoolSequence& sequence = sequences[part];
    const auto at = static_cast<uint32_t>(row - parts_[part].begin);
    const TokenId token = sequence.tokens[at];
    STATOR_ASSERT(token < config.vocab_size, "Encoder: token out of the vocabulary");
    float* to = stream_.data() + row * hidden;
    float* more = projected_.data() + row * hidden;
    model_.words.copy_row(token, to);
    model_.positions.copy_row(config.position_offset + at, more);
    kernels_.add(to, more, hidden);
    model_.types.copy_row(config.types > 1 && at >= sequence.first_length ? 1 : 0, more);
    kernels_.add(to, more, hidden);
    layer_norm(to, model_.embedding_norm.weight.data(), model_.embedding_norm.bias.data(), hidden,
               config.epsilon, to);
  });
}

void Encoder::attention(const EncoderLayer& layer, int64_t rows) {
  const int64_t hidden = model_.config.hidden_size;
  matmul_.run({.data = stream_.data(), .stride = hidden, .count = rows},
              layer.query_key_value.weight, query_key_value_.data(), 3 * hidden);
  team_.run(rows, [&](int64_t row, uint32_t /*member*/) {
    kernels_.add(query_key_value_.data() + row * 3 * hidden, layer.query_key_value.bias.data(),
                 3 * hidden);
  });
  const auto heads = static_cast<int64_t>(model_.config.heads);
  team_.run(rows * heads, [&](int64_t item, uint32_t member) {
    const int64_t row = item / heads;
    const auto part = static_cast<size_t>(part_of_row_[static_cast<size_t>(row)]);
    attend(parts_[part], item % heads, row, member);
  });
  matmul_.run({.data = attended_.data(), .stride = hidden, .count = rows},
              layer.attention_output.weight, projected_.data(), hidden);
  add_and_normalize(layer.attention_output, layer.attention_norm, rows);
}

/// One query of one head over all keys of its sequence.
void Encoder::attend(const Part& part, int64_t head, int64_t row, uint32_t member) {
  const int64_t hidden = model_.config.hidden_size;
  const int64_t dim = model_.config.head_dim();
  const int64_t width = 3 * hidden;
  const float* base = query_key_value_.data() + part.begin * width + head * dim;
  std::vector<float>& scores = scores_[member];
  scores.resize(std::max(scores.size(), static_cast<size_t>(round_up_lanes(part.count))));
  kernels_.dot_keys(query_key_value_.data() + row * width + head * dim,
                    {.data = base + hidden, .stride = width, .count = part.count, .dim = dim},
                    1 / std::sqrt(static_cast<float>(dim)), scores.data());
  const float sum = kernels_.exp_scores(scores.data(), part.count);
  float* out = attended_.data() + row * hidden + head * dim;
  std::fill_n(out, dim, 0.0F);
  kernels_.add_values(scores.data(),
                      {.data = base + 2 * hidden, .stride = width, .count = part.count, .dim = dim},
                      out);
  kernels_.scale(out, 1 / sum, dim);
}

void Encoder::feed_forward(const EncoderLayer& layer, int64_t rows) {
  const int64_t hidden = model_.config.hidden_size;
  const int64_t inner = model_.config.intermediate_size;
  matmul_.run({.data = stream_.data(), .stride = hidden, .count = rows}, layer.intermediate.weight,
              inner_.data(), inner);
  team_.run(rows, [&](int64_t row, uint32_t /*member*/) {
    add_bias_and_activate(inner_.data() + row * inner, layer.intermediate.bias.data(), inner,
                          model_.config.activation);
  });
  matmul_.run({.data = inner_.data(), .stride = inner, .count = rows}, layer.output.weight,
              projected_.data(), hidden);
  add_and_normalize(layer.output, layer.output_norm, rows);
}

void Encoder::add_and_normalize(const EncoderLinear& linear, const EncoderNorm& norm,
                                int64_t rows) {
  const int64_t hidden = model_.config.hidden_size;
  team_.run(rows, [&](int64_t row, uint32_t /*member*/) {
    float* to = stream_.data() + row * hidden;
    kernels_.add(to, projected_.data() + row * hidden, hidden);
    kernels_.add(to, linear.bias.data(), hidden);
    layer_norm(to, norm.weight.data(), norm.bias.data(), hidden, model_.config.epsilon, to);
  });
}

void Encoder::classify(const float* first_token, std::vector<float>& out) {
  const int64_t hidden = model_.config.hidden_size;
  std::vector<float> dense(static_cast<size_t>(hidden));
  matmul_.run({.data = first_token, .stride = hidden, .count = 1}, model_.head_dense.weight,
              dense.data(), hidden);
  for (size_t i = 0; i < dense.size(); ++i) {
    dense[i] = std::tanh(dense[i] + model_.head_dense.bias[i]);
  }
  const int64_t padded = model_.head_output.weight.padded_outputs();
  out.resize(static_cast<size_t>(padded));
  matmul_.run({.data = dense.data(), .stride = hidden, .count = 1}, model_.head_output.weight,
              out.data(), padded);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] += model_.head_output.bias[i];
  }
  out.resize(model_.config.labels);
}

}  // namespace stator::engine::cpu
