// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/lease_table.h"

#include <gtest/gtest.h>

#include <chrono>

namespace stator::runtime::detail {
namespace {

using std::chrono::seconds;

constexpr Duration kTtl = seconds(10);
const WallTime kWallStart(seconds(1'000'000));

LeaseTable::Times at(int seconds_later) {
  return {TimePoint(seconds(seconds_later)), kWallStart + seconds(seconds_later)};
}

TEST(LeaseTable, AFreshFileIsLive) {
  LeaseTable table(kTtl);
  EXPECT_TRUE(table.observe("a", kWallStart, at(0)));
  EXPECT_TRUE(table.expired(TimePoint(seconds(0))).empty());
}

TEST(LeaseTable, AFileWhoseTimeMovesStaysLive) {
  LeaseTable table(kTtl);
  for (int second = 0; second < 100; second += 3) {
    EXPECT_TRUE(table.observe("a", kWallStart + seconds(second), at(second)));
  }
}

TEST(LeaseTable, AFileWhoseTimeStandsStillExpiresAfterTheTtl) {
  LeaseTable table(kTtl);
  table.observe("a", kWallStart, at(0));
  EXPECT_TRUE(table.observe("a", kWallStart, at(10)));
  EXPECT_FALSE(table.observe("a", kWallStart, at(11)));
  const auto expired = table.expired(TimePoint(seconds(11)));
  ASSERT_EQ(expired.size(), 1U);
  EXPECT_EQ(expired[0].name, "a");
  EXPECT_EQ(expired[0].modified, kWallStart);
}

TEST(LeaseTable, AFileAlreadyOldWhenFirstSeenIsDoubtfulUntilItMoves) {
  LeaseTable table(kTtl);
  const WallTime old = kWallStart - seconds(60);
  EXPECT_FALSE(table.observe("a", old, at(0)));
  EXPECT_TRUE(table.observe("a", kWallStart + seconds(1), at(1)));
}

TEST(LeaseTable, ASteppedWallClockExpiresNobodyWhoseTimeMoves) {
  LeaseTable table(kTtl);
  table.observe("a", kWallStart, at(0));
  LeaseTable::Times stepped = at(3);
  stepped.wall_now += std::chrono::hours(1);
  EXPECT_TRUE(table.observe("a", kWallStart, stepped));
  EXPECT_TRUE(table.observe("a", kWallStart + std::chrono::hours(1), stepped));
}

TEST(LeaseTable, ForgetsFilesThatAreGone) {
  LeaseTable table(kTtl);
  table.begin_scan();
  table.observe("a", kWallStart, at(0));
  table.end_scan();
  table.begin_scan();
  table.end_scan();
  EXPECT_TRUE(table.expired(TimePoint(seconds(100))).empty());
}

}  // namespace
}  // namespace stator::runtime::detail
