// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/power.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::planner {
namespace {

constexpr PowerBudget kBudget{.limit_watts = 8000, .prefill_watts = 1000, .decode_watts = 1000};

TEST(Power, WhatFitsStays) {
  const PowerClamp out = clamp_power({2, 2}, {4, 4}, {1, 1}, kBudget);

  EXPECT_EQ(out.size, (PairSize{4, 4}));
  EXPECT_FALSE(out.limited || out.staged);
  EXPECT_EQ(clamp_power({2, 2}, {40, 40}, {1, 1}, {}).size, (PairSize{40, 40}));
}

TEST(Power, OnePoolGrowsAsFarAsTheOtherLeavesIt) {
  const PowerClamp out = clamp_power({2, 3}, {9, 3}, {1, 1}, kBudget);

  EXPECT_EQ(out.size, (PairSize{5, 3}));
  EXPECT_TRUE(out.limited);
}

TEST(Power, BothGrowByTheSamePart) {
  EXPECT_EQ(clamp_power({2, 2}, {6, 6}, {1, 1}, kBudget).size, (PairSize{4, 4}));
}

TEST(Power, AnExchangeShrinksFirst) {
  const PowerClamp first = clamp_power({6, 2}, {2, 6}, {1, 1}, kBudget);

  EXPECT_TRUE(first.staged);
  EXPECT_EQ(first.size, (PairSize{2, 2}));
  EXPECT_EQ(clamp_power(first.size, {2, 6}, {1, 1}, kBudget).size, (PairSize{2, 6}));
}

TEST(Power, WhatDoesNotFitAtItsLeastHolds) {
  EXPECT_EQ(clamp_power({1, 8}, {3, 8}, {1, 1}, kBudget).size, (PairSize{1, 8}));
}

TEST(Power, AFleetAboveTheLimitShrinksToIt) {
  const PowerClamp out = clamp_power({10, 10}, {10, 10}, {1, 1}, kBudget);

  EXPECT_EQ(out.size, (PairSize{4, 4}));
}

TEST(Power, GrowthNeverPassesTheLimit) {
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto draw = [&] { return 1 + static_cast<uint32_t>(random.below(12)); };
    const PowerBudget budget{.limit_watts = 1000.0 * draw(),
                             .prefill_watts = 300.0 * draw(),
                             .decode_watts = 300.0 * draw()};
    const PairSize current{draw(), draw()}, wanted{draw(), draw()};
    const PairSize got = clamp_power(current, wanted, {1, 1}, budget).size;

    ASSERT_LE(got.prefill, std::max(current.prefill, wanted.prefill));
    ASSERT_LE(got.decode, std::max(current.decode, wanted.decode));
    if (got.prefill > current.prefill || got.decode > current.decode) {
      ASSERT_LE(budget.draw(got), budget.limit_watts)
          << current.prefill << "," << current.decode << " → " << wanted.prefill << ","
          << wanted.decode;
    }
  }
}

}  // namespace
}  // namespace stator::planner
