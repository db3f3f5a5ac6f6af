// SPDX-License-Identifier: Apache-2.0
#include "stator/net/timer_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "stator/core/random.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint at_ms(int ms) {
  return TimePoint(milliseconds(ms));
}

static_assert(std::is_nothrow_move_constructible_v<Timer>);
static_assert(std::is_nothrow_move_assignable_v<Timer>);

TEST(TimerQueue, RunsInOrderOfDeadlineThenCreation) {
  TimerQueue queue;
  std::vector<int> ran;
  const Timer c = queue.at(at_ms(20), [&] { ran.push_back(3); });
  const Timer a = queue.at(at_ms(10), [&] { ran.push_back(1); });
  const Timer b = queue.at(at_ms(10), [&] { ran.push_back(2); });

  EXPECT_EQ(queue.run_due(at_ms(9)), 0U);
  EXPECT_EQ(queue.run_due(at_ms(20)), 3U);

  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
  EXPECT_FALSE(a.pending());
}

TEST(TimerQueue, NeverRunsACancelledTimer) {
  TimerQueue queue;
  int ran = 0;
  {
    const Timer dropped = queue.at(at_ms(1), [&] { ++ran; });
    EXPECT_TRUE(dropped.pending());
  }
  Timer cancelled = queue.at(at_ms(1), [&] { ++ran; });
  cancelled.cancel();

  EXPECT_EQ(queue.run_due(at_ms(5)), 0U);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(queue.next_deadline(), std::nullopt);
}

TEST(TimerQueue, MoveKeepsTheTimerAndAssignmentCancelsTheOldOne) {
  TimerQueue queue;
  std::vector<int> ran;
  Timer first = queue.at(at_ms(1), [&] { ran.push_back(1); });
  Timer second = queue.at(at_ms(1), [&] { ran.push_back(2); });

  first = std::move(second);
  queue.run_due(at_ms(1));

  EXPECT_EQ(ran, std::vector<int>{2});
}

TEST(TimerQueue, ATimerMayDestroyItselfAndOthersWhenItRuns) {
  TimerQueue queue;
  Timer self;
  Timer other = queue.at(at_ms(2), [] { FAIL() << "was cancelled"; });
  int ran = 0;
  self = queue.at(at_ms(1), [&] {
    self = {};
    other.cancel();
    ++ran;
  });

  queue.run_due(at_ms(3));

  EXPECT_EQ(ran, 1);
}

TEST(TimerQueue, ATimerThatRearmsItselfAsDueWaitsForTheNextCall) {
  TimerQueue queue;
  int ran = 0;
  Timer timer;
  Task again = [&] { ++ran; };
  timer = queue.at(at_ms(1), [&] {
    ++ran;
    timer = queue.at(at_ms(1), std::move(again));
  });

  EXPECT_EQ(queue.run_due(at_ms(1)), 1U);
  EXPECT_EQ(queue.run_due(at_ms(1)), 1U);
  EXPECT_EQ(ran, 2);
}

TEST(TimerQueue, AgreesWithASortedMapUnderRandomUse) {
  Random random(7);
  TimerQueue queue;
  std::multimap<TimePoint, int> expected;
  std::map<int, Timer> timers;
  std::vector<TimePoint> fired;
  for (int i = 0; i < 2000; ++i) {
    const TimePoint deadline = at_ms(static_cast<int>(random.below(500)));
    timers[i] = queue.at(deadline, [&fired, deadline] { fired.push_back(deadline); });
    expected.emplace(deadline, i);
    if (random.below(3) == 0) {
      const auto victim =
          timers.lower_bound(static_cast<int>(random.below(static_cast<uint64_t>(i) + 1)));
      std::erase_if(expected, [&](const auto& entry) { return entry.second == victim->first; });
      timers.erase(victim);
    }
    if (!expected.empty()) {
      ASSERT_EQ(queue.next_deadline(), expected.begin()->first);
    }
  }

  queue.run_due(at_ms(500));

  std::vector<TimePoint> wanted;
  for (const auto& [deadline, id] : expected) {
    wanted.push_back(deadline);
  }
  EXPECT_EQ(fired, wanted);
}

TEST(TimerQueueDeathTest, RefusesToDieBeforeItsTimers) {
  EXPECT_DEATH(
      {
        Timer survivor;
        TimerQueue queue;
        survivor = queue.at(at_ms(1), [] {});
      },
      "T3");
}

}  // namespace
}  // namespace stator::net
