// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/write_pace.h"

#include <gtest/gtest.h>

#include <chrono>

namespace stator::session {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

int taken_at(detail::WritePace& pace, TimePoint now) {
  int taken = 0;
  while (pace.take(now)) {
    ++taken;
  }
  return taken;
}

TEST(WritePace, GivesEightAtOnceThenTenAMillisecond) {
  detail::WritePace pace;
  const TimePoint start{std::chrono::hours(1)};

  EXPECT_EQ(taken_at(pace, start), 8);
  EXPECT_EQ(taken_at(pace, start + microseconds(99)), 0);
  EXPECT_EQ(taken_at(pace, start + microseconds(100)), 1);
  EXPECT_EQ(taken_at(pace, start + microseconds(500)), 4);
}

TEST(WritePace, DoesNotSaveUpBeyondEight) {
  detail::WritePace pace;
  const TimePoint start{std::chrono::hours(1)};
  taken_at(pace, start);

  EXPECT_EQ(taken_at(pace, start + milliseconds(1)), 8);
}

}  // namespace
}  // namespace stator::session
