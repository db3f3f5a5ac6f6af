// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "stator/engine/core/test/scheduler_fixture.h"

namespace stator::engine {
namespace {

using api::FinishReason;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(Scheduler, PrefillsThenDecodesOneTokenPerStep) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 10, 3)));

  EXPECT_THAT(bench.step(), ElementsAre(Pair(0, 10)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(10, 1)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(11, 1)));

  EXPECT_TRUE(bench.scheduler.idle());
  EXPECT_THAT(bench.step(), IsEmpty());
  EXPECT_EQ(bench.answer(1).tokens.size(), 3U);
  EXPECT_EQ(bench.answer(1).finish, FinishReason::kLength);
  EXPECT_EQ(bench.scheduler.load().kv_used_blocks, 0U);
}

TEST(Scheduler, CutsLongPromptsIntoChunksOfTheBudget) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 150, 1)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(0, 64)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(64, 64)));
  EXPECT_TRUE(bench.answers.empty());
  EXPECT_THAT(bench.step(), ElementsAre(Pair(128, 22)));
  EXPECT_EQ(bench.answer(1).tokens.size(), 1U);
}

TEST(Scheduler, DecodesComeBeforePrefillsAndPrefillsBeforeAdmissions) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 100, 4, 0)));
  bench.step();
  bench.step();
  ASSERT_TRUE(bench.add(request(2, 70, 4, 200)));
  ASSERT_TRUE(bench.add(request(3, 70, 4, 400)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(100, 1), Pair(0, 63)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(101, 1), Pair(63, 7), Pair(0, 56)));
}

TEST(Scheduler, RunsAtMostMaxNumSeqs) {
  EngineConfig config = small_config();
  config.max_num_seqs = 2;
  Bench bench(config);
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(bench.add(request(id, 4, 2, static_cast<TokenId>(id * 100))));
  }
  EXPECT_EQ(bench.step().size(), 2U);
  EXPECT_EQ(bench.scheduler.load().running, 2U);
  EXPECT_EQ(bench.scheduler.load().waiting, 1U);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers.size(), 3U);
}

TEST(Scheduler, WithoutChunkingAPromptWaitsForAWholeStep) {
  EngineConfig config = small_config();
  config.enable_chunked_prefill = false;
  config.max_model_len = 64;
  Bench bench(config);
  ASSERT_TRUE(bench.add(request(1, 40, 2, 0)));
  ASSERT_TRUE(bench.add(request(2, 40, 2, 100)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(0, 40)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(40, 1), Pair(0, 40)));
}

TEST(Scheduler, ServesACachedPrefixAndReportsItOnce) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 22, 1)));
  bench.run_until_idle();
  ASSERT_TRUE(bench.add(request(2, 22, 2)));

  EXPECT_THAT(bench.step(), ElementsAre(Pair(20, 2)));
  bench.run_until_idle();

  EXPECT_EQ(bench.answer(1).cached_tokens, 0U);
  EXPECT_EQ(bench.answer(2).cached_tokens, 20U);
  EXPECT_EQ(bench.answer(2).tokens[0], bench.answer(1).tokens[0]);
  EXPECT_EQ(bench.scheduler.load().prefix_hit_tokens, 20U);
  EXPECT_EQ(bench.scheduler.load().prefix_query_tokens, 44U);
}

TEST(Scheduler, AlwaysLeavesATokenToCompute) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 20, 1)));
  bench.run_until_idle();
  ASSERT_TRUE(bench.add(request(2, 20, 1)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(16, 4)));
}

TEST(Scheduler, SharesBlocksOfRunningRequestsAndDropsDuplicates) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 20, 4)));
  ASSERT_TRUE(bench.add(request(2, 20, 4)));
  bench.step();
  EXPECT_EQ(bench.scheduler.load().kv_used_blocks, 5U);
  bench.run_until_idle();
  EXPECT_EQ(bench.answer(1).tokens, bench.answer(2).tokens);
}

TEST(Scheduler, SaltsAndAdaptersDoNotShareBlocks) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 20, 1)));
  bench.run_until_idle();
  EngineRequest salted = request(2, 20, 1);
  salted.cache_salt = "tenant";
  ASSERT_TRUE(bench.add(std::move(salted)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(0, 20)));
}

TEST(Scheduler, PrefixCachingCanBeOff) {
  EngineConfig config = small_config();
  config.enable_prefix_caching = false;
  Bench bench(config);
  ASSERT_TRUE(bench.add(request(1, 20, 6)));
  bench.run_until_idle();
  ASSERT_TRUE(bench.add(request(2, 20, 6)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(0, 20)));
  bench.run_until_idle();
  EXPECT_EQ(bench.answer(1).tokens, bench.answer(2).tokens);
  EXPECT_TRUE(bench.scheduler.take_events().empty());
  EXPECT_EQ(bench.scheduler.load().kv_cached_blocks, 0U);
}

TEST(Scheduler, ResetForgetsThePrefixCache) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 20, 1)));
  bench.run_until_idle();
  (void)bench.scheduler.take_events();
  bench.scheduler.reset_prefix_cache();
  EXPECT_EQ(bench.scheduler.take_events(), std::vector<kv::KvEventData>{kv::AllCleared{}});
  ASSERT_TRUE(bench.add(request(2, 20, 1)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(0, 20)));
}

TEST(Scheduler, ResetDuringARunDoesNotDisturbIt) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 20, 12)));
  bench.step();
  bench.scheduler.reset_prefix_cache();
  bench.run_until_idle();
  EXPECT_EQ(bench.answer(1).tokens, run_alone(request(1, 20, 12)).tokens);
}

TEST(Scheduler, StopsAtEosOnlyWhenNotIgnored) {
  const std::vector<TokenId> plain = run_alone(request(1, 10, 8)).tokens;
  EngineRequest stopping = request(1, 10, 8);
  stopping.stop.eos_token_ids = {7};
  const Answer answer = run_alone(std::move(stopping), 1);  // the model says EOS at once
  EXPECT_THAT(answer.tokens, ElementsAre(7));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_FALSE(answer.stopped_by_token);

  EngineRequest ignoring = request(1, 10, 8);
  ignoring.stop.eos_token_ids = {7};
  ignoring.stop.ignore_eos = true;
  EXPECT_EQ(run_alone(std::move(ignoring), 1).tokens, plain);
}

TEST(Scheduler, StopsAtAStopTokenAndSaysSo) {
  const std::vector<TokenId> plain = run_alone(request(1, 10, 8)).tokens;
  EngineRequest stopping = request(1, 10, 8);
  stopping.stop.stop_token_ids = {plain[3]};
  const Answer answer = run_alone(std::move(stopping));
  EXPECT_EQ(answer.tokens, std::vector<TokenId>(plain.begin(), plain.begin() + 4));
  EXPECT_EQ(answer.finish, FinishReason::kStop);
  EXPECT_TRUE(answer.stopped_by_token);
}

TEST(Scheduler, GeneratesMinTokensFirst) {
  EngineRequest stopping = request(1, 10, 8);
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
  Bench bench(config);
  ASSERT_TRUE(bench.add(request(1, 30, 100)));
  bench.run_until_idle();
  EXPECT_EQ(bench.answer(1).tokens.size(), 2U);
  EXPECT_EQ(bench.answer(1).finish, FinishReason::kLength);
}

TEST(Scheduler, AResumedRequestContinuesWhereItWasCut) {
  const std::vector<TokenId> whole = run_alone(request(1, 10, 8)).tokens;
  EngineRequest resumed = request(1, 10, 8);
  resumed.key = key(1, 1);
  resumed.tokens.insert(resumed.tokens.end(), whole.begin(), whole.begin() + 5);
  resumed.generated = 5;
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(std::move(resumed)));

  bench.run_until_idle();

  const Answer& rest = bench.answers[{kSession, key(1, 1)}];
  EXPECT_EQ(rest.first_offset, 5U);
  EXPECT_EQ(rest.tokens, std::vector<TokenId>(whole.begin() + 5, whole.end()));
  EXPECT_EQ(rest.finish, FinishReason::kLength);
}

TEST(Scheduler, CachedTokensOfAResumedRequestCountThePromptOnly) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 10, 8)));
  bench.run_until_idle();
  EngineRequest resumed = request(2, 10, 20);
  const std::vector<TokenId>& sent = bench.answer(1).tokens;
  resumed.tokens.insert(resumed.tokens.end(), sent.begin(), sent.end());
  resumed.generated = 8;
  ASSERT_TRUE(bench.add(std::move(resumed)));
  EXPECT_THAT(bench.step(), ElementsAre(Pair(16, 2)));
  EXPECT_EQ(bench.answer(2).cached_tokens, 10U);
}

TEST(Scheduler, PreemptsTheLatestAndRepeatsNothing) {
  EngineConfig config = small_config();
  config.total_blocks = 12;
  config.max_model_len = 48;
  Bench bench(config);
  ASSERT_TRUE(bench.add(request(1, 20, 20, 0)));
  ASSERT_TRUE(bench.add(request(2, 20, 20, 100)));

  bench.run_until_idle();

  EXPECT_GT(bench.scheduler.load().preemptions, 0U);
  EXPECT_EQ(bench.answer(1).tokens, run_alone(request(1, 20, 20, 0)).tokens);
  EXPECT_EQ(bench.answer(2).tokens, run_alone(request(2, 20, 20, 100)).tokens);
  EXPECT_EQ(bench.scheduler.load().kv_used_blocks, 0U);
}

TEST(Scheduler, PriorityDecidesWhoIsAdmittedAndWhoIsPreempted) {
  EngineConfig config = small_config();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 2;
  config.total_blocks = 12;
  config.max_model_len = 48;
  Bench bench(config);
  std::vector<uint64_t> ended;
  for (uint64_t id = 1; id <= 3; ++id) {
    EngineRequest made = request(id, 20, 20, static_cast<TokenId>(id * 100));
    made.priority = static_cast<int32_t>(id);
    ASSERT_TRUE(bench.add(std::move(made)));
  }
  while (!bench.scheduler.idle()) {
    bench.step();
    for (uint64_t id = 1; id <= 3; ++id) {
      if (bench.answer(id).finish != FinishReason::kNone &&
          std::find(ended.begin(), ended.end(), id) == ended.end()) {
        ended.push_back(id);
      }
    }
  }
  EXPECT_THAT(ended, ElementsAre(3, 2, 1));
  EXPECT_GT(bench.scheduler.load().preemptions, 0U);
}

TEST(Scheduler, TheHeadOfTheQueueIsNotOvertaken) {
  EngineConfig config = small_config();
  config.total_blocks = 20;
  config.max_model_len = 80;
  Bench bench(config);
  ASSERT_TRUE(bench.add(request(1, 40, 4, 0)));
  ASSERT_TRUE(bench.add(request(2, 60, 4, 100)));  // does not fit beside the first
  ASSERT_TRUE(bench.add(request(3, 4, 4, 300)));   // would
  bench.step();
  bench.step();
  EXPECT_EQ(bench.scheduler.load().running, 1U);
  EXPECT_EQ(bench.scheduler.load().waiting, 2U);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers.size(), 3U);
}

TEST(Scheduler, CancelFreesBlocksAtOnce) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 20, 4, 0)));
  ASSERT_TRUE(bench.add(request(2, 20, 4, 100)));
  bench.step();
  EXPECT_TRUE(bench.scheduler.cancel(kSession, key(1)));
  EXPECT_EQ(bench.scheduler.load().kv_used_blocks, 5U);
  EXPECT_FALSE(bench.scheduler.cancel(kSession, key(1)));
  EXPECT_FALSE(bench.scheduler.cancel(SessionId(9), key(2)));
  bench.run_until_idle();
  EXPECT_EQ(bench.answer(1).finish, FinishReason::kNone);
  EXPECT_EQ(bench.answer(2).finish, FinishReason::kLength);
}

TEST(Scheduler, CancelWorksInTheQueueToo) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 20, 4)));
  EXPECT_TRUE(bench.scheduler.cancel(kSession, key(1)));
  EXPECT_TRUE(bench.scheduler.idle());
  EXPECT_THAT(bench.step(), IsEmpty());
}

TEST(Scheduler, GroupsOutputBySession) {
  Bench bench(small_config());
  const SessionId other(2);
  ASSERT_TRUE(bench.add(request(1, 4, 1, 0)));
  ASSERT_TRUE(bench.add(request(1, 4, 1, 100), other));
  ASSERT_TRUE(bench.add(request(2, 4, 1, 200)));
  const StepPlan& plan = bench.scheduler.plan(bench.now);
  std::vector<Sampled> sampled(plan.slices.size());
  sampled[2].logprobs = api::TokenLogprobs{};

  const std::vector<SessionOutput>& outputs = bench.scheduler.commit(sampled);

  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0].session, kSession);
  EXPECT_EQ(outputs[0].output.deltas.size(), 2U);
  EXPECT_EQ(outputs[0].output.logprobs.size(), 2U);
  EXPECT_EQ(outputs[1].session, other);
  EXPECT_EQ(outputs[1].output.deltas.size(), 1U);
  EXPECT_TRUE(outputs[1].output.logprobs.empty());
}

TEST(Scheduler, CancelSessionLeavesOthersAlone) {
  Bench bench(small_config());
  const SessionId other(2);
  ASSERT_TRUE(bench.add(request(1, 4, 2, 0)));
  ASSERT_TRUE(bench.add(request(1, 4, 2, 100), other));
  bench.scheduler.cancel_session(kSession);
  bench.run_until_idle();
  EXPECT_EQ(bench.answer(1).deltas, 0U);
  EXPECT_EQ(bench.answer(1, other).tokens.size(), 2U);
}

TEST(Scheduler, FailAllEndsEverybody) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 4, 9, 0)));
  bench.step();
  ASSERT_TRUE(bench.add(request(2, 4, 9, 100)));
  for (auto& [session, output] : bench.scheduler.fail_all(Error(Code::kDraining, "bye"))) {
    bench.collect(session, output);
  }
  EXPECT_THAT(bench.answer(1).failures, ElementsAre(Code::kDraining));
  EXPECT_THAT(bench.answer(2).failures, ElementsAre(Code::kDraining));
  EXPECT_TRUE(bench.scheduler.idle());
  EXPECT_EQ(bench.scheduler.load().kv_used_blocks, 0U);
}

TEST(Scheduler, TheQueueIsBounded) {
  EngineConfig config = small_config();
  config.waiting_max = 2;
  Bench bench(config);
  ASSERT_TRUE(bench.add(request(1, 4, 1)));
  ASSERT_TRUE(bench.add(request(2, 4, 1)));
  EXPECT_EQ(bench.add(request(3, 4, 1)).error().code(), Code::kOverloaded);
  bench.step();
  EXPECT_TRUE(bench.add(request(3, 4, 1)));
}

TEST(Scheduler, ALiveKeyIsUnique) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 4, 1)));
  EXPECT_EQ(bench.add(request(1, 4, 1)).error().code(), Code::kAlreadyExists);
  EXPECT_TRUE(bench.add(request(1, 4, 1), SessionId(2)));
  bench.run_until_idle();
  EXPECT_TRUE(bench.add(request(1, 4, 1)));
}

TEST(Scheduler, CountsQueueWait) {
  EngineConfig config = small_config();
  config.max_num_seqs = 1;
  Bench bench(config);
  ASSERT_TRUE(bench.add(request(1, 4, 5, 0)));
  ASSERT_TRUE(bench.add(request(2, 4, 5, 100)));
  bench.run_until_idle();
  EXPECT_EQ(bench.scheduler.totals().queue_wait, std::chrono::milliseconds(5));
  EXPECT_EQ(bench.scheduler.totals().admitted_requests, 2U);
  EXPECT_EQ(bench.scheduler.totals().generated_tokens, 10U);
  EXPECT_EQ(bench.scheduler.totals().finished_requests, 2U);
}

TEST(SchedulerDeathTest, NothingChangesBetweenPlanAndCommit) {
  Bench bench(small_config());
  ASSERT_TRUE(bench.add(request(1, 4, 1)));
  (void)bench.scheduler.plan(bench.now);
  EXPECT_DEATH((void)bench.scheduler.cancel(kSession, key(1)), "S7");
}

}  // namespace
}  // namespace stator::engine
