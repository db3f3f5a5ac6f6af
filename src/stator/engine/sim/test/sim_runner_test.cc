// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <vector>

#include "stator/perf/polynomial_timing.h"

namespace stator::engine {
namespace {

struct Job {
  std::vector<TokenId> tokens;
  uint32_t prompt_tokens = 0;
  inference::SamplingParams sampling;
  inference::StopConditions stop;
  std::vector<BlockId> blocks = {BlockId(0), BlockId(1), BlockId(2), BlockId(3)};

  SequenceSlice slice(uint32_t start, uint32_t count) const {
    return {.tokens = tokens,
            .prompt_tokens = prompt_tokens,
            .start = start,
            .count = count,
            .blocks = blocks,
            .sample = start + count == tokens.size(),
            .sampling = &sampling,
            .stop = &stop};
  }
  SequenceSlice slice() const { return slice(0, static_cast<uint32_t>(tokens.size())); }
};

Job job(std::vector<TokenId> tokens) {
  Job out;
  out.prompt_tokens = static_cast<uint32_t>(tokens.size());
  out.tokens = std::move(tokens);
  return out;
}

SimRunnerConfig four_token_blocks() {
  SimRunnerConfig config;
  config.block_size = 4;
  config.speedup = 0;
  return config;
}

Sampled run(ModelRunner& runner, const SequenceSlice& slice) {
  Sampled out;
  runner.run(std::span(&slice, 1), std::span(&out, 1));
  return out;
}

TEST(SimRunner, TokensDependOnEveryEarlierToken) {
  const auto runner = *make_sim_runner(four_token_blocks());
  const TokenId token = run(*runner, job({1, 2, 3, 4, 5}).slice()).token;
  EXPECT_EQ(run(*runner, job({1, 2, 3, 4, 5}).slice()).token, token);
  EXPECT_NE(run(*runner, job({9, 2, 3, 4, 5}).slice()).token, token);
  EXPECT_NE(run(*runner, job({1, 2, 3, 4, 6}).slice()).token, token);
}

TEST(SimRunner, ChunksDoNotChangeTheResult) {
  const auto runner = *make_sim_runner(four_token_blocks());
  const Job whole = job({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const TokenId token = run(*runner, whole.slice()).token;
  for (uint32_t chunk = 1; chunk < 10; ++chunk) {
    TokenId last = 0;
    for (uint32_t start = 0; start < 10; start += chunk) {
      last = run(*runner, whole.slice(start, std::min(chunk, 10 - start))).token;
    }
    EXPECT_EQ(last, token) << "chunks of " << chunk;
  }
}

TEST(SimRunnerDeathTest, NoticesAWrongBlockTable) {
  const auto runner = *make_sim_runner(four_token_blocks());
  Job wrong = job({1, 2, 3, 4, 5, 6});
  run(*runner, wrong.slice(0, 4));
  wrong.blocks = {BlockId(7), BlockId(1)};
  EXPECT_DEATH(run(*runner, wrong.slice(4, 2)), "block table");
}

TEST(SimRunner, SeedsMatterOnlyWhenSampling) {
  const auto runner = *make_sim_runner(four_token_blocks());
  Job seeded = job({1, 2, 3});
  const TokenId plain = run(*runner, seeded.slice()).token;
  seeded.sampling.seed = 5;
  EXPECT_NE(run(*runner, seeded.slice()).token, plain);
  seeded.sampling.temperature = 0;
  EXPECT_EQ(run(*runner, seeded.slice()).token, plain);
}

TEST(SimRunner, AnotherSeedIsAnotherModel) {
  SimRunnerConfig other = four_token_blocks();
  other.seed = 1;
  EXPECT_NE(run(**make_sim_runner(other), job({1, 2, 3}).slice()).token,
            run(**make_sim_runner(four_token_blocks()), job({1, 2, 3}).slice()).token);
}

TEST(SimRunner, TokensStayInTheRangeAndSpreadOverIt) {
  SimRunnerConfig config = four_token_blocks();
  config.first_token = 100;
  config.last_token = 109;
  const auto runner = *make_sim_runner(config);
  std::set<TokenId> seen;
  for (TokenId i = 0; i < 200; ++i) {
    seen.insert(run(*runner, job({i}).slice()).token);
  }
  EXPECT_EQ(seen.size(), 10U);
  EXPECT_EQ(*seen.begin(), 100U);
  EXPECT_EQ(*seen.rbegin(), 109U);
}

TEST(SimRunner, NeverSaysEosUnlessAskedTo) {
  SimRunnerConfig config = four_token_blocks();
  config.last_token = 3;
  Job stopping;
  const auto silent = *make_sim_runner(config);
  config.eos_every = 4;
  const auto chatty = *make_sim_runner(config);
  int stops = 0;
  for (TokenId i = 0; i < 400; ++i) {
    stopping = job({i});
    stopping.stop.eos_token_ids = {2};
    EXPECT_NE(run(*silent, stopping.slice()).token, 2U);
    stops += run(*chatty, stopping.slice()).token == 2 ? 1 : 0;
    stopping.stop.ignore_eos = true;
    EXPECT_NE(run(*chatty, stopping.slice()).token, 2U);
  }
  EXPECT_GT(stops, 60);
  EXPECT_LT(stops, 140);
}

TEST(SimRunner, MinTokensForbidsEosAndStopTokens) {
  SimRunnerConfig config = four_token_blocks();
  config.last_token = 3;
  config.eos_every = 1;
  const auto runner = *make_sim_runner(config);
  for (TokenId i = 0; i < 50; ++i) {
    Job stopping = job({i});
    stopping.stop.eos_token_ids = {2};
    stopping.stop.stop_token_ids = {0, 1};
    stopping.stop.min_tokens = 1;
    EXPECT_EQ(run(*runner, stopping.slice()).token, 3U);
    stopping.stop.stop_token_ids = {0, 1, 3};  // nothing is left: any token of the range will do
    EXPECT_LE(run(*runner, stopping.slice()).token, 3U);
  }
}

TEST(SimRunner, LogprobsAreOrderedAndDeterministic) {
  const auto runner = *make_sim_runner(four_token_blocks());
  Job asking = job({1, 2, 3});
  EXPECT_FALSE(run(*runner, asking.slice()).logprobs.has_value());
  asking.sampling.logprobs = 3;

  const Sampled sampled = run(*runner, asking.slice());

  ASSERT_TRUE(sampled.logprobs.has_value());
  EXPECT_EQ(sampled.logprobs->sampled.token, sampled.token);
  ASSERT_EQ(sampled.logprobs->top.size(), 3U);
  std::set<TokenId> distinct;
  for (size_t i = 0; i < 3; ++i) {
    const inference::TokenLogprob& entry = sampled.logprobs->top[i];
    distinct.insert(entry.token);
    EXPECT_EQ(entry.rank, i + 1);
    EXPECT_LT(entry.logprob, i == 0 ? 0.0F : sampled.logprobs->top[i - 1].logprob);
  }
  EXPECT_EQ(distinct.size(), 3U);
  EXPECT_EQ(run(*runner, asking.slice()).logprobs->sampled.logprob,
            sampled.logprobs->sampled.logprob);
}

TEST(SimRunner, PassTimeIsTheTimingModels) {
  SimRunnerConfig config = four_token_blocks();
  config.timing = std::make_shared<perf::PolynomialTiming>(*perf::PolynomialTiming::create(
      {.prefill_ms = {10, 1, 0}, .decode_ms = {6, 0, 0}, .decode_min_ms = 0}));
  config.speedup = 2;
  config.decode_speedup = 3;
  const auto runner = *make_sim_runner(config);
  perf::PassShape shape{.decode_requests = 1};
  shape.add_prompt(0, 4);
  EXPECT_EQ(runner->pass_time(shape), std::chrono::milliseconds(7 + 1));
}

TEST(SimRunner, UnlimitedSpeedTakesNoTime) {
  for (const double speedup : {0.0, std::numeric_limits<double>::infinity()}) {
    SimRunnerConfig config = four_token_blocks();
    config.speedup = speedup;
    EXPECT_EQ((*make_sim_runner(config))->pass_time({.decode_requests = 1}), Duration::zero());
  }
}

TEST(SimRunner, RefusesABadConfig) {
  const std::function<void(SimRunnerConfig&)> cases[] = {
      [](auto& c) { c.last_token = c.vocab_size; },
      [](auto& c) { c.first_token = c.last_token + 1; },
      [](auto& c) { c.block_size = 0; },
      [](auto& c) { c.speedup = -1; },
      [](auto& c) { c.speedup = std::nan(""); },
      [](auto& c) { c.speedup = 1e-9; },
      [](auto& c) { c.decode_speedup = 0; },
  };
  for (const auto& breaks : cases) {
    SimRunnerConfig config;
    breaks(config);
    EXPECT_EQ(make_sim_runner(config).error().code(), Code::kInvalidArgument);
  }
}

// ---- scripted replies

std::string_view letter(TokenId token) {
  static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz";
  return kAlphabet.substr(token % kAlphabet.size(), 1);
}

constexpr TokenId kEos = 99;

SimRunnerConfig scripted(std::vector<ScriptedReply> replies) {
  SimRunnerConfig config = four_token_blocks();
  config.replies = std::move(replies);
  config.token_bytes = letter;
  return config;
}

/// What the runner says to `prompt` until EOS, or ten tokens.
std::vector<TokenId> answer(ModelRunner& runner, std::vector<TokenId> prompt) {
  Job conversation = job(std::move(prompt));
  conversation.stop.eos_token_ids = {kEos};
  std::vector<TokenId> said;
  while (said.size() < 10) {
    const TokenId token = run(runner, conversation.slice()).token;
    said.push_back(token);
    if (token == kEos) {
      break;
    }
    conversation.tokens.push_back(token);
  }
  return said;
}

TEST(SimRunnerReplies, AreGivenWordForWordAndThenEos) {
  const auto runner = *make_sim_runner(scripted({{"", {40, 41, 40, 42}}}));
  EXPECT_EQ(answer(*runner, {1, 2, 3}), (std::vector<TokenId>{40, 41, 40, 42, kEos}));
  EXPECT_EQ(answer(*runner, {40, 41}), (std::vector<TokenId>{40, 41, 40, 42, kEos}));
}

TEST(SimRunnerReplies, GoOnWhereAnEarlierAttemptStopped) {
  const auto runner = *make_sim_runner(scripted({{"", {40, 41, 42}}}));
  Job resumed = job({1, 2, 3, 40, 41});
  resumed.prompt_tokens = 3;
  EXPECT_EQ(run(*runner, resumed.slice()).token, 42U);
}

TEST(SimRunnerReplies, TheConditionFoundLastInThePromptDecides) {
  const auto runner = *make_sim_runner(scripted({{"", {10}}, {"bc", {20}}, {"d", {30}}}));
  EXPECT_EQ(answer(*runner, {0, 1, 2}).front(), 20U);     // abc
  EXPECT_EQ(answer(*runner, {1, 2, 3}).front(), 30U);     // bcd
  EXPECT_EQ(answer(*runner, {3, 1, 2}).front(), 20U);     // dbc
  EXPECT_EQ(answer(*runner, {1, 3, 1, 0}).front(), 30U);  // bdba
  EXPECT_EQ(answer(*runner, {24, 25}).front(), 10U);      // yz
}

TEST(SimRunnerReplies, DoNotLookForConditionsInTheOutput) {
  const auto runner = *make_sim_runner(scripted({{"", {1, 2, 4}}, {"bc", {20}}}));
  EXPECT_EQ(answer(*runner, {5}), (std::vector<TokenId>{1, 2, 4, kEos}));
}

TEST(SimRunnerReplies, WithoutAFittingOneTokensAreDrawn) {
  const auto plain = *make_sim_runner(four_token_blocks());
  const auto runner = *make_sim_runner(scripted({{"zz", {20}}}));
  EXPECT_EQ(answer(*runner, {1, 2, 3}), answer(*plain, {1, 2, 3}));
}

TEST(SimRunnerReplies, ObeyMinTokensAndIgnoreEos) {
  const auto runner = *make_sim_runner(scripted({{"", {40}}}));
  Job ended = job({1, 2, 40});
  ended.prompt_tokens = 2;
  ended.stop.eos_token_ids = {kEos};
  ended.stop.min_tokens = 2;
  EXPECT_NE(run(*runner, ended.slice()).token, kEos);
  ended.stop.min_tokens = 1;
  EXPECT_EQ(run(*runner, ended.slice()).token, kEos);
  ended.stop.ignore_eos = true;
  EXPECT_NE(run(*runner, ended.slice()).token, kEos);
}

TEST(SimRunnerReplies, AreRefusedWhenTheyCannotBeSaid) {
  SimRunnerConfig unknown = scripted({{"", {1, 32'000}}});
  EXPECT_EQ(make_sim_runner(unknown).error().code(), Code::kInvalidArgument);
  SimRunnerConfig textless = scripted({{"a", {1}}});
  textless.token_bytes = nullptr;
  EXPECT_EQ(make_sim_runner(textless).error().code(), Code::kInvalidArgument);
  const SimRunnerConfig many = scripted(std::vector<ScriptedReply>(kMaxScriptedReplies + 1));
  EXPECT_EQ(make_sim_runner(many).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::engine
