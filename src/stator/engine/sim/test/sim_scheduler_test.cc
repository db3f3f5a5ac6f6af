// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/perf/polynomial_timing.h"

namespace stator::engine {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

/// A pass takes 10 ms for a prefill, whatever its size, and 1 ms for decode.
perf::PolynomialTiming ten_and_one() {
  return *perf::PolynomialTiming::create(
      {.prefill_ms = {10, 0, 0}, .decode_ms = {1, 0, 0}, .decode_min_ms = 0});
}

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

/// `prompt` tokens whose blocks are those of `family`.
SimRequest make_request(const SimEngineConfig& config, uint32_t id, uint32_t prompt,
                        uint32_t output, uint64_t family) {
  SimRequest request{
      .id = id, .prompt_tokens = prompt, .output_tokens = output, .answer_seed = 1000 + id};
  for (uint32_t i = 0; i < prompt / config.block_size; ++i) {
    request.locals.emplace_back(mix64(family * 1'000'003 + i));
    request.sequences.push_back(i == 0
                                    ? blocks::chain(request.locals[0])
                                    : blocks::chain(request.sequences[i - 1], request.locals[i]));
  }
  return request;
}

struct SimSchedulerTest : testing::Test {
  SimEngineConfig config{
      .block_size = 10, .blocks = 100, .max_num_seqs = 8, .max_num_batched_tokens = 100};
  perf::PolynomialTiming timing = ten_and_one();
  SimOutcome outcome;
};

TEST_F(SimSchedulerTest, FirstTokenComesWithThePrefillAndTheRestAtOnce) {
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 7, 25, 5, 1));

  EXPECT_EQ(scheduler.start(at(0)), at(11));
  scheduler.finish(outcome);
  EXPECT_THAT(outcome.first, ElementsAre(7));
  EXPECT_EQ(outcome.prefill_tokens, 25);

  EXPECT_EQ(scheduler.start(at(11)), at(15));
  scheduler.finish(outcome);
  EXPECT_EQ(outcome.passes, 4);
  EXPECT_THAT(outcome.finished, ElementsAre(7));
  ASSERT_EQ(outcome.second.size(), 1);
  EXPECT_EQ(outcome.second[0].time, at(12));
  ASSERT_EQ(outcome.gaps.size(), 1);
  EXPECT_EQ(outcome.gaps[0].times, 4);
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.load().blocks_in_use, 0);
}

TEST_F(SimSchedulerTest, LongPromptsAreComputedInChunks) {
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 250, 1, 1));

  EXPECT_EQ(scheduler.start(at(0)), at(10));  // no token yet: no decode time
  scheduler.finish(outcome);
  EXPECT_THAT(outcome.first, IsEmpty());
  EXPECT_EQ(scheduler.start(at(10)), at(20));
  scheduler.finish(outcome);
  EXPECT_EQ(scheduler.start(at(20)), at(31));
  scheduler.finish(outcome);
  EXPECT_EQ(outcome.prefill_tokens, 50);
  EXPECT_THAT(outcome.finished, ElementsAre(1));
}

TEST_F(SimSchedulerTest, AnArrivalWaitsForTheEndOfThePassUnderWay) {
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 11, 9, 1));
  scheduler.start(at(0));
  scheduler.finish(outcome);
  EXPECT_EQ(scheduler.start(at(11)), at(19));

  const TimePoint arrival = at(13) + std::chrono::microseconds(500);
  scheduler.submit(make_request(config, 2, 5, 1, 2));
  EXPECT_EQ(scheduler.interrupt(arrival), at(14));
  scheduler.submit(make_request(config, 3, 5, 1, 3));
  EXPECT_EQ(scheduler.interrupt(arrival), at(14));
  scheduler.finish(outcome);
  EXPECT_EQ(outcome.passes, 3);

  EXPECT_EQ(scheduler.start(at(14)), at(25));
  scheduler.finish(outcome);
  EXPECT_THAT(outcome.first, ElementsAre(2, 3));
}

TEST_F(SimSchedulerTest, APrefixIsFoundByWhoComesLaterInTheSamePass) {
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 35, 1, 1));
  scheduler.submit(make_request(config, 2, 35, 1, 1));

  scheduler.start(at(0));
  scheduler.finish(outcome);

  ASSERT_EQ(outcome.admitted.size(), 2);
  EXPECT_EQ(outcome.admitted[0].cached_tokens, 0);
  EXPECT_EQ(outcome.admitted[1].cached_tokens, 30);
  EXPECT_EQ(outcome.prefill_tokens, 40);
}

TEST_F(SimSchedulerTest, AWholePromptInTheCacheStillComputesItsLastBlock) {
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 30, 1, 1));
  scheduler.start(at(0));
  scheduler.finish(outcome);
  scheduler.submit(make_request(config, 2, 30, 1, 1));

  scheduler.start(at(20));
  scheduler.finish(outcome);

  EXPECT_EQ(outcome.admitted[0].cached_tokens, 20);
  EXPECT_EQ(outcome.prefill_tokens, 10);
}

TEST_F(SimSchedulerTest, EventsNameParentsAndAnswerBlocks) {
  SimScheduler scheduler(config, timing);
  const SimRequest request = make_request(config, 1, 25, 16, 1);
  scheduler.submit(request);
  scheduler.start(at(0));
  scheduler.finish(outcome);

  ASSERT_EQ(outcome.events.size(), 1);
  const auto& prompt = std::get<kv::BlocksStored>(outcome.events[0]);
  EXPECT_FALSE(prompt.parent.has_value());
  ASSERT_EQ(prompt.blocks.size(), 2);
  EXPECT_EQ(prompt.blocks[1].external.value(), request.sequences[1].value());

  scheduler.start(at(11));
  scheduler.finish(outcome);  // until the third block is full
  EXPECT_EQ(outcome.passes, 5);
  ASSERT_EQ(outcome.events.size(), 1);
  const auto& answer = std::get<kv::BlocksStored>(outcome.events[0]);
  EXPECT_EQ(answer.parent->value(), request.sequences[1].value());
  EXPECT_EQ(answer.blocks[0].local, answer_block(request.answer_seed, 2));
  ASSERT_EQ(outcome.grown.size(), 1);
  EXPECT_EQ(outcome.grown[0].tokens, 6);
}

TEST_F(SimSchedulerTest, APromptIsBegunOnlyWhenAllOfItFits) {
  config.blocks = 25;
  for (const bool naive : {false, true}) {
    const auto core =
        make_sim_core(config, timing, naive ? SimPasses::kNaive : SimPasses::kCompressed);
    core->submit(make_request(config, 1, 90, 30, 1));
    const TimePoint now = core->start(at(0));
    core->finish(outcome);

    core->submit(make_request(config, 2, 180, 1, 2));  // 18 blocks; its first chunk needs 10
    core->start(now);
    core->finish(outcome);

    EXPECT_THAT(outcome.admitted, IsEmpty());
    EXPECT_EQ(core->load().waiting, 1);
  }
}

TEST_F(SimSchedulerTest, TheNewestIsPreemptedWhenBlocksRunOutAndStartsOver) {
  config.blocks = 5;
  config.prefix_caching = false;
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 20, 25, 1));
  scheduler.submit(make_request(config, 2, 20, 15, 2));
  std::vector<uint32_t> finished;
  uint32_t preemptions = 0;
  uint64_t admissions = 0;

  TimePoint now = at(0);
  while (scheduler.has_work()) {
    now = scheduler.start(now);
    scheduler.finish(outcome);
    finished.insert(finished.end(), outcome.finished.begin(), outcome.finished.end());
    preemptions += outcome.preemptions;
    admissions += outcome.admitted.size();
    EXPECT_LE(scheduler.load().blocks_in_use, 5);
  }

  EXPECT_THAT(finished, ElementsAre(1, 2));
  EXPECT_EQ(preemptions, 1);
  EXPECT_EQ(admissions, 3);
  EXPECT_EQ(scheduler.load().blocks_in_use, 0);
}

TEST_F(SimSchedulerTest, TrtllmTakesNobodyInWhoMightRunOutOfBlocks) {
  config.blocks = 9;
  config.rules = SchedulingRules::kTrtllm;
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 20, 30, 1));  // 5 blocks in the end
  scheduler.submit(make_request(config, 2, 20, 30, 2));

  TimePoint now = scheduler.start(at(0));
  scheduler.finish(outcome);
  EXPECT_EQ(outcome.admitted.size(), 1);
  EXPECT_EQ(scheduler.load().waiting, 1);

  uint32_t preemptions = 0;
  while (scheduler.has_work()) {
    now = scheduler.start(now);
    scheduler.finish(outcome);
    preemptions += outcome.preemptions;
  }
  EXPECT_EQ(preemptions, 0);
}

TEST_F(SimSchedulerTest, WhatCanNeverFitIsRejected) {
  config.max_model_len = 200;
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 200, 1, 1));
  scheduler.submit(make_request(config, 2, 150, 851, 1));
  scheduler.submit(make_request(config, 3, 10, 1, 1));

  scheduler.start(at(0));
  scheduler.finish(outcome);

  EXPECT_THAT(outcome.rejected, ElementsAre(1, 2));
  EXPECT_THAT(outcome.finished, ElementsAre(3));
}

TEST_F(SimSchedulerTest, APrefillWorkerIsDoneWithTheFirstToken) {
  config.role = SimRole::kPrefill;
  SimScheduler scheduler(config, timing);
  scheduler.submit(make_request(config, 1, 20, 1, 1));

  EXPECT_EQ(scheduler.start(at(0)), at(10));
  scheduler.finish(outcome);
  EXPECT_THAT(outcome.finished, ElementsAre(1));
}

TEST_F(SimSchedulerTest, ADecodeWorkerTakesComputedPrompts) {
  config.role = SimRole::kDecode;
  SimScheduler scheduler(config, timing);
  SimRequest request = make_request(config, 1, 20, 3, 1);
  request.prefilled = true;
  request.first_token = at(4);
  scheduler.submit(std::move(request));

  EXPECT_EQ(scheduler.start(at(5)), at(6));
  scheduler.finish(outcome);
  EXPECT_EQ(outcome.prefill_tokens, 0);
  EXPECT_THAT(outcome.first, IsEmpty());
  ASSERT_EQ(outcome.second.size(), 1);
  ASSERT_EQ(outcome.gaps.size(), 1);
  EXPECT_EQ(outcome.gaps[0].duration, milliseconds(2));
  EXPECT_EQ(scheduler.start(at(6)), at(7));
  scheduler.finish(outcome);
  EXPECT_THAT(outcome.finished, ElementsAre(1));
}

TEST(SimEngineConfig, NamesWhatIsWrong) {
  EXPECT_TRUE(validate({}).has_value());
  EXPECT_FALSE(validate({.block_size = 0}).has_value());
  EXPECT_FALSE(validate({.blocks = 0}).has_value());
  EXPECT_FALSE(validate({.speedup = 0}).has_value());
  EXPECT_FALSE(validate({.speedup = 1e-300}).has_value());
  EXPECT_FALSE(validate({.speedup = 1e-4, .decode_speedup = 1e-4}).has_value());
  const auto batch = validate({.max_num_seqs = 9, .max_num_batched_tokens = 8});
  ASSERT_FALSE(batch.has_value());
  EXPECT_THAT(batch.error().message(), testing::HasSubstr("max_num_batched_tokens (8)"));
}

}  // namespace
}  // namespace stator::engine
