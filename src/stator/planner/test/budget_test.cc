// SPDX-License-Identifier: Apache-2.0
#include "stator/planner/budget.h"

#include <gtest/gtest.h>

namespace stator::planner {
namespace {

TEST(Budget, AnOverdrawnPairShrinksInProportion) {
  const PoolFootprint two{.gpus_per_worker = 2};

  EXPECT_EQ(clamp_pair({5, 5}, two, two, {.min_gpus = 1, .max_gpus = 8}), (PairSize{2, 2}));
  EXPECT_EQ(clamp_pair({2, 2}, two, two, {.min_gpus = 1, .max_gpus = 8}), (PairSize{2, 2}));
}

TEST(Budget, AnEngineThatDoesNotDivideTheBandIsTolerated) {
  const PoolFootprint two{.gpus_per_worker = 2};

  EXPECT_EQ(clamp_pair({1, 1}, two, two, {.min_gpus = 5, .max_gpus = 5}), (PairSize{1, 1}));
}

TEST(Budget, AMinimumThatDoesNotFitIsNothing) {
  const PoolFootprint big{.gpus_per_worker = 8};

  EXPECT_EQ(clamp_pair({2, 2}, big, big, {.max_gpus = 8}), (PairSize{0, 0}));
  EXPECT_EQ(clamp_single(3, big, {.max_gpus = 7}), 0U);
}

TEST(Budget, TooFewGrowToTheMinimum) {
  const PoolFootprint one{.gpus_per_worker = 1};

  EXPECT_EQ(clamp_pair({0, 0}, one, one, {.min_gpus = 6}), (PairSize{3, 3}));
  EXPECT_EQ(clamp_single(1, one, {.min_gpus = 4}), 4U);
  EXPECT_EQ(clamp_single(9, one, {.max_gpus = 4}), 4U);
}

TEST(Budget, NoLimitChangesNothing) {
  const PoolFootprint one{};

  for (uint32_t p = 1; p < 20; ++p) {
    for (uint32_t d = 1; d < 20; ++d) {
      EXPECT_EQ(clamp_pair({p, d}, one, one, {}), (PairSize{p, d}));
    }
  }
}

TEST(Budget, TheMaximumIsHard) {
  for (uint32_t g = 1; g <= 4; ++g) {
    for (uint32_t p = 1; p < 12; ++p) {
      for (uint32_t d = 1; d < 12; ++d) {
        const PairSize got =
            clamp_pair({p, d}, {.gpus_per_worker = g}, {.gpus_per_worker = 3}, {.max_gpus = 17});
        EXPECT_LE(got.prefill * g + got.decode * 3, 17U);
        EXPECT_GE(got.prefill, 1U);
        EXPECT_GE(got.decode, 1U);
      }
    }
  }
}

}  // namespace
}  // namespace stator::planner
