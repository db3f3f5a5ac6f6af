// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/load_or_compute.h"

#include <gtest/gtest.h>

namespace stator::engine {
namespace {

using std::chrono::milliseconds;

TEST(LoadOrCompute, LoadsWhileOneSideIsNotKnown) {
  LoadOrCompute costs;
  EXPECT_TRUE(costs.worth_loading(4, 16));
  costs.saw_load(1, milliseconds(1000));
  EXPECT_TRUE(costs.worth_loading(4, 16));
  costs.saw_compute(8, milliseconds(1));  // decodes say nothing of prompts
  EXPECT_EQ(costs.seconds_per_token(), 0);
  EXPECT_FALSE(costs.worth_loading(0, 16));
}

TEST(LoadOrCompute, ComputesWhatLoadsSlowerAndTriesAgainNowAndThen) {
  LoadOrCompute costs;
  costs.saw_load(10, milliseconds(1000));     // 100 ms a block
  costs.saw_compute(100, milliseconds(100));  // 16 ms a block
  int loads = 0;
  for (int i = 0; i < 160; ++i) {
    loads += costs.worth_loading(10, 16) ? 1 : 0;
  }
  EXPECT_EQ(loads, 10);
}

TEST(LoadOrCompute, ComesBackWhenTheDiskIsFastAgain) {
  LoadOrCompute costs;
  costs.saw_load(10, milliseconds(1000));
  costs.saw_compute(100, milliseconds(100));
  for (int i = 0; i < 64; ++i) {
    costs.saw_load(10, milliseconds(10));
  }
  EXPECT_TRUE(costs.worth_loading(10, 16));
  EXPECT_LT(costs.seconds_per_block(), 0.016);
}

}  // namespace
}  // namespace stator::engine
