// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/room_desk.h"

#include <gtest/gtest.h>

namespace stator::fake_engine {
namespace {

TEST(RoomDesk, ALegWaitsUntilTheOtherArrives) {
  RoomDesk desk;
  int arrived = 0;
  EXPECT_FALSE(desk.arrive("7")) << "nobody waits yet";
  EXPECT_EQ(desk.wait("7", [&] { ++arrived; }), RoomDesk::Entered::kWaiting);
  EXPECT_EQ(desk.wait("7", [] {}), RoomDesk::Entered::kDuplicate);

  EXPECT_TRUE(desk.arrive("7"));
  EXPECT_FALSE(desk.arrive("7"));

  EXPECT_EQ(arrived, 1);
  EXPECT_EQ(desk.waiting(), 0U);
}

TEST(RoomDesk, IsBoundedAndForgetsWhoGaveUp) {
  RoomDesk desk;
  for (size_t i = 0; i < RoomDesk::kRoomsMax; ++i) {
    ASSERT_EQ(desk.wait(std::to_string(i), [] {}), RoomDesk::Entered::kWaiting);
  }
  EXPECT_EQ(desk.wait("one more", [] {}), RoomDesk::Entered::kFull);

  desk.give_up("0");

  EXPECT_FALSE(desk.arrive("0"));
  EXPECT_EQ(desk.wait("one more", [] {}), RoomDesk::Entered::kWaiting);
}

}  // namespace
}  // namespace stator::fake_engine
