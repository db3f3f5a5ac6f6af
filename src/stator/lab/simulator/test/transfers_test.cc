// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

TEST(Transfers, OneAloneHasTheWholeBandwidth) {
  Transfers transfers(1000);
  transfers.start(at(0), {.id = 7, .source = 0, .target = 1, .bytes = 500});

  EXPECT_EQ(transfers.next(), at(500));
  EXPECT_FALSE(transfers.pop(at(499)).has_value());
  EXPECT_EQ(transfers.pop(at(500)), 7);
  EXPECT_FALSE(transfers.next().has_value());
}

TEST(Transfers, ThoseThatShareAnEndShareItsBandwidth) {
  Transfers transfers(1000);
  transfers.start(at(0), {.id = 1, .source = 0, .target = 8, .bytes = 500});
  transfers.start(at(250), {.id = 2, .source = 0, .target = 9, .bytes = 500});  // same sender
  transfers.start(at(250), {.id = 3, .source = 5, .target = 6, .bytes = 100});  // elsewhere

  EXPECT_EQ(transfers.next(), at(350));
  EXPECT_EQ(transfers.pop(at(350)), 3);
  EXPECT_EQ(transfers.next(), at(750));  // the 250 bytes left at half the speed
  EXPECT_EQ(transfers.pop(at(750)), 1);
  EXPECT_EQ(transfers.next(), at(1000));  // 250 of 500 went, the rest alone
  EXPECT_EQ(transfers.pop(at(1000)), 2);
}

TEST(Transfers, TheMoreCrowdedEndDecides) {
  Transfers transfers(1000);
  for (uint32_t i = 0; i < 4; ++i) {
    transfers.start(at(0), {.id = i, .source = i, .target = 9, .bytes = 100});
  }

  EXPECT_EQ(transfers.next(), at(400));
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(transfers.pop(at(400)), i);
  }
}

TEST(Transfers, WhoDiesTakesThemAllAndLeavesTheOthersMore) {
  Transfers transfers(1000);
  transfers.start(at(0), {.id = 1, .source = 0, .target = 8, .bytes = 100});
  transfers.start(at(0), {.id = 2, .source = 0, .target = 9, .bytes = 100});
  transfers.start(at(0), {.id = 3, .source = 1, .target = 9, .bytes = 100});

  EXPECT_THAT(transfers.cancel(at(100), 9), ElementsAre(2, 3));
  EXPECT_EQ(transfers.next(), at(150));
}

TEST(Transfers, NothingToSendTakesNoTime) {
  Transfers transfers(1000);
  transfers.start(at(3), {.id = 1, .source = 0, .target = 8, .bytes = 0});

  EXPECT_EQ(transfers.pop(at(3)), 1);
}

}  // namespace
}  // namespace stator::simulator
