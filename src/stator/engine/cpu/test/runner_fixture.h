// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/engine/cpu/cpu_model_runner.h"
#include "stator/engine/cpu/model.h"

namespace stator::engine::cpu::testing_support {

inline std::string testdata(const std::string& name) {
  return std::string(STATOR_SOURCE_DIR) + "/src/stator/engine/cpu/testdata/" + name;
}

/// A model of testdata/.
inline std::shared_ptr<const Model> golden_model(const std::string& name) {
  auto model = load_model(testdata(name));
  STATOR_ASSERT(model.has_value(), model.has_value() ? "" : model.error().to_string());
  return *model;
}

inline const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> kNames = {"qwen3_f32_tied",
                                                  "llama_bf16_llama3_sharded",
                                                  "qwen3_f16_three_layers",
                                                  "qwen2_bf16_bias",
                                                  "mistral_bf16_window",
                                                  "llama_bf16_yarn",
                                                  "llama_bf16_dynamic",
                                                  "qwen3_moe_bf16",
                                                  "gemma2_bf16",
                                                  "gemma3_bf16",
                                                  "phi3_bf16_longrope",
                                                  "glm_bf16",
                                                  "glm4_bf16",
                                                  "gpt_oss_bf16",
                                                  "mixtral_bf16",
                                                  "olmoe_bf16",
                                                  "gemma_bf16",
                                                  "granite_bf16",
                                                  "smollm3_bf16",
                                                  "olmo2_bf16",
                                                  "olmo3_bf16",
                                                  "seed_oss_bf16",
                                                  "ernie4_5_bf16",
                                                  "llama_bf16_dynamic_long",
                                                  "phi3_bf16_longrope_long"};
  return kNames;
}

inline std::unique_ptr<CpuModelRunner> make_runner(std::shared_ptr<const Model> model,
                                                   CpuRunnerConfig config) {
  auto runner = CpuModelRunner::create(std::move(model), config);
  STATOR_ASSERT(runner.has_value(), "the test's runner configuration is wrong");
  return std::move(*runner);
}

inline std::vector<TokenId> random_tokens(uint64_t seed, size_t count, uint32_t vocab) {
  Random random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random.below(vocab));
  }
  return tokens;
}

/// A sequence as a scheduler would hold it.
struct TestSequence {
  uint64_t id = 0;
  std::vector<TokenId> tokens;
  uint32_t prompt_tokens = 0;
  uint32_t computed = 0;
  std::vector<BlockId> blocks;
  inference::SamplingParams sampling = {.temperature = 0.0F};
  inference::StopConditions stop;
  std::vector<float> logits;  ///< raw, after its last token

  TestSequence(uint64_t id_in, std::vector<TokenId> prompt, std::vector<uint32_t> block_ids)
      : id(id_in), tokens(std::move(prompt)), prompt_tokens(static_cast<uint32_t>(tokens.size())) {
    for (const uint32_t block : block_ids) {
      blocks.emplace_back(block);
    }
  }
  SequenceSlice slice(uint32_t count) const {
    return {.sequence = id,
            .tokens = tokens,
            .prompt_tokens = prompt_tokens,
            .start = computed,
            .count = count,
            .blocks = blocks,
            .sample = computed + count == tokens.size(),
            .sampling = &sampling,
            .stop = &stop};
  }
  uint32_t left() const { return static_cast<uint32_t>(tokens.size()) - computed; }
};

inline std::vector<uint32_t> block_range(uint32_t first, uint32_t count) {
  std::vector<uint32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

/// One step over some sequences, each with at most `chunk` tokens; appends what was sampled.
inline void step(CpuModelRunner& runner, std::vector<TestSequence*> sequences, uint32_t chunk) {
  std::vector<SequenceSlice> slices;
  for (const TestSequence* sequence : sequences) {
    slices.push_back(sequence->slice(std::min(chunk, sequence->left())));
  }
  std::vector<Sampled> sampled(slices.size());
  runner.set_logits_observer([&](size_t index, std::span<const float> logits) {
    sequences[index]->logits.assign(logits.begin(), logits.end());
  });
  runner.run(slices, sampled);
  for (size_t i = 0; i < slices.size(); ++i) {
    sequences[i]->computed += slices[i].count;
    if (slices[i].sample) {
      sequences[i]->tokens.push_back(sampled[i].token);
    }
  }
}

/// Computes the prompt in chunks and then decodes until `outputs` tokens are there.
inline void generate(CpuModelRunner& runner, TestSequence& sequence, uint32_t chunk,
                     size_t outputs) {
  while (sequence.tokens.size() < sequence.prompt_tokens + outputs) {
    step(runner, {&sequence}, chunk);
  }
}

}  // namespace stator::engine::cpu::testing_support
