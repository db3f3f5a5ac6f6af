// SPDX-License-Identifier: Apache-2.0
#include "stator/net/byte_budget.h"

#include <gtest/gtest.h>

#include <thread>

#include "stator/core/metrics.h"

namespace stator::net {
namespace {

static_assert(std::is_nothrow_move_constructible_v<ByteLease>);
static_assert(std::is_nothrow_move_assignable_v<ByteLease>);
static_assert(!std::is_copy_constructible_v<ByteLease>);

constexpr size_t kMiB = size_t{1} << 20;

struct ByteBudgetTest : testing::Test {
  Metrics metrics;
  ByteBudget budget{"test", 8 * kMiB, metrics};
};

TEST_F(ByteBudgetTest, ALeaseGivesBackWhatItHolds) {
  {
    ByteLease lease(budget);
    ASSERT_TRUE(lease.try_resize(3 * kMiB));
    EXPECT_EQ(budget.used(), 3 * kMiB);
    ByteLease moved = std::move(lease);
    EXPECT_EQ(budget.used(), 3 * kMiB);
    ASSERT_TRUE(moved.try_resize(kMiB));
    EXPECT_EQ(budget.used(), kMiB);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST_F(ByteBudgetTest, AssigningALeaseReleasesTheOldOne) {
  ByteLease lease(budget);
  ASSERT_TRUE(lease.try_resize(kMiB));

  lease = ByteLease(budget);

  EXPECT_EQ(budget.used(), 0);
}

TEST_F(ByteBudgetTest, WhatIsSmallIsFree) {
  ByteLease lease(budget);

  ASSERT_TRUE(lease.try_resize(ByteBudget::kFreeBytes));
  EXPECT_EQ(budget.used(), 0);
  ASSERT_TRUE(lease.try_resize(ByteBudget::kFreeBytes + 1));
  EXPECT_EQ(budget.used(), 2 * ByteBudget::kFreeBytes);
}

TEST_F(ByteBudgetTest, RefusesWhatDoesNotFitAndChangesNothing) {
  ByteLease large(budget);
  ASSERT_TRUE(large.try_resize(6 * kMiB));
  ByteLease other(budget);
  ASSERT_TRUE(other.try_resize(kMiB));

  EXPECT_FALSE(other.try_resize(2 * kMiB));
  EXPECT_EQ(other.charged(), kMiB);
  EXPECT_EQ(budget.used(), 7 * kMiB);
  large.release();
  EXPECT_TRUE(other.try_resize(2 * kMiB));
}

TEST_F(ByteBudgetTest, TheLastEighthIsForSmallLeases) {
  ByteLease large(budget);
  ASSERT_TRUE(large.try_resize(7 * kMiB));
  EXPECT_FALSE(large.try_resize(7 * kMiB + 1));

  std::vector<ByteLease> small;
  for (size_t i = 0; i < kMiB / ByteBudget::kSmallBytes; ++i) {
    ASSERT_TRUE(small.emplace_back(budget).try_resize(ByteBudget::kSmallBytes)) << i;
  }
  EXPECT_FALSE(ByteLease(budget).try_resize(ByteBudget::kSmallBytes));
  EXPECT_EQ(budget.used(), budget.limit_bytes());
}

TEST_F(ByteBudgetTest, BytesThatAreThereAlreadyMayGoBeyondTheLimit) {
  ByteLease lease(budget);

  lease.resize(9 * kMiB);

  EXPECT_EQ(budget.excess(), kMiB);
  EXPECT_TRUE(lease.try_resize(8 * kMiB)) << "shrinking always works";
  EXPECT_EQ(budget.excess(), 0);
}

TEST_F(ByteBudgetTest, TheFairShareIsTheAverageOfLargeHolders) {
  ByteLease one(budget);
  ByteLease two(budget);
  ByteLease small(budget);
  ASSERT_TRUE(one.try_resize(kMiB));
  ASSERT_TRUE(two.try_resize(3 * kMiB));
  ASSERT_TRUE(small.try_resize(ByteBudget::kSmallBytes));

  EXPECT_NEAR(static_cast<double>(budget.fair_share()), 2.0 * kMiB, ByteBudget::kSmallBytes);
  two.release();
  one.release();
  EXPECT_EQ(budget.fair_share(), ByteBudget::kSmallBytes);
}

TEST_F(ByteBudgetTest, ALeaseWithoutABudgetTakesAnything) {
  ByteLease lease;

  EXPECT_TRUE(lease.try_resize(SIZE_MAX / 2));
  EXPECT_EQ(lease.charged(), 0);
}

TEST_F(ByteBudgetTest, ManyThreadsLeaveItBalanced) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ByteLease lease(budget);
      for (size_t i = 0; i < 20'000; ++i) {
        if (!lease.try_resize(i % 7 * kMiB)) {
          budget.count_refusal();
        }
      }
    });
  }
  threads.clear();

  EXPECT_EQ(budget.used(), 0);
  EXPECT_EQ(budget.fair_share(), ByteBudget::kSmallBytes);
}

TEST_F(ByteBudgetTest, ShowsWhatIsHeldAndRefused) {
  ByteLease lease(budget);
  ASSERT_TRUE(lease.try_resize(kMiB));
  budget.count_refusal();

  const std::string text = metrics.render();
  EXPECT_NE(text.find("stator_budget_bytes{budget=\"test\"} 1048576\n"), text.npos) << text;
  EXPECT_NE(text.find("stator_budget_limit_bytes{budget=\"test\"} 8388608\n"), text.npos) << text;
  EXPECT_NE(text.find("stator_budget_refused_total{budget=\"test\"} 1\n"), text.npos) << text;
}

TEST(ChooseToShed, TakesTheLargestFirstAndNoMoreThanNeeded) {
  const TimePoint t;
  const std::vector<Holding> holdings = {{10, t}, {40, t}, {30, t}, {20, t}};

  EXPECT_EQ(choose_to_shed(holdings, 35, 0), (std::vector<size_t>{1}));
  EXPECT_EQ(choose_to_shed(holdings, 41, 0), (std::vector<size_t>{1, 2}));
  EXPECT_EQ(choose_to_shed(holdings, 1000, 0), (std::vector<size_t>{1, 2, 3, 0}));
  EXPECT_TRUE(choose_to_shed(holdings, 0, 0).empty());
}

TEST(ChooseToShed, SparesWhoeverHoldsLessThanTheShare) {
  const TimePoint t;
  const std::vector<Holding> holdings = {{10, t}, {40, t}, {30, t}};

  EXPECT_EQ(choose_to_shed(holdings, 1000, 30), (std::vector<size_t>{1, 2}));
  EXPECT_TRUE(choose_to_shed(holdings, 1000, 41).empty());
}

TEST(ChooseToShed, OfEqualOnesTheLastComesFirst) {
  const TimePoint t;
  const std::vector<Holding> holdings = {
      {40, t}, {40, t + std::chrono::seconds(2)}, {40, t + std::chrono::seconds(1)}};

  EXPECT_EQ(choose_to_shed(holdings, 50, 0), (std::vector<size_t>{1, 2}));
}

}  // namespace
}  // namespace stator::net
