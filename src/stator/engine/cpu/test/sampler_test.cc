// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stator::engine::cpu {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

constexpr float kBanned = -std::numeric_limits<float>::infinity();

/// Logits whose softmax is exactly these probabilities.
std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  return logits;
}

std::vector<TokenId> kept(std::span<const float> logits) {
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < logits.size(); ++token) {
    if (logits[token] != kBanned) {
      tokens.push_back(token);
    }
  }
  return tokens;
}

SampleResult sample(std::vector<float> logits, const inference::SamplingParams& params,
                    std::vector<TokenId> output = {},
                    const inference::StopConditions* stop = nullptr,
                    std::vector<TokenId> prompt = {}) {
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  return sampler.sample({.logits = logits,
                         .prompt = prompt,
                         .output = output,
                         .params = &params,
                         .stop = stop,
                         .key = draw_key(params, 0, 0)});
}

TEST(NormalizeSampling, FollowsTheTemperatureBands) {
  EXPECT_TRUE(normalize_sampling({.temperature = 0.0F}).greedy);
  EXPECT_TRUE(normalize_sampling({.temperature = 9e-6F}).greedy);
  EXPECT_EQ(normalize_sampling({.temperature = 1e-5F}).temperature, 0.01F);
  EXPECT_EQ(normalize_sampling({.temperature = 0.5F}).temperature, 0.5F);
  EXPECT_EQ(normalize_sampling({.top_k = -1}).top_k, 0U);
  // Greedy switches the filters off.
  const EffectiveSampling greedy =
      normalize_sampling({.temperature = 0.0F, .top_p = 0.5F, .top_k = 3, .min_p = 0.2F});
  EXPECT_EQ(greedy.top_p, 1.0F);
  EXPECT_EQ(greedy.top_k, 0U);
  EXPECT_EQ(greedy.min_p, 0.0F);
}

TEST(DrawKey, DependsOnTheSeedOnlyWhereThereIsOne) {
  EXPECT_EQ(draw_key({.seed = 5}, 1, 2), draw_key({.seed = 5}, 3, 4));
  EXPECT_NE(draw_key({.seed = 5}, 1, 2), draw_key({.seed = 6}, 1, 2));
  EXPECT_NE(draw_key({}, 1, 2), draw_key({}, 1, 3));
  EXPECT_NE(draw_key({}, 1, 2), draw_key({}, 2, 2));
  EXPECT_EQ(draw_key({.seed = -1}, 1, 2), draw_key({}, 1, 2));
}

TEST(ComputeLogprobs, GivesRankAndTopOfTheRawDistribution) {
  const auto raw = logits_of({0.1, 0.4, 0.2, 0.3});

  const auto logprobs = compute_logprobs(raw, 2, 2);

  EXPECT_EQ(logprobs.sampled.token, 2U);
  EXPECT_EQ(logprobs.sampled.rank, 3U);
  EXPECT_NEAR(logprobs.sampled.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(logprobs.top.size(), 2U);
  EXPECT_EQ(logprobs.top[0].token, 1U);
  EXPECT_EQ(logprobs.top[0].rank, 1U);
  EXPECT_EQ(logprobs.top[1].token, 3U);
  EXPECT_EQ(logprobs.top[1].rank, 2U);
  EXPECT_NEAR(logprobs.top[1].logprob, std::log(0.3), 1e-6);
}

TEST(ComputeLogprobs, TiesShareARankAndOrderById) {
  const std::vector<float> raw = {1.0F, 2.0F, 2.0F, 0.0F};

  const auto logprobs = compute_logprobs(raw, 2, 9);

  EXPECT_EQ(logprobs.sampled.rank, 1U);
  ASSERT_EQ(logprobs.top.size(), 4U);  // the vocabulary is smaller than asked
  EXPECT_EQ(logprobs.top[0].token, 1U);
  EXPECT_EQ(logprobs.top[1].token, 2U);
  EXPECT_EQ(logprobs.top[1].rank, 1U);
  EXPECT_EQ(logprobs.top[2].rank, 3U);
}

TEST(ComputeLogprobs, FloorsWhatIsImpossible) {
  const std::vector<float> raw = {0.0F, kBanned};
  EXPECT_EQ(compute_logprobs(raw, 1, 0).sampled.logprob, -9999.0F);
  const std::vector<float> none = {kBanned, kBanned};
  EXPECT_EQ(compute_logprobs(none, 0, 0).sampled.logprob, -9999.0F);
}

TEST(BanStopTokens, UntilMinTokensAreThere) {
  const inference::StopConditions stop{
      .min_tokens = 2, .stop_token_ids = {3, 99}, .eos_token_ids = {1}};
  std::vector<float> logits(4, 1.0F);

  ban_stop_tokens(stop, 1, logits);
  EXPECT_THAT(kept(logits), ElementsAre(0, 2));

  std::vector<float> later(4, 1.0F);
  ban_stop_tokens(stop, 2, later);
  EXPECT_THAT(kept(later), ElementsAre(0, 1, 2, 3));
}

TEST(AddLogitBias, AddsAndIgnoresUnknownTokens) {
  std::vector<float> logits = {1.0F, 2.0F};
  add_logit_bias({.logit_bias = {{1, -5.0F}, {7, 1.0F}}}, logits);
  EXPECT_THAT(logits, ElementsAre(1.0F, -3.0F));
}

TEST(Penalties, FollowTheirDefinitions) {
  std::vector<float> logits = {4.0F, -4.0F, 4.0F, 4.0F};
  const std::vector<TokenId> prompt = {0, 1, 0, 50};
  const std::vector<TokenId> output = {2, 2, 60};
  const inference::SamplingParams params{
      .presence_penalty = 0.5F, .frequency_penalty = 0.25F, .repetition_penalty = 2.0F};
  Sampler sampler(4);

  for (int round = 0; round < 2; ++round) {  // scratch is clean again the second time
    logits = {4.0F, -4.0F, 4.0F, 4.0F};
    sampler.apply_penalties(
        {.logits = logits, .prompt = prompt, .output = output, .params = &params});

    // 0: repetition once, though twice in the prompt. 1: negative, so multiplied. 2: 4/2 − 2·0.25 −
    // 0.5.
    EXPECT_THAT(logits, ElementsAre(FloatEq(2.0F), FloatEq(-8.0F), FloatEq(1.0F), FloatEq(4.0F)));
  }
}

TEST(MinP, DropsBelowAShareOfTheBest) {
  auto logits = logits_of({0.5, 0.3, 0.15, 0.05});
  apply_min_p(0.29F, logits);  // threshold 0.145
  EXPECT_THAT(kept(logits), ElementsAre(0, 1, 2));
}

TEST(TopK, KeepsTiesOfTheKth) {
  std::vector<float> logits = {1.0F, 3.0F, 2.0F, 2.0F};
  apply_top_k(2, logits);
  EXPECT_THAT(kept(logits), ElementsAre(1, 2, 3));
  apply_top_k(9, logits);
  EXPECT_THAT(kept(logits), ElementsAre(1, 2, 3));
}

TEST(TopP, DropsTheTailAndAlwaysKeepsTheBest) {
  auto logits = logits_of({0.05, 0.5, 0.3, 0.15});
  apply_top_p(0.75F, logits);  // ascending 0.05, 0.20 ≤ 0.25 < 0.50
  EXPECT_THAT(kept(logits), ElementsAre(1, 2));

  auto strict = logits_of({0.05, 0.5, 0.3, 0.15});
  apply_top_p(1e-6F, strict);
  EXPECT_THAT(kept(strict), ElementsAre(1));

  auto flat = logits_of({0.25, 0.25, 0.25, 0.25});
  apply_top_p(0.6F, flat);  // one quarter goes, of equals the highest id
  EXPECT_THAT(kept(flat), ElementsAre(0, 1, 2));
}

TEST(PickBest, TheLowestIdWinsTies) {
  const std::vector<float> logits = {1.0F, 5.0F, 5.0F};
  EXPECT_EQ(pick_best(logits), 1U);
}

TEST(Draw, IsAFunctionOfKeyIndexAndLogits) {
  const auto logits = logits_of({0.25, 0.25, 0.25, 0.25});
  std::vector<TokenId> first;
  std::vector<TokenId> second;
  for (uint64_t index = 0; index < 64; ++index) {
    first.push_back(draw(logits, 9, index));
    second.push_back(draw(logits, 9, index));
  }
  EXPECT_EQ(first, second);
  EXPECT_THAT(first, testing::Contains(0U));
  EXPECT_THAT(first, testing::Contains(3U));
  EXPECT_NE(draw(logits, 9, 0) * 64 + draw(logits, 9, 1) * 16 + draw(logits, 9, 2) * 4,
            draw(logits, 10, 0) * 64 + draw(logits, 10, 1) * 16 + draw(logits, 10, 2) * 4);
}

TEST(Draw, FollowsTheDistribution) {
  const std::vector<double> probabilities = {0.5, 0.3, 0.15, 0.05};
  const auto logits = logits_of({0.5, 0.3, 0.15, 0.05});
  constexpr int kDraws = 40000;
  // Over the indices of one key, and over the keys of one index.
  for (const bool over_keys : {false, true}) {
    std::vector<int> counts(4);
    for (int i = 0; i < kDraws; ++i) {
      const auto number = static_cast<uint64_t>(i);
      ++counts[over_keys ? draw(logits, number, 3) : draw(logits, 1234, number)];
    }
    double chi_squared = 0;
    for (size_t token = 0; token < 4; ++token) {
      const double expected = probabilities[token] * kDraws;
      chi_squared += (counts[token] - expected) * (counts[token] - expected) / expected;
    }
    EXPECT_LT(chi_squared, 16.27) << "p < 0.001 for 3 degrees of freedom";
  }
}

TEST(Draw, NeverTakesWhatWasDropped) {
  std::vector<float> logits(100, kBanned);
  logits[42] = -50.0F;
  for (uint64_t index = 0; index < 100; ++index) {
    EXPECT_EQ(draw(logits, 7, index), 42U);
  }
}

TEST(Draw, TokenZeroWhereNothingIsLeft) {
  const std::vector<float> logits(5, kBanned);
  EXPECT_EQ(draw(logits, 1, 1), 0U);
}

TEST(Sampler, GreedyTakesTheBestWhateverTheFilters) {
  EXPECT_EQ(sample({0.0F, 2.0F, 1.0F}, {.temperature = 0.0F, .top_k = 1}).token, 1U);
}

TEST(Sampler, NanIsNeverSampled) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sample({nan, 2.0F, nan}, {.temperature = 0.0F}).token, 1U);
  EXPECT_EQ(sample({nan, 2.0F, nan}, {.seed = 4}).token, 1U);
  EXPECT_EQ(sample({nan, nan, nan}, {.logprobs = 1}).token, 0U);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Filters, DropNan) {
  const std::vector<float> logits = {kNan, 1.0F, kNan, 3.0F, 2.0F, kNan};
  const auto after = [&](auto&& filter) {
    std::vector<float> copy = logits;
    filter(std::span<float>(copy));
    return kept(copy);
  };

  EXPECT_THAT(after([](auto l) { apply_top_p(0.999F, l); }), ElementsAre(1, 3, 4));
  EXPECT_THAT(after([](auto l) { apply_top_p(0.1F, l); }), ElementsAre(3));
  EXPECT_THAT(after([](auto l) { apply_top_k(2, l); }), ElementsAre(3, 4));
  EXPECT_THAT(after([](auto l) { apply_min_p(0.3F, l); }), ElementsAre(3, 4));
  EXPECT_EQ(pick_best(logits), 3U);
}

TEST(Filters, KeepOneOfManyThatAreBeyondAllNumbers) {
  std::vector<float> logits = {kInfinity, 1.0F, kInfinity, kNan, kBanned};

  apply_top_p(0.4F, logits);

  EXPECT_THAT(kept(logits), ElementsAre(0));
}

TEST(ComputeLogprobs, RanksNanLast) {
  const std::vector<float> raw = {kNan, 1.0F, kNan, 3.0F};

  const auto logprobs = compute_logprobs(raw, 0, 4);

  EXPECT_EQ(logprobs.sampled.logprob, -9999.0F);
  EXPECT_EQ(logprobs.sampled.rank, 3U);
  ASSERT_EQ(logprobs.top.size(), 4U);
  EXPECT_EQ(logprobs.top[0].token, 3U);
  EXPECT_EQ(logprobs.top[1].token, 1U);
  EXPECT_EQ(logprobs.top[2].token, 0U);
}

TEST(Sampler, APenaltyThatLeavesTheNumbersStillSamples) {
  // The smallest float above 0 makes the logits of what was said infinite.
  const inference::SamplingParams params{
      .top_p = 0.9F,
      .repetition_penalty = std::numeric_limits<float>::denorm_min(),
      .seed = 1,
      .logprobs = 2};

  const auto result = sample({1.0F, 2.0F, kInfinity, kNan, -3.0F}, params, {1, 4}, nullptr, {0});

  EXPECT_LE(result.token, 2U);
  ASSERT_TRUE(result.logprobs.has_value());
  for (const inference::TokenLogprob& top : result.logprobs->top) {
    EXPECT_TRUE(std::isfinite(top.logprob));
  }
}

TEST(Sampler, LogprobsAreRawWhateverIsDoneToTheLogits) {
  const inference::SamplingParams params{
      .temperature = 0.0F, .logit_bias = {{0, 100.0F}}, .logprobs = 1};

  const auto result = sample(logits_of({0.2, 0.8}), params);

  EXPECT_EQ(result.token, 0U);
  ASSERT_TRUE(result.logprobs.has_value());
  EXPECT_NEAR(result.logprobs->sampled.logprob, std::log(0.2), 1e-6);
  EXPECT_EQ(result.logprobs->sampled.rank, 2U);
  EXPECT_EQ(result.logprobs->top.at(0).token, 1U);
}

TEST(Sampler, WithoutLogprobsThereAreNone) {
  EXPECT_FALSE(sample({0.0F, 1.0F}, {}).logprobs.has_value());
}

TEST(Sampler, MinTokensCountsTheOutput) {
  const inference::StopConditions stop{.min_tokens = 2, .eos_token_ids = {1}};
  const inference::SamplingParams greedy{.temperature = 0.0F};
  EXPECT_EQ(sample({0.0F, 5.0F}, greedy, {0}, &stop).token, 0U);
  EXPECT_EQ(sample({0.0F, 5.0F}, greedy, {0, 0}, &stop).token, 1U);
}

TEST(Sampler, BiasComesBeforePenalties) {
  // (1 + 3) / 2 = 2 < 3; the other order would give 1/2 + 3 > 3.
  const inference::SamplingParams params{
      .temperature = 0.0F, .repetition_penalty = 2.0F, .logit_bias = {{0, 3.0F}}};
  EXPECT_EQ(sample({1.0F, 3.0F}, params, {}, nullptr, {0}).token, 1U);
}

TEST(Sampler, TemperatureComesBeforeMinP) {
  // p = 0.6, 0.4; at temperature 0.1 the second is (2/3)^10 ≈ 0.017 of the first.
  const inference::SamplingParams params{.temperature = 0.1F, .min_p = 0.05F, .seed = 0};
  Sampler sampler(2);
  for (TokenId index = 0; index < 200; ++index) {
    auto logits = logits_of({0.6, 0.4});
    const std::vector<TokenId> output(index, 0);
    EXPECT_EQ(
        sampler.sample({.logits = logits, .output = output, .params = &params, .key = 5}).token,
        0U);
  }
}

TEST(Sampler, ADrawDependsOnTheOutputIndexNotOnTheTokens) {
  const inference::SamplingParams params{.seed = 77};
  const auto logits = std::vector<float>(50, 0.0F);
  EXPECT_EQ(sample(logits, params, {1, 2, 3}).token, sample(logits, params, {9, 9, 9}).token);
}

}  // namespace
}  // namespace stator::engine::cpu
