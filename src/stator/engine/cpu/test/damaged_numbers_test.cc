// SPDX-License-Identifier: Apache-2.0
// A text whose numbers overflow ends alone: neither its neighbours in the batch nor those who get
// its blocks afterwards see anything of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing::HasSubstr;
using testing_support::block_range;
using testing_support::make_runner;
using testing_support::random_tokens;
using testing_support::TestSequence;

constexpr TokenId kPoison = 95;

/// One whose last token has no numbers.
std::shared_ptr<const Model> poisoned_model(float poison) {
  ModelConfig config{.architecture = "LlamaForCausalLM",
                     .vocab_size = 96,
                     .layers = 2,
                     .hidden_size = 32,
                     .intermediate_size = 48,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = 16,
                     .max_positions = 128};
  config.sliding_window.assign(config.layers, 0);
  Random random(1);
  std::vector<std::vector<float>> storage;
  TensorMap tensors;
  const auto expected = expected_tensors(config);
  storage.reserve(expected.size());
  for (const ExpectedTensor& tensor : expected) {
    size_t count = 1;
    for (const uint64_t extent : tensor.shape) {
      count *= extent;
    }
    auto& values = storage.emplace_back(count);
    for (float& value : values) {
      value = static_cast<float>(random.uniform() - 0.5);
    }
    if (tensor.name == "model.embed_tokens.weight") {
      values[kPoison * config.hidden_size + 3] = poison;
    }
    tensors.emplace(tensor.name, TensorView{.dtype = Dtype::kF32,
                                            .shape = tensor.shape,
                                            .bytes = std::as_bytes(std::span(values))});
  }
  return *make_model(config, {}, tensors);
}

using Case = std::pair<float, KvType>;
class DamagedNumbers : public testing::TestWithParam<Case> {};

TEST_P(DamagedNumbers, EndOnlyTheirOwnRequest) {
  const auto [poison, type] = GetParam();
  const auto model = poisoned_model(poison);
  const auto tokens = random_tokens(2, 30, 90);
  const auto one_step = [](CpuModelRunner& runner, std::vector<TestSequence*> sequences) {
    std::vector<SequenceSlice> slices;
    for (const TestSequence* sequence : sequences) {
      slices.push_back(sequence->slice(sequence->left()));
    }
    std::vector<Sampled> sampled(slices.size());
    runner.set_logits_observer([&](size_t index, std::span<const float> logits) {
      sequences[index]->logits.assign(logits.begin(), logits.end());
    });
    runner.run(slices, sampled);
    return sampled;
  };
  const auto clean = make_runner(model, {.kv_blocks = 8, .kv_type = type});
  TestSequence alone(1, tokens, block_range(0, 2));
  EXPECT_EQ(one_step(*clean, {&alone})[0].error, "");

  const auto runner = make_runner(model, {.kv_blocks = 8, .threads = 2, .kv_type = type});
  TestSequence good(1, tokens, block_range(0, 2));
  auto damaged_tokens = random_tokens(3, 30, 90);
  damaged_tokens[10] = kPoison;
  TestSequence damaged(2, damaged_tokens, block_range(2, 2));
  const auto sampled = one_step(*runner, {&damaged, &good});
  EXPECT_THAT(sampled[0].error, HasSubstr("no finite numbers"));
  EXPECT_EQ(sampled[1].error, "");
  EXPECT_EQ(good.logits, alone.logits);

  // The blocks of the damaged one, and what is left behind the new tokens in them.
  TestSequence next(3, tokens, block_range(2, 2));
  EXPECT_EQ(one_step(*runner, {&next})[0].error, "");
  EXPECT_EQ(next.logits, alone.logits);
}

INSTANTIATE_TEST_SUITE_P(
    Poisons, DamagedNumbers,
    testing::Values(Case{std::numeric_limits<float>::quiet_NaN(), KvType::kF32},
                    Case{std::numeric_limits<float>::infinity(), KvType::kF16},
                    Case{std::numeric_limits<float>::quiet_NaN(), KvType::kInt8}));

}  // namespace
}  // namespace stator::engine::cpu
