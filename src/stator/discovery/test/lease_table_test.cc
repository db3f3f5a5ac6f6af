// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/detail/lease_table.h"

#include <gtest/gtest.h>

#include <chrono>

namespace stator::discovery {
namespace {

using std::chrono::seconds;

constexpr Duration kTtl = seconds(10);
const WallTime kWallStart(seconds(1'000'000));

detail::LeaseTable::Times at(int seconds_later) {
  return {TimePoint(seconds(seconds_later)), kWallStart + seconds(seconds_later)};
}

TEST(LeaseTable, AFreshFileIsLive) {
  detail::LeaseTable table(kTtl);
  EXPECT_TRUE(table.observe("a", kWallStart, at(0)));
  EXPECT_TRUE(table.expired(TimePoint(seconds(0))).empty());
}

TEST(LeaseTable, AFileWhoseTimeMovesStaysLive) {
  detail::LeaseTable table(kTtl);
  for (int second = 0; second < 100; second += 3) {
    EXPECT_TRUE(table.observe("a", kWallStart + seconds(second), at(second)));
  }
}

TEST(LeaseTable, AFileWhoseTimeStandsStillExpiresAfterTheTtl) {
  detail::LeaseTable table(kTtl);
  table.observe("a", kWallStart, at(0));
  EXPECT_TRUE(table.observe("a", kWallStart, at(10)));
  EXPECT_FALSE(table.observe("a", kWallStart, at(11)));
  const auto expired = table.expired(TimePoint(seconds(11)));
  ASSERT_EQ(expired.size(), 1U);
  EXPECT_EQ(expired[0].name, "a");
  EXPECT_EQ(expired[0].modified, kWallStart);
}

TEST(LeaseTable, AFileAlreadyOldWhenFirstSeenIsDoubtfulUntilItMoves) {
  detail::LeaseTable table(kTtl);
  const WallTime old = kWallStart - seconds(60);
  EXPECT_FALSE(table.observe("a", old, at(0)));
  EXPECT_TRUE(table.observe("a", kWallStart + seconds(1), at(1)));
}

TEST(LeaseTable, ASteppedWallClockExpiresNobodyWhoseTimeMoves) {
  detail::LeaseTable table(kTtl);
  table.observe("a", kWallStart, at(0));
  detail::LeaseTable::Times stepped = at(3);
  stepped.wall_now += std::chrono::hours(1);
  EXPECT_TRUE(table.observe("a", kWallStart, stepped));
  EXPECT_TRUE(table.observe("a", kWallStart + std::chrono::hours(1), stepped));
}

TEST(LeaseTable, ForgetsFilesThatAreGone) {
  detail::LeaseTable table(kTtl);
  table.begin_scan();
  table.observe("a", kWallStart, at(0));
  table.end_scan();
  table.begin_scan();
  table.end_scan();
  EXPECT_TRUE(table.expired(TimePoint(seconds(100))).empty());
}

}  // namespace
}  // namespace stator::discovery
