// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/opinions.h"

#include <gtest/gtest.h>

#include "stator/perf/linear_timing.h"
#include "stator/planner/planner_core.h"

namespace stator::planner {
namespace {

Opinion say(std::string plugin, uint32_t priority, TargetKind kind, uint32_t workers) {
  return {.plugin = std::move(plugin),
          .priority = priority,
          .targets = {{.kind = kind, .workers = workers}}};
}

TEST(Opinions, TheSmallestPrioritySetsWithinFloorsAndCeilings) {
  const StageResult before{.decode = 3};
  EXPECT_EQ(merge(Stage::kPropose, before, {}).decode, 3);
  const Opinion set[] = {say("late", 20, TargetKind::kSet, 9),
                         say("early", 5, TargetKind::kSet, 6)};
  EXPECT_EQ(merge(Stage::kPropose, before, set).decode, 6);
  const Opinion all[] = {set[0], set[1], say("most", 1, TargetKind::kAtMost, 4),
                         say("least", 9, TargetKind::kAtLeast, 5)};
  const StageResult got = merge(Stage::kPropose, before, all);
  EXPECT_EQ(got.decode, 5);  // a floor beats a ceiling
  EXPECT_EQ(got.decided_by, "most, early, least, late");
  EXPECT_FALSE(got.prefill);
}

TEST(Opinions, TheFinalOneStandsAloneAndARejectionEndsAll) {
  Opinion last = say("last", 7, TargetKind::kSet, 2);
  last.final = true;
  std::vector<Opinion> all = {say("first", 1, TargetKind::kSet, 8), last,
                              say("least", 2, TargetKind::kAtLeast, 5)};
  EXPECT_EQ(merge(Stage::kPropose, {.decode = 3}, all).decode, 2);
  all.push_back({.plugin = "night", .rejects = true, .reason = "frozen"});
  const StageResult got = merge(Stage::kPropose, {.decode = 3}, all);
  EXPECT_EQ(got.decode, 3);
  EXPECT_EQ(got.rejected_by, "night: frozen");
}

TEST(Opinions, ConstraintsDoNotSetAndNoneOfThemIsFinal) {
  Opinion set = say("a", 1, TargetKind::kSet, 9), most = say("b", 2, TargetKind::kAtMost, 4);
  set.stage = most.stage = Stage::kConstrain;
  set.final = true;
  const Opinion all[] = {set, most};
  EXPECT_EQ(merge(Stage::kConstrain, {.decode = 6}, all).decode, 4);
  EXPECT_EQ(merge(Stage::kPropose, {.decode = 6}, all).decode, 6);
}

TEST(Opinions, PredictionsAreFilledFieldByField) {
  Forecast first{.requests = 5};
  fill(first, {.requests = 7, .input_tokens = 100});
  EXPECT_EQ(first, (Forecast{.requests = 5, .input_tokens = 100}));
}

TEST(Opinions, AreHeardByTheCoreBeforeBudgetsAndReplay) {
  const auto timing = perf::LinearTiming::create({});
  const auto make = [&] {
    return std::move(*PlannerCore::create(
        {.policy = PolicyKind::kStatic, .static_workers = 3, .max_workers = 8, .max_gpu_budget = 6},
        *timing));
  };
  Inputs inputs{.now_s = 100};
  inputs.traffic =
      Traffic{.duration_s = 10, .requests = 5, .input_tokens = 100, .output_tokens = 10};
  inputs.decode = {.ready = 2, .expected = 2};
  inputs.forecast = Forecast{.requests = 9};
  inputs.opinions = {say("wants-more", 1, TargetKind::kSet, 7)};
  const auto core = make();
  const Decision decision = core->tick(inputs);
  EXPECT_EQ(decision.workers, 6);  // the budget
  EXPECT_EQ(decision.reason, "set_by_plugin");
  EXPECT_NE(decision.text.find("wants-more"), std::string::npos);
  const auto again = make();
  const auto check = replay_journal(journal_line(inputs, decision), *again);
  ASSERT_TRUE(check);
  EXPECT_EQ(check->differences, 0) << check->first_difference;
  inputs.opinions[0] = {.plugin = "night", .rejects = true, .reason = "frozen"};
  EXPECT_FALSE(make()->tick(inputs).workers);
}

}  // namespace
}  // namespace stator::planner
