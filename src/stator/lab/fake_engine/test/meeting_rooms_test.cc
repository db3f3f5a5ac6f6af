// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/meeting_rooms.h"

#include <gtest/gtest.h>

namespace stator::fake_engine {
namespace {

TEST(MeetingRooms, ALegWaitsUntilTheOtherArrives) {
  MeetingRooms rooms;
  int arrived = 0;
  EXPECT_FALSE(rooms.arrive("7")) << "nobody waits yet";
  EXPECT_EQ(rooms.wait("7", [&] { ++arrived; }), MeetingRooms::Entered::kWaiting);
  EXPECT_EQ(rooms.wait("7", [] {}), MeetingRooms::Entered::kDuplicate);

  EXPECT_TRUE(rooms.arrive("7"));
  EXPECT_FALSE(rooms.arrive("7"));

  EXPECT_EQ(arrived, 1);
  EXPECT_EQ(rooms.waiting(), 0U);
}

TEST(MeetingRooms, IsBoundedAndForgetsWhoGaveUp) {
  MeetingRooms rooms;
  for (size_t i = 0; i < MeetingRooms::kRoomsMax; ++i) {
    ASSERT_EQ(rooms.wait(std::to_string(i), [] {}), MeetingRooms::Entered::kWaiting);
  }
  EXPECT_EQ(rooms.wait("one more", [] {}), MeetingRooms::Entered::kFull);

  rooms.give_up("0");

  EXPECT_FALSE(rooms.arrive("0"));
  EXPECT_EQ(rooms.wait("one more", [] {}), MeetingRooms::Entered::kWaiting);
}

}  // namespace
}  // namespace stator::fake_engine
