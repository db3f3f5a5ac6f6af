// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/quarantine.h"

#include <gtest/gtest.h>

namespace stator::continuity {
namespace {

using namespace std::chrono_literals;

TEST(Quarantine, HoldsAnEntryForItsTime) {
  Quarantine quarantine({.time = 60s});
  TimePoint now{};
  EXPECT_EQ(quarantine.left(7, now), 0s);
  quarantine.add(7, now);
  EXPECT_EQ(quarantine.left(7, now + 20s), 40s);
  EXPECT_EQ(quarantine.left(8, now + 20s), 0s);
  EXPECT_EQ(quarantine.left(7, now + 60s), 0s);
  EXPECT_EQ(quarantine.size(), 0U);
}

TEST(Quarantine, AddingAgainRestartsItsTime) {
  Quarantine quarantine({.time = 60s});
  TimePoint now{};
  quarantine.add(7, now);
  quarantine.add(7, now + 50s);
  EXPECT_EQ(quarantine.left(7, now + 70s), 40s);
  EXPECT_EQ(quarantine.left(7, now + 110s), 0s);
}

TEST(Quarantine, IsBounded) {
  Quarantine quarantine({.entries_max = 10});
  for (uint64_t i = 0; i < 1000; ++i) {
    quarantine.add(i, TimePoint{});
    quarantine.add(3, TimePoint{});
  }
  EXPECT_LE(quarantine.size(), 10U);
  EXPECT_GT(quarantine.left(3, TimePoint{}), 0s);
  EXPECT_EQ(quarantine.left(500, TimePoint{}), 0s);
}

}  // namespace
}  // namespace stator::continuity
