// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/load_or_compute.h"

#include <gtest/gtest.h>

namespace stator::engine {
namespace {

using std::chrono::milliseconds;

/// As many loads as it wants to see, each of 10 blocks.
void see_loads(LoadOrCompute& costs, milliseconds each) {
  for (int i = 0; i < 8; ++i) {
    costs.saw_load(10, each);
  }
}

TEST(LoadOrCompute, LoadsWhileOneSideIsNotKnown) {
  LoadOrCompute costs;
  EXPECT_TRUE(costs.worth_loading(4, 16));
  see_loads(costs, milliseconds(1000));
  EXPECT_TRUE(costs.worth_loading(4, 16));
  costs.saw_compute(8, milliseconds(1));  // decodes say nothing of prompts
  EXPECT_EQ(costs.seconds_per_token(), 0);
  EXPECT_FALSE(costs.worth_loading(0, 16));
}

TEST(LoadOrCompute, AFewSlowLoadsAndALittleSlowerOnesAreNoReason) {
  LoadOrCompute costs;
  costs.saw_compute(100, milliseconds(100));  // 16 ms a block
  costs.saw_load(10, milliseconds(1000));     // 100 ms a block, once
  EXPECT_TRUE(costs.worth_loading(10, 16));

  LoadOrCompute others;
  others.saw_compute(100, milliseconds(100));
  see_loads(others, milliseconds(300));  // 30 ms a block
  EXPECT_TRUE(others.worth_loading(10, 16));
}

TEST(LoadOrCompute, ComputesWhatLoadsSlowerAndTriesAgainNowAndThen) {
  LoadOrCompute costs;
  see_loads(costs, milliseconds(1000));       // 100 ms a block
  costs.saw_compute(100, milliseconds(100));  // 16 ms a block
  int loads = 0;
  for (int i = 0; i < 160; ++i) {
    loads += costs.worth_loading(10, 16) ? 1 : 0;
  }
  EXPECT_EQ(loads, 10);
}

TEST(LoadOrCompute, ComesBackWhenTheDiskIsFastAgain) {
  LoadOrCompute costs;
  see_loads(costs, milliseconds(1000));
  costs.saw_compute(100, milliseconds(100));
  for (int i = 0; i < 64; ++i) {
    costs.saw_load(10, milliseconds(10));
  }
  EXPECT_TRUE(costs.worth_loading(10, 16));
  EXPECT_LT(costs.seconds_per_block(), 0.016);
}

}  // namespace
}  // namespace stator::engine
