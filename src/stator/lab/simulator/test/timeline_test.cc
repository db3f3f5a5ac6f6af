// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/timeline.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

TEST(Timeline, AveragesOverTime) {
  Timeline timeline;
  timeline.advance(at(4), {.running = 1, .blocks = 10});
  timeline.count_arrival();
  timeline.count_admission(100, 25);
  timeline.advance(at(10), {.running = 6, .blocks_in_use = 5, .blocks = 10, .workers = 2});
  timeline.count_end(30);
  timeline.advance(at(20), {.running = 2, .blocks = 10});

  const auto points = timeline.points();

  ASSERT_EQ(points.size(), 2);
  EXPECT_DOUBLE_EQ(points[0].running, (1 * 4 + 6 * 6) / 10.0);
  EXPECT_DOUBLE_EQ(points[0].kv_use, 5 * 6 / 100.0);
  EXPECT_DOUBLE_EQ(points[0].workers, 1.2);
  EXPECT_DOUBLE_EQ(points[0].arrivals_per_s, 100);
  EXPECT_DOUBLE_EQ(points[0].cached_ratio, 0.25);
  EXPECT_DOUBLE_EQ(points[1].begin_s, 0.01);
  EXPECT_DOUBLE_EQ(points[1].running, 2);
  EXPECT_DOUBLE_EQ(points[1].requests_per_s, 100);
  EXPECT_DOUBLE_EQ(points[1].output_tokens_per_s, 3000);
  EXPECT_DOUBLE_EQ(points[1].cached_ratio, 0.25) << "nothing was admitted: as before";
}

TEST(Timeline, AShortRestAtTheEndJoinsTheStretchBefore) {
  Timeline timeline;
  timeline.advance(at(20), {.running = 2});
  timeline.count_end(30);
  timeline.advance(at(22), {.running = 7});
  timeline.count_end(30);

  const auto points = timeline.points();

  ASSERT_EQ(points.size(), 2);
  EXPECT_DOUBLE_EQ(points[1].running, (2 * 10 + 7 * 2) / 12.0);
  EXPECT_DOUBLE_EQ(points[1].requests_per_s, 2 / 0.012);
}

TEST(Timeline, NeverHasMoreThanItsPoints) {
  Timeline timeline;
  Random random(3);
  TimePoint now{};
  uint64_t count = 0;
  for (int i = 0; i < 20'000; ++i) {
    now += Duration(random.below(1'000'000'000));
    timeline.advance(now, {.waiting = 3});
    timeline.count_arrival();
    ++count;
  }
  timeline.advance(now + std::chrono::hours(24 * 365), {.waiting = 3});

  const auto points = timeline.points();

  EXPECT_LE(points.size(), Timeline::kPointsMax);
  EXPECT_GT(points.size(), Timeline::kPointsMax / 2 - 1);
  double arrivals = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_NEAR(points[i].waiting, 3, 1e-9);
    const double end =
        i + 1 < points.size()
            ? points[i + 1].begin_s
            : std::chrono::duration<double>(now.time_since_epoch()).count() + 24 * 365 * 3600.0;
    arrivals += points[i].arrivals_per_s * (end - points[i].begin_s);
  }
  EXPECT_NEAR(arrivals, static_cast<double>(count), 1e-3);
}

}  // namespace
}  // namespace stator::simulator
