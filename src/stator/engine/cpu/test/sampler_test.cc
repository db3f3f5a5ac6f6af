// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "stator/core/random.h"

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

/// What is left where banned tokens are −∞.
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

/// All tokens that 3,000 draws bring, in order.
std::vector<TokenId> drawn(const std::vector<float>& logits,
                           const inference::SamplingParams& params) {
  std::set<TokenId> tokens;
  Sampler sampler(static_cast<uint32_t>(logits.size()));
  for (uint64_t key = 0; key < 3000; ++key) {
    std::vector<float> row = logits;
    tokens.insert(sampler.sample({.logits = row, .params = &params, .key = key}).token);
  }
  return {tokens.begin(), tokens.end()};
}

inference::TokenLogprobs compute_logprobs(std::span<const float> raw, TokenId token, uint32_t top) {
  return Sampler(static_cast<uint32_t>(raw.size())).logprobs(raw, token, top);
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

TEST(KeepTokens, BansAllOthersAndIgnoresUnknownOnes) {
  std::vector<float> logits{1.0F, -2.0F, 3.0F, kBanned};
  keep_tokens(std::vector<TokenId>{9, 3, 1}, logits);
  EXPECT_EQ(logits, (std::vector<float>{kBanned, -2.0F, kBanned, kBanned}));
}

TEST(Sampler, AllowedTokensAndBadWordsChangeNoLogprobs) {
  const std::vector<float> logits = logits_of({0.5, 0.3, 0.15, 0.05});
  inference::SamplingParams params{.temperature = 0, .logprobs = 1};
  const auto raw = sample(logits, params).logprobs->top.front();
  params.allowed_token_ids = {1, 2};
  std::vector<float> row = logits;
  const std::vector<TokenId> banned{1, 77};
  const SampleResult result =
      Sampler(4).sample({.logits = row, .params = &params, .key = 1, .banned = banned});
  EXPECT_EQ(result.token, 2U);
  EXPECT_EQ(result.logprobs->sampled.rank, 3U);
  EXPECT_EQ(result.logprobs->top.front().token, raw.token);
  EXPECT_EQ(result.logprobs->top.front().logprob, raw.logprob);
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
  EXPECT_THAT(drawn(logits_of({0.5, 0.3, 0.15, 0.05}), {.min_p = 0.29F}),  // threshold 0.145
              ElementsAre(0, 1, 2));
}

TEST(TopK, KeepsTiesOfTheKth) {
  EXPECT_THAT(drawn({1.0F, 3.0F, 2.0F, 2.0F}, {.top_k = 2}), ElementsAre(1, 2, 3));
  EXPECT_THAT(drawn({1.0F, 3.0F, 2.0F, 2.0F}, {.top_k = 1}), ElementsAre(1));
  EXPECT_THAT(drawn({1.0F, 3.0F, 2.0F, 2.0F}, {.top_k = 9}), ElementsAre(0, 1, 2, 3));
}

TEST(TopP, DropsTheTailAndAlwaysKeepsTheBest) {
  // Ascending 0.05, 0.20 ≤ 0.25 < 0.50.
  EXPECT_THAT(drawn(logits_of({0.05, 0.5, 0.3, 0.15}), {.top_p = 0.75F}), ElementsAre(1, 2));
  EXPECT_THAT(drawn(logits_of({0.05, 0.5, 0.3, 0.15}), {.top_p = 1e-6F}), ElementsAre(1));
  // One quarter goes, of equals the highest id.
  EXPECT_THAT(drawn(std::vector<float>(4, 0.0F), {.top_p = 0.6F}), ElementsAre(0, 1, 2));
}

TEST(TopP, IsAShareOfWhatTopKLeft) {
  // 0.4, 0.3 are left, of which 0.3 is 0.43; of all it would be less than 0.45, too.
  EXPECT_THAT(drawn(logits_of({0.4, 0.3, 0.2, 0.1}), {.top_p = 0.55F, .top_k = 2}), ElementsAre(0));
  EXPECT_THAT(drawn(logits_of({0.4, 0.3, 0.2, 0.1}), {.top_p = 0.55F}), ElementsAre(0, 1));
}

TEST(PickBest, TheLowestIdWinsTies) {
  EXPECT_EQ(sample({1.0F, 5.0F, 5.0F}, {.temperature = 0.0F}).token, 1U);
  std::vector<float> wide(100, 0.0F);
  wide[37] = -0.0F;
  EXPECT_EQ(sample(wide, {.temperature = 0.0F}).token, 0U);
  wide[70] = wide[71] = 1.0F;
  EXPECT_EQ(sample(wide, {.temperature = 0.0F}).token, 70U);
}

TEST(Arrival, IsExponentialAndOneOfSixteenIsTheFirst) {
  double sum = 0;
  double squares = 0;
  double firsts = 0;
  constexpr int kBlocks = 2000;
  for (TokenId block = 0; block < kBlocks; ++block) {
    double first = 1e9;
    for (TokenId member = 0; member < 16; ++member) {
      const double time = arrival(5, 9, block / 16 * 256 + block % 16 + member * 16);
      sum += time / (kBlocks * 16);
      squares += time * time / (kBlocks * 16);
      first = std::min(first, time);
    }
    firsts += first / kBlocks;
  }
  EXPECT_NEAR(sum, 1, 0.03);
  EXPECT_NEAR(squares, 2, 0.15);
  EXPECT_NEAR(firsts, 1.0 / 16, 0.006);
}

TEST(Draw, IsAFunctionOfKeyIndexAndLogits) {
  const std::vector<float> logits(64, 0.0F);
  const auto tokens = [&](int64_t seed) {
    std::vector<TokenId> out;
    for (size_t index = 0; index < 40; ++index) {
      out.push_back(sample(logits, {.seed = seed}, std::vector<TokenId>(index)).token);
    }
    return out;
  };
  EXPECT_EQ(tokens(9), tokens(9));
  EXPECT_NE(tokens(9), tokens(10));
}

TEST(Draw, FollowsTheDistribution) {
  // Over the indices of one key, and over the keys of one index; alone in a block and spread out.
  const std::vector<double> probabilities = {0.5, 0.3, 0.15, 0.05};
  constexpr int kDraws = 40000;
  for (const size_t distance : {1U, 5U, 16U, 300U}) {
    std::vector<float> logits(3 * distance + 1, kBanned);
    for (size_t i = 0; i < 4; ++i) {
      logits[i * distance] = static_cast<float>(std::log(probabilities[i]));
    }
    Sampler sampler(static_cast<uint32_t>(logits.size()));
    const std::vector<TokenId> output(kDraws);
    const inference::SamplingParams params;
    for (const bool over_keys : {false, true}) {
      std::vector<int> counts(4);
      for (size_t i = 0; i < kDraws; ++i) {
        std::vector<float> row = logits;
        const auto token = sampler.sample({.logits = row,
                                           .output = std::span(output).first(over_keys ? 3 : i),
                                           .params = &params,
                                           .key = over_keys ? i : 1234});
        ++counts[token.token / distance];
      }
      double chi_squared = 0;
      for (size_t token = 0; token < 4; ++token) {
        const double expected = probabilities[token] * kDraws;
        chi_squared += (counts[token] - expected) * (counts[token] - expected) / expected;
      }
      EXPECT_LT(chi_squared, 16.27) << "p < 0.001 for 3 degrees of freedom";
    }
  }
}

TEST(Draw, NeverTakesWhatWasDropped) {
  std::vector<float> logits(100, kBanned);
  logits[42] = -50.0F;
  EXPECT_THAT(drawn(logits, {}), ElementsAre(42));
}

TEST(Draw, TokenZeroWhereNothingIsLeft) {
  EXPECT_THAT(drawn(std::vector<float>(5, kBanned), {}), ElementsAre(0));
  EXPECT_EQ(sample(std::vector<float>(5, kBanned), {.temperature = 0.0F}).token, 0U);
}

/// The definition: filters by sorting, then the best of all scores.
TokenId draw_by_definition(const std::vector<float>& logits,
                           const inference::SamplingParams& params, uint64_t key) {
  const EffectiveSampling effective = normalize_sampling(params);
  std::vector<TokenId> order;
  for (TokenId token = 0; token < logits.size(); ++token) {
    if (logits[token] != kBanned) {
      order.push_back(token);
    }
  }
  std::ranges::sort(order, [&](TokenId a, TokenId b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  const auto p = [&](TokenId token) {
    return std::exp((double{logits[token]} - double{logits[order.front()]}) /
                    double{effective.temperature});
  };
  std::erase_if(order, [&](TokenId token) { return p(token) < double{effective.min_p}; });
  if (effective.top_k > 0 && effective.top_k < order.size()) {
    const float least = logits[order[effective.top_k - 1]];
    std::erase_if(order, [&](TokenId token) { return logits[token] < least; });
  }
  double total = 0;
  for (const TokenId token : order) {
    total += p(token);
  }
  double dropped = 0;
  while (effective.top_p < 1.0F && order.size() > 1 &&
         (dropped += p(order.back())) <= (1.0 - double{effective.top_p}) * total) {
    order.pop_back();
  }
  return *std::ranges::max_element(order, {}, [&](TokenId token) {
    return double{logits[token] / effective.temperature} - std::log(arrival(key, 0, token));
  });
}

TEST(Draw, IsWhatTheDefinitionSaysOnEveryInstructionSet) {
  Random random(17);
  const auto uniform = [&] { return static_cast<float>(random.below(1 << 20)) / (1 << 20); };
  for (int round = 0; round < 3000; ++round) {
    const auto size = static_cast<size_t>(1 + random.below(round % 50 == 0 ? 20'000 : 700));
    const float spread = std::array{0.1F, 3.0F, 12.0F, 60.0F}[random.below(4)];
    const bool steps = random.below(3) == 0;  // many ties
    std::vector<float> logits(size);
    for (float& logit : logits) {
      logit = random.below(20) == 0 ? kBanned : spread * (uniform() - 0.7F);
      logit = steps ? std::round(logit) : logit;
    }
    logits[random.below(size)] = spread;
    inference::SamplingParams params{.temperature =
                                         std::array{0.2F, 0.7F, 1.0F, 1.9F}[random.below(4)]};
    params.top_k = random.below(2) == 0 ? static_cast<int32_t>(1 + random.below(60)) : 0;
    // Shares that no sum of equal masses meets.
    params.top_p = random.below(2) == 0 ? 0.0371F + 0.96F * uniform() : 1.0F;
    params.min_p = random.below(3) == 0 ? 0.3F * uniform() : 0.0F;
    SCOPED_TRACE(testing::Message() << "round " << round);
    const auto key = static_cast<uint64_t>(round);
    const TokenId wanted = draw_by_definition(logits, params, key);
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni}) {
      if (supports(isa)) {
        std::vector<float> row = logits;
        Sampler sampler(static_cast<uint32_t>(size), kernels_for(isa));
        ASSERT_EQ(sampler.sample({.logits = row, .params = &params, .key = key}).token, wanted);
      }
    }
  }
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

  EXPECT_THAT(drawn(logits, {.top_p = 0.999F}), ElementsAre(1, 3, 4));
  EXPECT_THAT(drawn(logits, {.top_p = 0.1F}), ElementsAre(3));
  EXPECT_THAT(drawn(logits, {.top_k = 2}), ElementsAre(3, 4));
  EXPECT_THAT(drawn(logits, {.min_p = 0.3F}), ElementsAre(3, 4));
}

TEST(Filters, KeepOneOfManyThatAreBeyondAllNumbers) {
  EXPECT_THAT(drawn({kInfinity, 1.0F, kInfinity, kNan, kBanned}, {.top_p = 0.4F}), ElementsAre(0));
}

TEST(Mask, LeavesWhatItAllowsAndTheEndWhereItMayBe) {
  const inference::StopConditions stop{.eos_token_ids = {3}};
  const inference::SamplingParams params;
  const std::vector<uint64_t> allowed = {1U << 5U | 1U << 3U, 1U << 2U};
  for (const bool may_end : {false, true}) {
    std::set<TokenId> tokens;
    Sampler sampler(77);
    for (uint64_t key = 0; key < 300; ++key) {
      std::vector<float> logits(77, 1.0F);
      tokens.insert(sampler
                        .sample({.logits = logits,
                                 .params = &params,
                                 .stop = &stop,
                                 .key = key,
                                 .allowed = allowed,
                                 .may_end = may_end})
                        .token);
    }
    EXPECT_EQ(tokens, may_end ? (std::set<TokenId>{3, 5, 66}) : (std::set<TokenId>{5, 66}));
  }
}

TEST(Look, FindsWhatIsNoFiniteNumber) {
  for (const size_t size : {1U, 15U, 16U, 17U, 300U}) {
    Sampler sampler(static_cast<uint32_t>(size));
    std::vector<float> logits(size, 1.0F);
    EXPECT_TRUE(sampler.look(logits));
    for (const float bad : {kNan, kInfinity, kBanned}) {
      for (const size_t at : {size_t{0}, size - 1}) {
        std::vector<float> row = logits;
        row[at] = bad;
        EXPECT_FALSE(sampler.look(row)) << size << " " << bad;
      }
    }
  }
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
