// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "stator/engine/core/test/scheduler_fixture.h"

namespace stator::engine {
namespace {

using inference::FinishReason;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(Scheduler, PrefillsThenDecodesOneTokenPerStep) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 10, 3)));

  EXPECT_THAT(harness.step(), ElementsAre(Pair(0, 10)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(10, 1)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(11, 1)));

  EXPECT_TRUE(harness.scheduler.idle());
  EXPECT_THAT(harness.step(), IsEmpty());
  EXPECT_EQ(harness.answer(1).tokens.size(), 3U);
  EXPECT_EQ(harness.answer(1).finish, FinishReason::kLength);
  EXPECT_EQ(harness.scheduler.load().kv_used_blocks, 0U);
}

TEST(Scheduler, CutsLongPromptsIntoChunksOfTheBudget) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 150, 1)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(0, 64)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(64, 64)));
  EXPECT_TRUE(harness.answers.empty());
  EXPECT_THAT(harness.step(), ElementsAre(Pair(128, 22)));
  EXPECT_EQ(harness.answer(1).tokens.size(), 1U);
}

TEST(Scheduler, DecodesComeBeforePrefillsAndPrefillsBeforeAdmissions) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 100, 4, 0)));
  harness.step();
  harness.step();
  ASSERT_TRUE(harness.add(request(2, 70, 4, 200)));
  ASSERT_TRUE(harness.add(request(3, 70, 4, 400)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(100, 1), Pair(0, 63)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(101, 1), Pair(63, 7), Pair(0, 56)));
}

TEST(Scheduler, ALongPromptTakesItsBudgetOfEachStepInWhichOthersDecode) {
  EngineConfig config = small_config();
  config.prefill_budget = 10;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 4, 30)));
  harness.step();
  ASSERT_TRUE(harness.add(request(2, 100, 4, 500)));
  ASSERT_TRUE(harness.add(request(3, 100, 4, 300)));
  for (int step = 0; step < 5; ++step) {
    const StepPlan& plan = harness.scheduler.plan(TimePoint{});
    ASSERT_EQ(plan.slices.size(), 2U) << "who decodes, and one prompt";
    EXPECT_EQ(plan.slices[0].count, 1U);
    EXPECT_EQ(plan.slices[1].count, 10U);
    std::vector<Sampled> sampled(plan.slices.size());
    sampled[0].token = 7;
    harness.scheduler.commit(sampled);
  }
  ASSERT_TRUE(harness.scheduler.cancel(kSession, key(1)));
  EXPECT_EQ(harness.scheduler.plan(TimePoint{}).tokens, 64U)
      << "nobody waits: as many as there are";
}

/// Preemption by swapping: a victim's full blocks move to host memory instead of being lost.
TEST(Scheduler, WhoWasPreemptedComesBackFromHostMemory) {
  EngineConfig config = small_config();
  config.total_blocks = 24;
  config.max_model_len = 96;
  config.host_blocks = 64;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 40, 40)));
  ASSERT_TRUE(harness.add(request(2, 40, 40, 500)));
  harness.run_until_idle();
  EXPECT_GT(harness.scheduler.load().preemptions, 0U);
  EXPECT_GT(harness.scheduler.host_tier().loaded_total(), 0U);
  EXPECT_EQ(harness.answer(1).tokens.size(), 40U);
  EXPECT_EQ(harness.answer(2).tokens.size(), 40U);
}

TEST(Scheduler, RunsAtMostMaxNumSeqs) {
  EngineConfig config = small_config();
  config.max_num_seqs = 2;
  Harness harness(config);
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(harness.add(request(id, 4, 2, static_cast<TokenId>(id * 100))));
  }
  EXPECT_EQ(harness.step().size(), 2U);
  EXPECT_EQ(harness.scheduler.load().running, 2U);
  EXPECT_EQ(harness.scheduler.load().waiting, 1U);
  harness.run_until_idle();
  EXPECT_EQ(harness.answers.size(), 3U);
}

TEST(Scheduler, WithoutChunkingAPromptWaitsForAWholeStep) {
  EngineConfig config = small_config();
  config.enable_chunked_prefill = false;
  config.max_model_len = 64;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 40, 2, 0)));
  ASSERT_TRUE(harness.add(request(2, 40, 2, 100)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(0, 40)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(40, 1), Pair(0, 40)));
}

TEST(Scheduler, ServesACachedPrefixAndReportsItOnce) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 22, 1)));
  harness.run_until_idle();
  ASSERT_TRUE(harness.add(request(2, 22, 2)));

  EXPECT_THAT(harness.step(), ElementsAre(Pair(20, 2)));
  harness.run_until_idle();

  EXPECT_EQ(harness.answer(1).cached_tokens, 0U);
  EXPECT_EQ(harness.answer(2).cached_tokens, 20U);
  EXPECT_EQ(harness.answer(2).tokens[0], harness.answer(1).tokens[0]);
  EXPECT_EQ(harness.scheduler.load().prefix_hit_tokens, 20U);
  EXPECT_EQ(harness.scheduler.load().prefix_query_tokens, 44U);
}

TEST(Scheduler, AlwaysLeavesATokenToCompute) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 20, 1)));
  harness.run_until_idle();
  ASSERT_TRUE(harness.add(request(2, 20, 1)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(16, 4)));
}

TEST(Scheduler, SharesBlocksOfRunningRequestsAndDropsDuplicates) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 20, 4)));
  ASSERT_TRUE(harness.add(request(2, 20, 4)));
  harness.step();
  EXPECT_EQ(harness.scheduler.load().kv_used_blocks, 5U);
  harness.run_until_idle();
  EXPECT_EQ(harness.answer(1).tokens, harness.answer(2).tokens);
}

TEST(Scheduler, WhatWasEvictedComesBackFromHostMemory) {
  EngineConfig config = small_config();
  config.total_blocks = 16;
  config.max_model_len = 64;
  config.host_blocks = 16;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 22, 1)));
  harness.run_until_idle();
  ASSERT_TRUE(harness.add(request(2, 60, 1, 500)));  // takes all blocks but one
  harness.run_until_idle();
  EXPECT_EQ(harness.scheduler.host_tier().stored_blocks(), 4U);
  ASSERT_TRUE(harness.add(request(3, 22, 2)));

  EXPECT_THAT(harness.step(), ElementsAre(Pair(20, 2)));
  harness.run_until_idle();

  EXPECT_EQ(harness.scheduler.host_tier().loaded_total(), 4U);
  EXPECT_EQ(harness.answer(3).cached_tokens, 20U);
  EXPECT_EQ(harness.answer(3).tokens[0], harness.answer(1).tokens[0]);
}

TEST(Scheduler, SaltsAndAdaptersDoNotShareBlocks) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 20, 1)));
  harness.run_until_idle();
  inference::EngineRequest salted = request(2, 20, 1);
  salted.cache_salt = "tenant";
  ASSERT_TRUE(harness.add(std::move(salted)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(0, 20)));
}

TEST(Scheduler, PrefixCachingCanBeOff) {
  EngineConfig config = small_config();
  config.enable_prefix_caching = false;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 20, 6)));
  harness.run_until_idle();
  ASSERT_TRUE(harness.add(request(2, 20, 6)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(0, 20)));
  harness.run_until_idle();
  EXPECT_EQ(harness.answer(1).tokens, harness.answer(2).tokens);
  EXPECT_TRUE(harness.scheduler.take_events().empty());
  EXPECT_EQ(harness.scheduler.load().kv_cached_blocks, 0U);
}

TEST(Scheduler, ResetForgetsThePrefixCache) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 20, 1)));
  harness.run_until_idle();
  (void)harness.scheduler.take_events();
  harness.scheduler.reset_prefix_cache();
  EXPECT_EQ(harness.scheduler.take_events(), std::vector<kv::KvEventData>{kv::AllCleared{}});
  ASSERT_TRUE(harness.add(request(2, 20, 1)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(0, 20)));
}

TEST(Scheduler, ResetDuringARunDoesNotDisturbIt) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 20, 12)));
  harness.step();
  harness.scheduler.reset_prefix_cache();
  harness.run_until_idle();
  EXPECT_EQ(harness.answer(1).tokens, run_alone(request(1, 20, 12)).tokens);
}

TEST(Scheduler, StopsAtEosOnlyWhenNotIgnored) {
  const std::vector<TokenId> plain = run_alone(request(1, 10, 8)).tokens;
  inference::EngineRequest stopping = request(1, 10, 8);
  stopping.stop.eos_token_ids = {7};
  const Answer answer = run_alone(std::move(stopping), 1);  // the model says EOS at once
  EXPECT_THAT(answer.tokens, ElementsAre(7));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_FALSE(answer.stopped_by_token);

  inference::EngineRequest ignoring = request(1, 10, 8);
  ignoring.stop.eos_token_ids = {7};
  ignoring.stop.ignore_eos = true;
  EXPECT_EQ(run_alone(std::move(ignoring), 1).tokens, plain);
}

TEST(Scheduler, StopsAtAStopTokenAndSaysSo) {
  const std::vector<TokenId> plain = run_alone(request(1, 10, 8)).tokens;
  inference::EngineRequest stopping = request(1, 10, 8);
  stopping.stop.stop_token_ids = {plain[3]};
  const Answer answer = run_alone(std::move(stopping));
  EXPECT_EQ(answer.tokens, std::vector<TokenId>(plain.begin(), plain.begin() + 4));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_TRUE(answer.stopped_by_token);
}

TEST(Scheduler, GeneratesMinTokensFirst) {
  inference::EngineRequest stopping = request(1, 10, 8);
  stopping.stop.eos_token_ids = {7};
  stopping.stop.min_tokens = 3;
  const Answer answer = run_alone(std::move(stopping), 1);
  EXPECT_EQ(answer.tokens.size(), 4U);
  EXPECT_EQ(answer.tokens.back(), 7U);
  EXPECT_EQ(answer.finish, FinishReason::kStop);
}

TEST(Scheduler, StopsAtTheContextLimit) {
  EngineConfig config = small_config();
  config.max_model_len = 32;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 30, 100)));
  harness.run_until_idle();
  EXPECT_EQ(harness.answer(1).tokens.size(), 2U);
  EXPECT_EQ(harness.answer(1).finish, FinishReason::kLength);
}

TEST(Scheduler, AResumedRequestContinuesWhereItWasCut) {
  const std::vector<TokenId> whole = run_alone(request(1, 10, 8)).tokens;
  inference::EngineRequest resumed = request(1, 10, 8);
  resumed.key = key(1, 1);
  resumed.tokens.insert(resumed.tokens.end(), whole.begin(), whole.begin() + 5);
  resumed.generated = 5;
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(std::move(resumed)));

  harness.run_until_idle();

  const Answer& rest = harness.answers[{kSession, key(1, 1)}];
  EXPECT_EQ(rest.first_offset, 5U);
  EXPECT_EQ(rest.tokens, std::vector<TokenId>(whole.begin() + 5, whole.end()));
  EXPECT_EQ(rest.finish, FinishReason::kLength);
}

TEST(Scheduler, CachedTokensOfAResumedRequestCountThePromptOnly) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 10, 8)));
  harness.run_until_idle();
  inference::EngineRequest resumed = request(2, 10, 20);
  const std::vector<TokenId>& sent = harness.answer(1).tokens;
  resumed.tokens.insert(resumed.tokens.end(), sent.begin(), sent.end());
  resumed.generated = 8;
  ASSERT_TRUE(harness.add(std::move(resumed)));
  EXPECT_THAT(harness.step(), ElementsAre(Pair(16, 2)));
  EXPECT_EQ(harness.answer(2).cached_tokens, 10U);
}

TEST(Scheduler, PreemptsTheLatestAndRepeatsNothing) {
  EngineConfig config = small_config();
  config.total_blocks = 12;
  config.max_model_len = 48;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 20, 20, 0)));
  ASSERT_TRUE(harness.add(request(2, 20, 20, 100)));

  harness.run_until_idle();

  EXPECT_GT(harness.scheduler.load().preemptions, 0U);
  EXPECT_EQ(harness.answer(1).tokens, run_alone(request(1, 20, 20, 0)).tokens);
  EXPECT_EQ(harness.answer(2).tokens, run_alone(request(2, 20, 20, 100)).tokens);
  EXPECT_EQ(harness.scheduler.load().kv_used_blocks, 0U);
}

TEST(Scheduler, PriorityDecidesWhoIsAdmittedAndWhoIsPreempted) {
  EngineConfig config = small_config();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 2;
  config.total_blocks = 12;
  config.max_model_len = 48;
  Harness harness(config);
  std::vector<uint64_t> ended;
  for (uint64_t id = 1; id <= 3; ++id) {
    inference::EngineRequest made = request(id, 20, 20, static_cast<TokenId>(id * 100));
    made.priority = static_cast<int32_t>(id);
    ASSERT_TRUE(harness.add(std::move(made)));
  }
  while (!harness.scheduler.idle()) {
    harness.step();
    for (uint64_t id = 1; id <= 3; ++id) {
      if (harness.answer(id).finish != FinishReason::kNone &&
          std::find(ended.begin(), ended.end(), id) == ended.end()) {
        ended.push_back(id);
      }
    }
  }
  EXPECT_THAT(ended, ElementsAre(3, 2, 1));
  EXPECT_GT(harness.scheduler.load().preemptions, 0U);
}

TEST(Scheduler, TheHeadOfTheQueueIsNotOvertaken) {
  EngineConfig config = small_config();
  config.total_blocks = 20;
  config.max_model_len = 80;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 40, 4, 0)));
  ASSERT_TRUE(harness.add(request(2, 60, 4, 100)));  // does not fit beside the first
  ASSERT_TRUE(harness.add(request(3, 4, 4, 300)));   // would
  harness.step();
  harness.step();
  EXPECT_EQ(harness.scheduler.load().running, 1U);
  EXPECT_EQ(harness.scheduler.load().waiting, 2U);
  harness.run_until_idle();
  EXPECT_EQ(harness.answers.size(), 3U);
}

TEST(Scheduler, CancelFreesBlocksAtOnce) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 20, 4, 0)));
  ASSERT_TRUE(harness.add(request(2, 20, 4, 100)));
  harness.step();
  EXPECT_TRUE(harness.scheduler.cancel(kSession, key(1)));
  EXPECT_EQ(harness.scheduler.load().kv_used_blocks, 5U);
  EXPECT_FALSE(harness.scheduler.cancel(kSession, key(1)));
  EXPECT_FALSE(harness.scheduler.cancel(SessionId(9), key(2)));
  harness.run_until_idle();
  EXPECT_EQ(harness.answer(1).finish, FinishReason::kNone);
  EXPECT_EQ(harness.answer(2).finish, FinishReason::kLength);
}

TEST(Scheduler, CancelWorksInTheQueueToo) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 20, 4)));
  EXPECT_TRUE(harness.scheduler.cancel(kSession, key(1)));
  EXPECT_TRUE(harness.scheduler.idle());
  EXPECT_THAT(harness.step(), IsEmpty());
}

TEST(Scheduler, GroupsOutputBySession) {
  Harness harness(small_config());
  const SessionId other(2);
  ASSERT_TRUE(harness.add(request(1, 4, 1, 0)));
  ASSERT_TRUE(harness.add(request(1, 4, 1, 100), other));
  ASSERT_TRUE(harness.add(request(2, 4, 1, 200)));
  const StepPlan& plan = harness.scheduler.plan(harness.now);
  std::vector<Sampled> sampled(plan.slices.size());
  sampled[2].logprobs = inference::TokenLogprobs{};

  const std::vector<SessionOutput>& outputs = harness.scheduler.commit(sampled);

  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0].session, kSession);
  EXPECT_EQ(outputs[0].output.deltas.size(), 2U);
  EXPECT_EQ(outputs[0].output.logprobs.size(), 2U);
  EXPECT_EQ(outputs[1].session, other);
  EXPECT_EQ(outputs[1].output.deltas.size(), 1U);
  EXPECT_TRUE(outputs[1].output.logprobs.empty());
}

TEST(Scheduler, CancelSessionLeavesOthersAlone) {
  Harness harness(small_config());
  const SessionId other(2);
  ASSERT_TRUE(harness.add(request(1, 4, 2, 0)));
  ASSERT_TRUE(harness.add(request(1, 4, 2, 100), other));
  harness.scheduler.cancel_session(kSession);
  harness.run_until_idle();
  EXPECT_EQ(harness.answer(1).deltas, 0U);
  EXPECT_EQ(harness.answer(1, other).tokens.size(), 2U);
}

TEST(Scheduler, FailAllEndsEverybody) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 4, 9, 0)));
  harness.step();
  ASSERT_TRUE(harness.add(request(2, 4, 9, 100)));
  for (auto& [session, output] : harness.scheduler.fail_all(Error(Code::kDraining, "bye"))) {
    harness.collect(session, output);
  }
  EXPECT_THAT(harness.answer(1).failures, ElementsAre(Code::kDraining));
  EXPECT_THAT(harness.answer(2).failures, ElementsAre(Code::kDraining));
  EXPECT_TRUE(harness.scheduler.idle());
  EXPECT_EQ(harness.scheduler.load().kv_used_blocks, 0U);
}

TEST(Scheduler, TheQueueIsBounded) {
  EngineConfig config = small_config();
  config.waiting_max = 2;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 4, 1)));
  ASSERT_TRUE(harness.add(request(2, 4, 1)));
  EXPECT_EQ(harness.add(request(3, 4, 1)).error().code(), Code::kOverloaded);
  harness.step();
  EXPECT_TRUE(harness.add(request(3, 4, 1)));
}

TEST(Scheduler, ALiveKeyIsUnique) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 4, 1)));
  EXPECT_EQ(harness.add(request(1, 4, 1)).error().code(), Code::kAlreadyExists);
  EXPECT_TRUE(harness.add(request(1, 4, 1), SessionId(2)));
  harness.run_until_idle();
  EXPECT_TRUE(harness.add(request(1, 4, 1)));
}

TEST(Scheduler, CountsQueueWait) {
  EngineConfig config = small_config();
  config.max_num_seqs = 1;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 4, 5, 0)));
  ASSERT_TRUE(harness.add(request(2, 4, 5, 100)));
  harness.run_until_idle();
  EXPECT_EQ(harness.scheduler.totals().queue_wait, std::chrono::milliseconds(5));
  EXPECT_EQ(harness.scheduler.totals().admitted_requests, 2U);
  EXPECT_EQ(harness.scheduler.totals().generated_tokens, 10U);
  EXPECT_EQ(harness.scheduler.totals().finished_requests, 2U);
}

TEST(SchedulerDeathTest, NothingChangesBetweenPlanAndCommit) {
  Harness harness(small_config());
  ASSERT_TRUE(harness.add(request(1, 4, 1)));
  (void)harness.scheduler.plan(harness.now);
  EXPECT_DEATH((void)harness.scheduler.cancel(kSession, key(1)), "S7");
}

TEST(Scheduler, TellsWhatAPassComputesAndWhatWaits) {
  EngineConfig config = small_config();
  config.max_num_seqs = 2;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 22, 4)));
  harness.run_until_idle();
  ASSERT_TRUE(harness.add(request(2, 30, 8)));       // 20 of its tokens are cached
  ASSERT_TRUE(harness.add(request(3, 70, 8, 100)));  // its last 16 go into the second pass
  ASSERT_TRUE(harness.add(request(4, 20, 8, 200)));
  ASSERT_TRUE(harness.add(request(5, 40, 8, 300)));

  const auto look = [&] {
    const StepPlan& plan = harness.scheduler.plan(harness.now);
    const std::pair seen(harness.scheduler.planned_work(), harness.scheduler.queue());
    std::vector<Sampled> sampled(plan.slices.size());
    harness.scheduler.commit(sampled);
    return seen;
  };
  const PassQueue others{
      .prefill_requests = 2, .prefill_tokens = 60, .prefill_length_var = 10 * 10};
  EXPECT_EQ(look(), (std::pair(PassWork{.prefill_requests = 2,
                                        .prefill_tokens = 64,
                                        .prefill_length_var = 20 * 20,
                                        .prefill_kv_tokens = 20},
                               others)));
  EXPECT_EQ(look(), (std::pair(PassWork{.prefill_requests = 1,
                                        .prefill_tokens = 16,
                                        .prefill_kv_tokens = 54,
                                        .decode_requests = 1,
                                        .decode_kv_tokens = 31},
                               others)));
  EXPECT_EQ(
      look(),
      (std::pair(
          PassWork{.decode_requests = 2, .decode_kv_tokens = 32 + 71, .decode_kv_var = 19.5 * 19.5},
          others)));
}

TEST(Scheduler, WhoWasPreemptedWaitsAsADecode) {
  EngineConfig config = small_config();
  config.total_blocks = 16;
  config.max_model_len = 64;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 28, 32, 0)));
  ASSERT_TRUE(harness.add(request(2, 28, 32, 100)));
  while (harness.scheduler.load().preemptions == 0) {
    ASSERT_FALSE(harness.scheduler.idle());
    harness.step();
  }
  const PassQueue queue = harness.scheduler.queue();
  EXPECT_EQ(queue.prefill_requests, 0U);
  EXPECT_EQ(queue.decode_requests, 1U);
  EXPECT_GT(queue.decode_kv_tokens, 28U);
  EXPECT_EQ(queue.decode_kv_var, 0);
}

TEST(Scheduler, APromptForAnotherWorkerIsComputedInSeveralPasses) {
  EngineConfig config = small_config();
  config.max_num_batched_tokens = 512;
  config.handoff_passes = 5;
  config.takes_phases = true;
  const auto ask = [](uint64_t id, uint32_t length, inference::Phase phase) {
    inference::EngineRequest out = request(id, length, 1);
    out.phase = phase;
    return out;
  };
  Harness harness(config);
  ASSERT_TRUE(harness.add(ask(1, 500, inference::Phase::kPrefill)));
  std::vector<uint32_t> passes;
  while (!harness.scheduler.idle()) {
    for (const auto& [start, count] : harness.step()) {
      passes.push_back(count);
    }
  }
  EXPECT_EQ(passes, (std::vector<uint32_t>{104, 104, 104, 104, 84}));
  // One that is short, or for nobody, as ever.
  ASSERT_TRUE(harness.add(ask(2, 60, inference::Phase::kPrefill)));
  EXPECT_EQ(harness.step().size(), 1U);
  EXPECT_TRUE(harness.scheduler.idle());
  harness.scheduler.reset_prefix_cache();
  ASSERT_TRUE(harness.add(ask(3, 500, inference::Phase::kWhole)));
  harness.step();
  EXPECT_TRUE(harness.scheduler.idle());
}

}  // namespace
}  // namespace stator::engine
