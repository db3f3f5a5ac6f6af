// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/cpu_model_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing::HasSubstr;
using testing_support::block_range;
using testing_support::golden_model;
using testing_support::make_runner;
using testing_support::random_tokens;
using testing_support::step;
using testing_support::TestSequence;

TEST(CpuModelRunner, RefusesSettingsOutOfRangeByName) {
  const auto model = golden_model("qwen3_f32_tied");
  const std::vector<std::pair<CpuRunnerConfig, std::string>> cases = {
      {{.block_size = 0, .kv_blocks = 1}, "block_size"},
      {{.block_size = 1025, .kv_blocks = 1}, "block_size"},
      {{.kv_blocks = 0}, "kv_blocks"},
      {{.kv_blocks = 1, .threads = 0}, "threads"},
      {{.kv_blocks = 1, .threads = 257}, "threads"},
  };
  for (const auto& [config, name] : cases) {
    const auto runner = CpuModelRunner::create(model, config);
    ASSERT_FALSE(runner.has_value()) << name;
    EXPECT_EQ(runner.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(runner.error().message(), HasSubstr(name));
  }
}

TEST(CpuModelRunner, LengthIsBoundedByModelSettingAndCache) {
  const auto model = golden_model("qwen3_f32_tied");  // 256 positions
  EXPECT_EQ(make_runner(model, {.kv_blocks = 100})->max_model_len(), 256U);
  EXPECT_EQ(make_runner(model, {.kv_blocks = 100, .max_model_len = 50})->max_model_len(), 50U);
  EXPECT_EQ(make_runner(model, {.kv_blocks = 100, .max_model_len = 999})->max_model_len(), 256U);
  EXPECT_EQ(make_runner(model, {.block_size = 4, .kv_blocks = 3})->max_model_len(), 12U);
  EXPECT_EQ(make_runner(model, {.kv_blocks = 1})->vocab_size(), 512U);
}

TEST(CpuModelRunner, RunnersShareOneModel) {
  const auto model = golden_model("qwen3_f32_tied");
  const auto first = make_runner(model, {.kv_blocks = 1});
  const auto second = make_runner(model, {.kv_blocks = 1});
  EXPECT_EQ(&first->model(), &second->model());
}

TEST(CpuModelRunner, AnEmptyStepDoesNothing) {
  const auto runner = make_runner(golden_model("qwen3_f32_tied"), {.kv_blocks = 1});
  EXPECT_NO_THROW(runner->run({}, {}));
}

TEST(CpuModelRunner, OnlyTheEndOfASequenceIsSampled) {
  const auto runner = make_runner(golden_model("qwen3_f32_tied"), {.kv_blocks = 4});
  TestSequence sequence(1, random_tokens(1, 20, 512), block_range(0, 4));

  step(*runner, {&sequence}, 12);
  EXPECT_TRUE(sequence.logits.empty());
  EXPECT_EQ(sequence.tokens.size(), 20U);

  step(*runner, {&sequence}, 12);
  EXPECT_EQ(sequence.logits.size(), 512U);
  EXPECT_EQ(sequence.tokens.size(), 21U);
}

TEST(CpuModelRunner, WritesOnlyTheBlocksOfItsSequence) {
  const auto runner = make_runner(golden_model("qwen3_f32_tied"), {.kv_blocks = 4});
  const uint64_t untouched = runner->kv().checksum(BlockId(1));
  TestSequence sequence(1, random_tokens(1, 20, 512), {2, 0});

  step(*runner, {&sequence}, 100);

  EXPECT_NE(runner->kv().checksum(BlockId(2)), untouched);
  EXPECT_NE(runner->kv().checksum(BlockId(0)), untouched);
  EXPECT_EQ(runner->kv().checksum(BlockId(1)), untouched);
  EXPECT_EQ(runner->kv().checksum(BlockId(3)), untouched);
}

TEST(CpuModelRunner, GivesLogprobsWhereAsked) {
  const auto runner = make_runner(golden_model("qwen3_f32_tied"), {.kv_blocks = 4});
  TestSequence sequence(1, random_tokens(1, 20, 512), block_range(0, 4));
  sequence.sampling.logprobs = 2;
  const std::vector<SequenceSlice> slices = {sequence.slice(20)};
  std::vector<Sampled> sampled(1);

  runner->run(slices, sampled);

  ASSERT_TRUE(sampled[0].logprobs.has_value());
  EXPECT_EQ(sampled[0].logprobs->sampled.token, sampled[0].token);
  EXPECT_EQ(sampled[0].logprobs->sampled.rank, 1U);
  EXPECT_EQ(sampled[0].logprobs->top.size(), 2U);
}

TEST(CpuModelRunner, UnseededSequencesDrawDifferently) {
  const auto runner = make_runner(golden_model("qwen3_f32_tied"), {.kv_blocks = 8, .seed = 1});
  const auto prompt = random_tokens(1, 20, 512);
  TestSequence first(1, prompt, block_range(0, 4));
  TestSequence second(2, prompt, block_range(4, 4));
  first.sampling = second.sampling = {.temperature = 5.0F};
  for (int i = 0; i < 20; ++i) {
    step(*runner, {&first, &second}, 100);
  }
  EXPECT_NE(first.tokens, second.tokens);
}

TEST(CpuModelRunner, SamplesMoreSequencesThanOneLogitsBatchHolds) {
  const auto runner = make_runner(golden_model("qwen3_f32_tied"), {.kv_blocks = 40});
  std::vector<TestSequence> sequences;
  std::vector<TestSequence*> batch;
  for (uint32_t i = 0; i < 40; ++i) {
    sequences.emplace_back(i, random_tokens(i % 3, 5, 512), block_range(i, 1));
  }
  for (TestSequence& sequence : sequences) {
    batch.push_back(&sequence);
  }

  step(*runner, batch, 100);

  for (uint32_t i = 3; i < 40; ++i) {
    EXPECT_EQ(sequences[i].logits, sequences[i % 3].logits);
    EXPECT_EQ(sequences[i].tokens, sequences[i % 3].tokens);
  }
}

}  // namespace
}  // namespace stator::engine::cpu
