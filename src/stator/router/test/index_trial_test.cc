// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index_trial.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::router {
namespace {

// `stator index-trial` does the same for hours.
TEST(IndexTrial, TheIndexAgreesWithTheOracle) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto tally = run_index_trial({.operations = 36'000, .round = 6'000, .seed = seed});
    ASSERT_TRUE(tally) << tally.error().message();
    EXPECT_EQ(tally->operations, 36'000U);
    EXPECT_GT(tally->matched_blocks, 36'000U);
    EXPECT_GT(tally->evicted_blocks, 0U);
  }
}

}  // namespace
}  // namespace stator::router
