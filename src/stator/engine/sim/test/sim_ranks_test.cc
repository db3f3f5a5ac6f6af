// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/perf/polynomial_timing.h"

namespace stator::engine {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

SimRequest make_request(uint32_t id, uint32_t prompt, uint32_t output) {
  SimRequest request{
      .id = id, .prompt_tokens = prompt, .output_tokens = output, .answer_seed = 1000 + id};
  for (uint32_t i = 0; i < prompt / 10; ++i) {
    request.locals.emplace_back(id * 1000 + i);
    request.sequences.push_back(i == 0
                                    ? blocks::chain(request.locals[0])
                                    : blocks::chain(request.sequences[i - 1], request.locals[i]));
  }
  return request;
}

/// A prefill takes 1 ms per ten tokens, a decode 2 ms.
struct SimRanksTest : testing::TestWithParam<SimPasses> {
  SimEngineConfig config{
      .block_size = 10, .blocks = 50, .dp_size = 2, .max_num_batched_tokens = 1000};
  perf::PolynomialTiming timing = *perf::PolynomialTiming::create(
      {.prefill_ms = {0, 0.1, 0}, .decode_ms = {2, 0, 0}, .decode_min_ms = 0});
  std::vector<SimOutcome> outcomes;

  /// Ends the passes under way.
  void finish(SimRanks& ranks) {
    outcomes.resize(ranks.size());
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      ranks.finish(rank, outcomes[rank]);
    }
  }
};

TEST_P(SimRanksTest, APassLastsAsLongAsTheSlowestRanks) {
  SimRanks ranks(config, timing, GetParam());
  ranks.submit(0, make_request(1, 10, 1));
  ranks.submit(1, make_request(2, 100, 1));

  EXPECT_EQ(ranks.start(at(0)), at(12));
  finish(ranks);

  EXPECT_THAT(outcomes[0].first, ElementsAre(1));
  EXPECT_EQ(outcomes[0].end, at(12));  // alone it would have taken 3 ms
  EXPECT_EQ(outcomes[1].end, at(12));
  EXPECT_FALSE(ranks.has_work());
}

TEST_P(SimRanksTest, ARankWithoutWorkRunsDummyPasses) {
  SimRanks ranks(config, timing, GetParam());
  ranks.submit(1, make_request(1, 10, 2));
  uint64_t dummies = 0;
  uint64_t passes = 0;

  TimePoint now = at(0);
  while (ranks.has_work()) {
    now = ranks.start(now);
    finish(ranks);
    EXPECT_EQ(outcomes[0].passes, 0);
    dummies += outcomes[0].dummy_passes;
    passes += outcomes[1].passes;
    EXPECT_EQ(outcomes[1].dummy_passes, 0);
  }

  EXPECT_EQ(now, at(5));
  EXPECT_EQ(dummies, 2);
  EXPECT_EQ(passes, 2);
}

TEST_P(SimRanksTest, ARequestOfAnIdleRankWaitsForThePresentPassOfTheOthers) {
  SimRanks ranks(config, timing, GetParam());
  ranks.submit(0, make_request(1, 10, 9));
  TimePoint now = ranks.start(at(0));
  EXPECT_EQ(now, at(3));
  finish(ranks);
  ranks.start(now);

  ranks.submit(1, make_request(2, 20, 1));
  now = ranks.interrupt(at(4));
  EXPECT_EQ(now, at(5));
  finish(ranks);
  EXPECT_THAT(outcomes[1].first, IsEmpty());
  EXPECT_EQ(outcomes[0].passes, 1);

  EXPECT_EQ(ranks.start(now), at(9));  // the prompt and a token take 4 ms, for both
  finish(ranks);
  EXPECT_THAT(outcomes[1].first, ElementsAre(2));
  ASSERT_EQ(outcomes[0].gaps.size(), 1);
  EXPECT_EQ(outcomes[0].gaps[0].duration, milliseconds(4));
}

TEST_P(SimRanksTest, EachRankHasACacheOfItsOwn) {
  SimRanks ranks(config, timing, GetParam());
  SimRequest again = make_request(1, 30, 1);
  again.id = 2;
  ranks.submit(0, make_request(1, 30, 1));
  TimePoint now = ranks.start(at(0));
  finish(ranks);

  ranks.submit(1, again);
  now = ranks.start(now);
  finish(ranks);
  EXPECT_EQ(outcomes[1].admitted.front().cached_tokens, 0);
  again.id = 3;
  ranks.submit(0, again);
  ranks.start(now);
  finish(ranks);
  EXPECT_EQ(outcomes[0].admitted.front().cached_tokens, 20);
}

TEST_P(SimRanksTest, DeathTakesTheRequestsOfAllRanks) {
  SimRanks ranks(config, timing, GetParam());
  ranks.submit(0, make_request(1, 10, 9));
  ranks.submit(0, make_request(2, 10, 9));
  TimePoint now = ranks.start(at(0));
  finish(ranks);
  ranks.start(now);
  ranks.submit(1, make_request(3, 10, 9));
  ranks.interrupt(now + milliseconds(1));

  std::vector<SimCore::Lost> lost;
  SimOutcome outcome;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    ranks.fail(rank, now + milliseconds(1), outcome, lost);
    EXPECT_EQ(outcome.passes + outcome.dummy_passes, 0);
  }

  ASSERT_EQ(lost.size(), 3);
  EXPECT_EQ(lost[0].tokens, 1);
  EXPECT_EQ(lost[2].id, 3);
  EXPECT_EQ(lost[2].tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Cores, SimRanksTest,
                         testing::Values(SimPasses::kCompressed, SimPasses::kNaive,
                                         SimPasses::kProduction));

TEST(SimRanks, ThereIsAtLeastOne) {
  const auto none = validate(SimEngineConfig{.dp_size = 0});
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message(), testing::HasSubstr("dp_size must be from 1 to 1024"));
}

}  // namespace
}  // namespace stator::engine
