// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/cpu_pool_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace stator::engine::cpu {
namespace {

constexpr uint32_t kBlockTokens = 16;

void normalize(std::span<float> vector) {
  double sum = 0;
  for (const float value : vector) {
    sum += static_cast<double>(value) * value;
  }
  const auto factor = static_cast<float>(1 / std::max(std::sqrt(sum), 1e-12));
  for (float& value : vector) {
    value *= factor;
  }
}

void mean_of(std::span<const float> rows, std::span<float> out) {
  const size_t count = rows.size() / out.size();
  for (size_t i = 0; i < out.size(); ++i) {
    double sum = 0;
    for (size_t row = 0; row < count; ++row) {
      sum += rows[row * out.size() + i];
    }
    out[i] = static_cast<float>(sum / static_cast<double>(count));
  }
}

void max_of(std::span<const float> rows, std::span<float> out) {
  std::ranges::copy(rows.first(out.size()), out.begin());
  for (size_t at = out.size(); at < rows.size(); at += out.size()) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = std::max(out[i], rows[at + i]);
    }
  }
}

void activate(HeadActivation activation, std::span<float> values) {
  if (activation == HeadActivation::kSigmoid) {
    for (float& value : values) {
      value = 1 / (1 + std::exp(-value));
    }
  } else if (activation == HeadActivation::kSoftmax) {
    const float most = std::ranges::max(values);
    double sum = 0;
    for (float& value : values) {
      value = std::exp(value - most);
      sum += value;
    }
    for (float& value : values) {
      value = static_cast<float>(value / sum);
    }
  }
}

inference::PoolAbility ability_of(const PoolingModel& model) {
  inference::PoolAbility ability{.generates = false};
  if (!model.spec.classifies) {
    ability.tasks = {inference::PoolTask::kEmbed, inference::PoolTask::kTokenEmbed};
    ability.width = model.hidden_size();
    return ability;
  }
  ability.tasks = {inference::PoolTask::kClassify};
  if (model.spec.labels.size() == 1) {
    ability.tasks.add(inference::PoolTask::kScore);
  }
  ability.labels = model.spec.labels;
  return ability;
}

}  // namespace

CpuPoolRunner::CpuPoolRunner(Private /*key*/, std::shared_ptr<const PoolingModel> model,
                             const CpuPoolConfig& config, std::optional<KvArena> cache)
    : model_(std::move(model)),
      max_model_len_(config.max_model_len == 0
                         ? model_->tokens_max()
                         : std::min(config.max_model_len, model_->tokens_max())),
      ability_(ability_of(*model_)),
      team_(config.threads),
      cache_(std::move(cache)) {
  const Kernels& kernels = kernels_for(config.isa);
  if (model_->encoder != nullptr) {
    encoder_.emplace(*model_->encoder, kernels, team_);
  } else {
    forward_.emplace(Forward::Parts{
        .model = *model_->decoder, .kernels = kernels, .team = team_, .cache = *cache_});
  }
}

Result<std::unique_ptr<PoolRunner>> CpuPoolRunner::create(std::shared_ptr<const PoolingModel> model,
                                                          const CpuPoolConfig& config) {
  if (config.threads == 0 || config.threads > ThreadTeam::kSizeMax) {
    return Error(Code::kInvalidArgument, fmt::format("engine.threads is {}, must be 1 … {}",
                                                     config.threads, ThreadTeam::kSizeMax));
  }
  std::optional<KvArena> cache;
  if (model->decoder != nullptr) {
    const ModelConfig& shape = model->decoder->config;
    const uint32_t most = config.max_model_len == 0
                              ? model->tokens_max()
                              : std::min(config.max_model_len, model->tokens_max());
    // A group of short sequences needs at most a block more per sequence than its tokens fill.
    const uint32_t blocks = std::max((most + kBlockTokens - 1) / kBlockTokens,
                                     static_cast<uint32_t>(Forward::kRowsMax));
    STATOR_TRY(cache, KvArena::create({.layers = shape.layers,
                                       .kv_heads = shape.kv_heads,
                                       .head_dim = shape.head_dim,
                                       .block_size = kBlockTokens},
                                      blocks));
  }
  return std::make_unique<CpuPoolRunner>(Private(), std::move(model), config, std::move(cache));
}

uint32_t CpuPoolRunner::width(inference::PoolTask task) const {
  switch (task) {
    case inference::PoolTask::kEmbed:
    case inference::PoolTask::kTokenEmbed:
      return model_->hidden_size();
    case inference::PoolTask::kClassify:
      return static_cast<uint32_t>(model_->spec.labels.size());
    case inference::PoolTask::kScore:
      return 1;
  }
  return 1;
}

void CpuPoolRunner::run(std::span<const PoolSequence> sequences,
                        std::span<std::vector<float>> out) {
  if (encoder_) {
    run_encoder(sequences, out);
  } else {
    run_decoder(sequences, out);
  }
}

void CpuPoolRunner::run_encoder(std::span<const PoolSequence> sequences,
                                std::span<std::vector<float>> out) {
  const std::span<const float> rows = encoder_->run(sequences);
  size_t at = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t numbers = sequences[i].tokens.size() * model_->hidden_size();
    pool(sequences[i], rows.subspan(at, numbers), out[i]);
    at += numbers;
  }
}

/// Group by group: as many whole sequences as one pass of rows holds, or one long one.
void CpuPoolRunner::run_decoder(std::span<const PoolSequence> sequences,
                                std::span<std::vector<float>> out) {
  const size_t hidden = model_->hidden_size();
  for (size_t begin = 0; begin < sequences.size();) {
    size_t tokens = sequences[begin].tokens.size();
    size_t end = begin + 1;
    while (end < sequences.size() && tokens + sequences[end].tokens.size() <= Forward::kRowsMax) {
      tokens += sequences[end++].tokens.size();
    }
    std::vector<ForwardRow> rows;
    std::vector<std::vector<kv::BlockId>> blocks(end - begin);
    uint32_t next = 0;
    for (size_t i = begin; i < end; ++i) {
      auto& own = blocks[i - begin];
      const size_t length = sequences[i].tokens.size();
      for (size_t block = 0; block < (length + kBlockTokens - 1) / kBlockTokens; ++block) {
        own.emplace_back(next++);
      }
      for (uint32_t at = 0; at < length; ++at) {
        rows.push_back({.token = sequences[i].tokens[at],
                        .position = at,
                        .prompt_tokens = static_cast<uint32_t>(sequences[i].tokens.size()),
                        .blocks = own});
      }
    }
    rows_.resize(rows.size() * hidden);
    for (size_t done = 0; done < rows.size(); done += Forward::kRowsMax) {
      const auto part = std::span<const ForwardRow>(rows).subspan(
          done, std::min(Forward::kRowsMax, rows.size() - done));
      forward_->run(part);
      for (uint32_t row = 0; row < part.size(); ++row) {
        forward_->hidden(row, rows_.data() + (done + row) * hidden);
      }
    }
    size_t at = 0;
    for (size_t i = begin; i < end; ++i) {
      const size_t numbers = sequences[i].tokens.size() * hidden;
      pool(sequences[i], std::span<const float>(rows_).subspan(at, numbers), out[i]);
      at += numbers;
    }
    begin = end;
  }
}

void CpuPoolRunner::pool(const PoolSequence& sequence, std::span<const float> rows,
                         std::vector<float>& out) {
  const size_t hidden = model_->hidden_size();
  const bool normalizes = sequence.activate && model_->spec.normalize;
  switch (sequence.task) {
    case inference::PoolTask::kClassify:
    case inference::PoolTask::kScore:
      classify(sequence, rows, out);
      return;
    case inference::PoolTask::kTokenEmbed:
      out.assign(rows.begin(), rows.end());
      for (size_t at = 0; normalizes && at < out.size(); at += hidden) {
        normalize(std::span(out).subspan(at, hidden));
      }
      return;
    case inference::PoolTask::kEmbed:
      break;
  }
  out.resize(hidden);
  switch (model_->spec.pooling) {
    case Pooling::kCls:
      std::ranges::copy(rows.first(hidden), out.begin());
      break;
    case Pooling::kLast:
      std::ranges::copy(rows.last(hidden), out.begin());
      break;
    case Pooling::kMean:
      mean_of(rows, out);
      break;
    case Pooling::kMax:
      max_of(rows, out);
      break;
  }
  if (normalizes) {
    normalize(out);
  }
}

void CpuPoolRunner::classify(const PoolSequence& sequence, std::span<const float> rows,
                             std::vector<float>& out) {
  const size_t hidden = model_->hidden_size();
  if (encoder_) {
    encoder_->classify(rows.data(), out);
  } else {
    const std::span<const float> last = rows.last(hidden);
    for (size_t label = 0; label < model_->spec.labels.size(); ++label) {
      double sum = 0;
      for (size_t i = 0; i < hidden; ++i) {
        sum += static_cast<double>(model_->decoder_head[label * hidden + i]) * last[i];
      }
      out.push_back(static_cast<float>(sum));
    }
  }
  if (sequence.activate) {
    activate(model_->spec.activation, out);
  }
}

}  // namespace stator::engine::cpu
