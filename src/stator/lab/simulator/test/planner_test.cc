// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

TEST(ScriptedPlanner, FollowsItsScripts) {
  const auto planner = make_scripted_planner({{at(5), 2}}, {{at(0), 4}, {at(10), 1}});

  EXPECT_EQ(planner->first(), at(0));
  ScalingDecision decision = planner->decide({.now = at(0)});
  EXPECT_EQ(decision.workers, 4);
  EXPECT_FALSE(decision.prefill_workers.has_value());
  EXPECT_EQ(decision.next, at(5));
  decision = planner->decide({.now = at(5)});
  EXPECT_EQ(decision.workers, 4);
  EXPECT_EQ(decision.prefill_workers, 2);
  decision = planner->decide({.now = at(10)});
  EXPECT_EQ(decision.workers, 1);
  EXPECT_FALSE(decision.next.has_value());
}

TEST(ParseSteps, ReadsTimesAndNumbers) {
  const auto steps = parse_steps("1500ms=3,2m=0", 8);

  ASSERT_TRUE(steps.has_value()) << steps.error().message();
  ASSERT_EQ(steps->size(), 2);
  EXPECT_EQ((*steps)[0].time, at(1500));
  EXPECT_EQ((*steps)[0].number, 3);
  EXPECT_EQ((*steps)[1].time, at(120'000));
  EXPECT_TRUE(parse_steps("", 8)->empty());
}

TEST(ParseSteps, QuotesWhatIsWrong) {
  for (const std::string text :
       {"1s", "=3", "1s=", "1s=x", "1s=9", "1s=-1", "x=1", "-1s=1", "1s=1,,2s=2"}) {
    const auto steps = parse_steps(text, 8);
    ASSERT_FALSE(steps.has_value()) << text;
    EXPECT_THAT(steps.error().message(), HasSubstr("'" + text + "'"));
  }
  const auto steps = parse_steps("2s=1,1s=2", 8);
  ASSERT_FALSE(steps.has_value());
  EXPECT_THAT(steps.error().message(), HasSubstr("must grow"));
}

}  // namespace
}  // namespace stator::simulator
