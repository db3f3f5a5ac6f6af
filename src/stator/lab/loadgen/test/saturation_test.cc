// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/saturation.h"

#include <gmock/gmock.h>

namespace stator::loadgen {
namespace {

uint32_t run(SaturationSearch& search, double capacity) {
  uint32_t steps = 0;
  while (const auto rate = search.next_rate()) {
    search.add(*rate, *rate <= capacity);
    ++steps;
  }
  return steps;
}

TEST(SaturationSearch, FindsTheCapacityFromBelow) {
  SaturationSearch search({.first_rate = 1});

  const uint32_t steps = run(search, 37);

  EXPECT_LE(search.sustained(), 37);
  EXPECT_GT(search.sustained(), 37 * 0.94);
  EXPECT_LE(steps, 12U);
}

TEST(SaturationSearch, FindsTheCapacityFromAbove) {
  SaturationSearch search({.first_rate = 500});

  run(search, 37);

  EXPECT_GT(search.sustained(), 37 * 0.94);
  ASSERT_TRUE(search.unsustained().has_value());
  EXPECT_LE(*search.unsustained(), 37 / 0.94);
}

TEST(SaturationSearch, StopsAtTheHighestRateAllowed) {
  SaturationSearch search({.first_rate = 3, .rate_max = 10});

  run(search, 1e9);

  EXPECT_EQ(search.sustained(), 10);
  EXPECT_FALSE(search.unsustained().has_value());
}

TEST(SaturationSearch, EndsWhenNothingIsSustained) {
  SaturationSearch search({.first_rate = 8});

  EXPECT_LE(run(search, 0), 20U);
  EXPECT_EQ(search.sustained(), 0);
}

TEST(SaturationSearch, TakesAtMostItsSteps) {
  SaturationSearch search({.first_rate = 1, .precision = 1e-9, .steps_max = 7});

  EXPECT_EQ(run(search, 37), 7U);
}

}  // namespace
}  // namespace stator::loadgen
