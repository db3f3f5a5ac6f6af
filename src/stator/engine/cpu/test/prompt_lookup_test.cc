// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/prompt_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing_support::block_range;
using testing_support::golden_model;
using testing_support::make_runner;
using testing_support::random_tokens;
using testing_support::TestSequence;

TEST(PromptLookup, TakesTheLatestPlaceOfTheLongestEnd) {
  const PromptLookup lookup{.tokens = 3, .match_least = 2, .match_most = 3};
  const std::vector<TokenId> repeated = {1, 2, 3, 40, 1, 2, 3, 50, 51, 9, 2, 3, 60, 1, 2, 3};
  EXPECT_THAT(look_up(repeated, lookup), ElementsAre(50, 51, 9));
  const std::vector<TokenId> short_end = {7, 8, 1, 2, 5, 7, 8};
  EXPECT_THAT(look_up(short_end, lookup), ElementsAre(1, 2, 5));
  const std::vector<TokenId> only_one = {1, 5, 2, 1};
  EXPECT_THAT(look_up(only_one, lookup), IsEmpty());
  EXPECT_THAT(look_up({}, lookup), IsEmpty());
  const std::vector<TokenId> run = {4, 4, 4, 4};
  EXPECT_THAT(look_up(run, lookup), ElementsAre(4));
}

/// What the runner draws with guesses is what it draws without, in fewer runs.
TEST(PromptLookup, ChangesNoTokenAndNoKvByte) {
  const auto model = golden_model("qwen3_f32_tied");
  for (const float temperature : {0.0F, 1.0F}) {
    std::vector<TokenId> outcomes[2];
    uint64_t checksums[2] = {};
    size_t runs[2] = {};
    for (const size_t guessing : {size_t{0}, size_t{1}}) {
      const auto runner =
          make_runner(model, {.kv_blocks = 16,
                              .seed = 3,
                              .lookup = {.tokens = guessing == 1 ? 5U : 0U, .match_least = 1}});
      EXPECT_EQ(runner->draft_tokens(), guessing == 1 ? 5U : 0U);
      auto prompt = random_tokens(2, 20, model->config.vocab_size);
      prompt.insert(prompt.end(), prompt.begin(), prompt.end());
      TestSequence sequence(1, prompt, block_range(0, 8));
      sequence.sampling.temperature = temperature;
      while (sequence.tokens.size() < prompt.size() + 40) {
        std::vector<SequenceSlice> slices{sequence.slice(sequence.left())};
        std::vector<Sampled> sampled(1);
        runner->run(slices, sampled);
        ++runs[guessing];
        sequence.computed += slices[0].count + static_cast<uint32_t>(sampled[0].drafted.size());
        sequence.tokens.push_back(sampled[0].token);
        sequence.tokens.insert(sequence.tokens.end(), sampled[0].drafted.begin(),
                               sampled[0].drafted.end());
      }
      sequence.tokens.resize(prompt.size() + 40);
      outcomes[guessing] = sequence.tokens;
      checksums[guessing] = runner->kv().checksum(BlockId(3));  // positions 48 to 63
    }
    EXPECT_EQ(outcomes[1], outcomes[0]) << "temperature " << temperature;
    EXPECT_EQ(checksums[0], checksums[1]) << "temperature " << temperature;
    if (temperature == 0) {
      EXPECT_LT(runs[1], runs[0]) << "a tiny greedy model repeats itself";
    }
  }
}

/// A grammar of some tokens in any order.
class SomeTokens final : public GuessMasks {
 public:
  std::span<const Mask> behind(std::span<const TokenId> guesses) override {
    masks_.clear();
    for (const TokenId token : guesses) {
      if (token >= 6) {
        break;
      }
      masks_.push_back({.allowed = words, .may_end = false});
    }
    return masks_;
  }
  const std::vector<uint64_t> words = {0x3F};

 private:
  std::vector<Mask> masks_;
};

TEST(PromptLookup, ChangesNoTokenUnderAMask) {
  const auto model = golden_model("qwen3_f32_tied");
  for (const float temperature : {0.0F, 1.0F}) {
    std::vector<TokenId> outcomes[2];
    size_t drafted = 0;
    for (const size_t guessing : {size_t{0}, size_t{1}}) {
      const auto runner =
          make_runner(model, {.kv_blocks = 16,
                              .seed = 3,
                              .lookup = {.tokens = guessing == 1 ? 5U : 0U, .match_least = 1}});
      const std::vector<TokenId> prompt = {9, 1, 2, 3, 9, 8, 4, 5, 0, 1, 9, 2, 4, 1, 2};
      TestSequence sequence(1, prompt, block_range(0, 8));
      sequence.sampling.temperature = temperature;
      SomeTokens masks;
      while (sequence.tokens.size() < 90) {
        std::vector<SequenceSlice> slices{sequence.slice(sequence.left())};
        slices[0].allowed = masks.words;
        slices[0].may_end = false;
        slices[0].guess_masks = &masks;
        std::vector<Sampled> sampled(1);
        runner->run(slices, sampled);
        drafted += sampled[0].drafted.size();
        sequence.computed += slices[0].count + static_cast<uint32_t>(sampled[0].drafted.size());
        sequence.tokens.push_back(sampled[0].token);
        sequence.tokens.insert(sequence.tokens.end(), sampled[0].drafted.begin(),
                               sampled[0].drafted.end());
      }
      sequence.tokens.resize(90);
      outcomes[guessing] = sequence.tokens;
      for (size_t i = prompt.size(); i < 90; ++i) {
        EXPECT_LT(sequence.tokens[i], 6U) << i;
      }
    }
    EXPECT_EQ(outcomes[1], outcomes[0]) << "temperature " << temperature;
    EXPECT_GT(drafted, 0U) << "temperature " << temperature;
  }
}

TEST(PromptLookup, StaysWithinTheBlocksOfTheSequence) {
  const auto model = golden_model("qwen3_f32_tied");
  const auto runner =
      make_runner(model, {.kv_blocks = 16, .lookup = {.tokens = 8, .match_least = 1}});
  std::vector<TokenId> prompt(30, 5);
  TestSequence sequence(1, prompt, block_range(0, 2));
  std::vector<SequenceSlice> slices{sequence.slice(30)};
  std::vector<Sampled> sampled(1);
  runner->run(slices, sampled);
  EXPECT_LE(sampled[0].drafted.size(), 2U) << "two blocks hold 32 tokens";
  slices[0].may_draft = false;
  sampled.assign(1, {});
  runner->run(slices, sampled);
  EXPECT_THAT(sampled[0].drafted, IsEmpty());
}

}  // namespace
}  // namespace stator::engine::cpu
