// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/load_planner.h"

#include <gtest/gtest.h>

namespace stator::simulator {
namespace {

using std::chrono::seconds;

FleetView view(int64_t second, const PoolView& decode, const PoolView& prefill = {}) {
  return {.now = TimePoint(seconds(second)), .prefill = prefill, .decode = decode};
}

std::unique_ptr<Planner> make(const LoadPlannerConfig& config = {.requests_per_worker = 10,
                                                                 .down_after = seconds(60),
                                                                 .workers_max = 8}) {
  auto planner = make_load_planner(config);
  EXPECT_TRUE(planner.has_value());
  return std::move(*planner);
}

TEST(LoadPlanner, CountsRequestsWhereverTheyWait) {
  const auto planner = make();

  EXPECT_EQ(planner->first(), TimePoint(seconds(10)));
  const auto decision =
      planner->decide(view(10, {.ready = 2, .queued = 5, .waiting = 6, .running = 20}));
  EXPECT_EQ(decision.workers, 4);
  EXPECT_FALSE(decision.prefill_workers.has_value());
  EXPECT_EQ(decision.next, TimePoint(seconds(20)));
}

TEST(LoadPlanner, WantsMoreWhenKvRunsOut) {
  const auto planner = make();

  EXPECT_EQ(planner->decide(view(10, {.ready = 4, .running = 4, .kv_use = 0.95})).workers, 5);
}

TEST(LoadPlanner, ShrinksToTheMostItNeededOfLate) {
  const auto planner = make();

  EXPECT_EQ(planner->decide(view(10, {.ready = 1, .running = 60})).workers, 6);
  EXPECT_EQ(planner->decide(view(40, {.ready = 6, .running = 30})).workers, 6);
  EXPECT_EQ(planner->decide(view(71, {.ready = 6, .running = 10})).workers, 3);
  EXPECT_EQ(planner->decide(view(80, {.ready = 3, .running = 75})).workers, 8);
  EXPECT_EQ(planner->decide(view(141, {.ready = 8, .running = 0})).workers, 1);
}

TEST(LoadPlanner, StaysWithinItsBounds) {
  const auto planner = make({.requests_per_worker = 1, .workers_min = 2, .workers_max = 3});

  EXPECT_EQ(planner->decide(view(10, {.ready = 1, .running = 0})).workers, 2);
  EXPECT_EQ(planner->decide(view(20, {.ready = 2, .running = UINT32_MAX})).workers, 3);
}

TEST(LoadPlanner, PlansPrefillWorkersByTheirOwnRequests) {
  const auto planner = make();

  const auto decision = planner->decide(
      view(10, {.ready = 1, .running = 5}, {.ready = 1, .waiting = 5, .running = 1}));

  EXPECT_EQ(decision.workers, 1);
  EXPECT_EQ(decision.prefill_workers, 3);
}

TEST(LoadPlanner, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(make_load_planner({.interval = {}}).has_value());
  EXPECT_FALSE(make_load_planner({.requests_per_worker = 0}).has_value());
  EXPECT_FALSE(make_load_planner({.kv_use = -1}).has_value());
  EXPECT_FALSE(make_load_planner({.workers_min = 9, .workers_max = 8}).has_value());
}

}  // namespace
}  // namespace stator::simulator
