// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/sglang_rules.h"

#include <gtest/gtest.h>

#include "stator/engine/core/test/scheduler_fixture.h"

namespace stator::engine {
namespace {

TEST(NewTokenRatio, FallsOverSixHundredDecodesAndNoFurther) {
  NewTokenRatio ratio{SglangConfig{}};
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
  for (int i = 0; i < 300; ++i) {
    ratio.on_decode();
  }
  EXPECT_NEAR(ratio.value(), (0.7 + 0.098) / 2, 1e-12);
  for (int i = 0; i < 1000; ++i) {
    ratio.on_decode();
  }
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7 * 0.14);
  ratio.on_idle();
  EXPECT_DOUBLE_EQ(ratio.value(), 0.7);
}

TEST(NewTokenRatio, ARetractionLearnsFromWhatWasGenerated) {
  NewTokenRatio ratio{SglangConfig{}};
  ratio.on_retraction(60, 199, 2);
  EXPECT_DOUBLE_EQ(ratio.value(), (60 + 2 * 20) / 200.0);
  ratio.on_retraction(500, 100, 1);
  EXPECT_DOUBLE_EQ(ratio.value(), 1);
}

TEST(PrefillAdmission, KeepsRoomForTheAnswersOfWhoRuns) {
  PrefillAdmission pass({}, {.room_tokens = 1000, .promised_tokens = 300.5});
  EXPECT_EQ(pass.offer(400, 300), 0U);  // 700 ≥ 699.5
  EXPECT_EQ(pass.offer(400, 299), 400U);
  EXPECT_EQ(pass.offer(1, 0), 0U);
}

TEST(PrefillAdmission, TheAnswersRoomIsClipped) {
  PrefillAdmission pass({.clip_max_new_tokens = 50}, {.room_tokens = 500});
  EXPECT_EQ(pass.offer(400, 100'000), 400U);
}

TEST(PrefillAdmission, CutsALongPromptAtAPageAndTakesNobodyElse) {
  PrefillAdmission pass({}, {.room_tokens = 100'000, .chunk_tokens = 100, .page_tokens = 16});
  EXPECT_EQ(pass.offer(30, 1), 30U);
  EXPECT_EQ(pass.offer(500, 1), 64U);  // of the 70 left, whole pages
  EXPECT_EQ(pass.offer(30, 1), 0U);
}

TEST(PrefillAdmission, ABegunPromptComesFirst) {
  PrefillAdmission pass({}, {.room_tokens = 100'000, .chunk_tokens = 100, .page_tokens = 16});
  EXPECT_EQ(pass.resume(250, 10), 100U);
  EXPECT_TRUE(pass.closed());
  PrefillAdmission last({}, {.room_tokens = 100'000, .chunk_tokens = 100, .page_tokens = 16});
  EXPECT_EQ(last.resume(50, 10), 50U);
  EXPECT_EQ(last.offer(20, 1), 20U);
}

TEST(PrefillAdmission, TheFirstPromptMayExceedTheLimitOnInput) {
  PrefillAdmission pass({.max_prefill_tokens = 64}, {.room_tokens = 100'000});
  EXPECT_EQ(pass.offer(100, 1), 100U);
  EXPECT_TRUE(pass.closed());
}

// The scheduler under these rules.

using Shape = std::vector<std::pair<uint32_t, uint32_t>>;

EngineConfig sglang_config() {
  EngineConfig config = small_config();
  config.rules = SchedulingRules::kSglang;
  return config;
}

TEST(SglangScheduler, PromptsArePassesOfTheirOwn) {
  Harness harness(sglang_config());
  ASSERT_TRUE(harness.add(request(1, 10, 4)));
  EXPECT_EQ(harness.step(), (Shape{{0, 10}}));
  ASSERT_TRUE(harness.add(request(2, 12, 4, 100)));
  EXPECT_EQ(harness.step(), (Shape{{0, 12}}));  // the first one waits
  EXPECT_EQ(harness.step(), (Shape{{10, 1}, {12, 1}}));
}

TEST(SglangScheduler, MixedChunksLetDecodesGoOn) {
  EngineConfig config = sglang_config();
  config.sglang.mixed_chunk = true;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 10, 4)));
  harness.step();
  ASSERT_TRUE(harness.add(request(2, 80, 4, 100)));
  EXPECT_EQ(harness.step(), (Shape{{0, 60}, {10, 1}}));  // of 64, one is the decode's; whole pages
  EXPECT_EQ(harness.step(), (Shape{{60, 20}, {11, 1}}));
  EXPECT_EQ(harness.step(), (Shape{{12, 1}, {80, 1}}));
}

TEST(SglangScheduler, LongestCachedPrefixGoesFirst) {
  EngineConfig config = sglang_config();
  config.sglang.longest_prefix_first = true;
  config.max_num_seqs = 1;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 40, 2)));
  harness.step();
  ASSERT_TRUE(harness.add(request(2, 40, 1, 500)));
  ASSERT_TRUE(harness.add(request(3, 20, 1)));
  harness.step();
  EXPECT_EQ(harness.step(), (Shape{{16, 4}}));  // the third, whose prefix is the first's
  EXPECT_EQ(harness.step(), (Shape{{0, 40}}));
}

TEST(SglangScheduler, RetractsWhoHasSaidLeast) {
  EngineConfig config = sglang_config();
  config.total_blocks = 128;
  config.max_model_len = 512;
  config.sglang.clip_max_new_tokens = 1;  // promises nothing, so that room runs out
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 60, 400)));
  for (int i = 0; i < 5; ++i) {
    harness.step();
  }
  ASSERT_TRUE(harness.add(request(2, 60, 400, 200)));
  harness.run_until_idle();
  EXPECT_GT(harness.scheduler.totals().preemptions, 0U);
  EXPECT_EQ(harness.answer(1).tokens, run_alone(request(1, 60, 400)).tokens);
  EXPECT_EQ(harness.answer(2).tokens, run_alone(request(2, 60, 400, 200)).tokens);
}

TEST(TrtllmScheduler, TakesInOnlyWhoIsSureToEnd) {
  EngineConfig config = small_config();
  config.rules = SchedulingRules::kTrtllm;
  config.total_blocks = 128;
  Harness harness(config);
  ASSERT_TRUE(harness.add(request(1, 20, 280)));
  ASSERT_TRUE(harness.add(request(2, 20, 280, 200)));
  harness.step();
  EXPECT_EQ(harness.scheduler.running_count(), 1U);  // 75 blocks of 128 are promised
  harness.run_until_idle();
  EXPECT_EQ(harness.scheduler.totals().preemptions, 0U);
  EXPECT_EQ(harness.answer(2).tokens.size(), 280U);
}

TEST(DraftedTokens, AreTheSameTokensSooner) {
  EngineConfig config = small_config();
  config.draft_tokens = 3;
  for (const double acceptance : {1.0, 0.6}) {
    Harness harness(config, 0, std::vector<double>(3, acceptance));
    ASSERT_TRUE(harness.add(request(1, 30, 41)));
    ASSERT_TRUE(harness.add(request(2, 30, 7, 100)));
    harness.run_until_idle();
    EXPECT_EQ(harness.answer(1).tokens, run_alone(request(1, 30, 41)).tokens);
    EXPECT_EQ(harness.answer(2).tokens, run_alone(request(2, 30, 7, 100)).tokens);
    if (acceptance == 1.0) {
      EXPECT_EQ(harness.answer(1).deltas, 1U + 10U);
    } else {
      EXPECT_LT(harness.answer(1).deltas, 35U);
    }
  }
}

}  // namespace
}  // namespace stator::engine
