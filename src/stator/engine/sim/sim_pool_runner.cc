// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_pool_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "stator/core/hash.h"
#include "stator/core/random.h"

namespace stator::engine {
namespace {

constexpr uint32_t kWidthMax = 65'536;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;  // 2^64 / φ: spreads neighbouring ids

/// Divides by the length, unless that is zero.
void normalize(std::span<float> vector) {
  float sum = 0;
  for (const float value : vector) {
    sum += value * value;
  }
  const float factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
  for (float& value : vector) {
    value *= factor;
  }
}

class SimPoolRunner final : public PoolRunner {
 public:
  explicit SimPoolRunner(const SimPoolConfig& config) : config_(config) {
    ability_ = {.generates = false, .tasks = config.tasks, .width = config.width};
    for (uint32_t i = 0; i < config.classes; ++i) {
      ability_.labels.push_back(fmt::format("LABEL_{}", i));
    }
  }

  const inference::PoolAbility& ability() const override { return ability_; }
  uint32_t vocab_size() const override { return config_.vocab_size; }
  uint32_t max_model_len() const override { return config_.max_model_len; }
  uint32_t width(inference::PoolTask task) const override {
    switch (task) {
      case inference::PoolTask::kEmbed:
      case inference::PoolTask::kTokenEmbed:
        return config_.width;
      case inference::PoolTask::kClassify:
        return config_.classes;
      case inference::PoolTask::kScore:
        return 1;
    }
    return 1;
  }

  void run(std::span<const PoolSequence> sequences, std::span<std::vector<float>> out) override {
    for (size_t i = 0; i < sequences.size(); ++i) {
      run_one(sequences[i], out[i]);
    }
  }

  Duration pass_time(const perf::PassShape& shape) const override {
    if (config_.timing == nullptr || config_.speedup <= 0 || std::isinf(config_.speedup)) {
      return Duration::zero();
    }
    return perf::to_duration(config_.timing->prefill_ms(shape), config_.speedup);
  }

 private:
  void run_one(const PoolSequence& sequence, std::vector<float>& out) const {
    switch (sequence.task) {
      case inference::PoolTask::kEmbed:
        out.resize(config_.width);
        for (const TokenId token : sequence.tokens) {
          add_token(token, out);
        }
        if (sequence.activate) {
          normalize(out);
        }
        return;
      case inference::PoolTask::kTokenEmbed:
        out.resize(config_.width * sequence.tokens.size());
        for (size_t i = 0; i < sequence.tokens.size(); ++i) {
          const auto row = std::span(out).subspan(i * config_.width, config_.width);
          add_token(sequence.tokens[i], row);
          normalize(row);
        }
        return;
      case inference::PoolTask::kClassify:
        classify(sequence, out);
        return;
      case inference::PoolTask::kScore:
        out.push_back(score(sequence));
        return;
    }
  }

  /// Four numbers of 16 bits per step of the generator, each from -1 to 1.
  void add_token(TokenId token, std::span<float> out) const {
    uint64_t state = mix64(config_.seed ^ ((uint64_t{token} + 1) * kGolden));
    for (size_t i = 0; i < out.size(); i += 4) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's MMIX generator
      const uint64_t bits = state ^ (state >> 32);
      for (size_t j = 0; j < 4 && i + j < out.size(); ++j) {
        const auto part = static_cast<int16_t>(bits >> (16 * j));
        out[i + j] += static_cast<float>(part) * (1.0F / 32768);
      }
    }
  }

  uint64_t hash_of(std::span<const TokenId> tokens) const {
    uint64_t hash = config_.seed;
    for (const TokenId token : tokens) {
      hash = mix64(hash ^ token);
    }
    return hash;
  }

  void classify(const PoolSequence& sequence, std::vector<float>& out) const {
    const uint64_t hash = hash_of(sequence.tokens);
    float sum = 0;
    for (uint32_t i = 0; i < config_.classes; ++i) {
      const float logit = static_cast<float>(mix64(hash + i) >> 40) * (8.0F / (1U << 24)) - 4.0F;
      out.push_back(sequence.activate ? std::exp(logit) : logit);
      sum += out.back();
    }
    for (float& value : out) {
      value /= sequence.activate ? sum : 1.0F;
    }
  }

  /// The part of the first text's tokens that the second has, and a little of what these texts
  /// make by chance, so that no two documents are as good as each other: above 0, 1 at most.
  float score(const PoolSequence& sequence) const {
    constexpr float kChance = 0.01F;
    const float chance =
        static_cast<float>((hash_of(sequence.tokens) >> 40) + 1) / (1U << 24) * kChance;
    const float shared = overlap(sequence);
    return shared + (1 - shared) * chance;
  }

  static float overlap(const PoolSequence& sequence) {
    const auto first = sequence.tokens.first(sequence.first_length);
    std::vector<TokenId> second(sequence.tokens.begin() + sequence.first_length,
                                sequence.tokens.end());
    std::ranges::sort(second);
    const auto found = std::ranges::count_if(
        first, [&](TokenId token) { return std::ranges::binary_search(second, token); });
    return first.empty() ? 0 : static_cast<float>(found) / static_cast<float>(first.size());
  }

  const SimPoolConfig config_;
  inference::PoolAbility ability_;
};

}  // namespace

Result<std::unique_ptr<PoolRunner>> make_sim_pool_runner(const SimPoolConfig& config) {
  if (config.width == 0 || config.width > kWidthMax || config.classes == 0) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("simulated vectors have {} numbers, must be 1 … {}", config.width, kWidthMax));
  }
  return std::make_unique<SimPoolRunner>(config);
}

}  // namespace stator::engine
