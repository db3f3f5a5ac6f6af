// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/crowder.h"

#include <gtest/gtest.h>

namespace stator::session {
namespace {

TEST(Crowder, TheOldestOfTheConnectionWithTheMostPlacesGivesWay) {
  EXPECT_EQ(detail::find_crowder({"a:1", "b:2", "b:2", "b:2"}, "c:3"), 1U);
}

TEST(Crowder, ANewcomerDoesNotPushOutThoseWhoHaveNoMoreThanItself) {
  EXPECT_EQ(detail::find_crowder({"a:1", "b:1"}, "c:1"), std::nullopt);
  EXPECT_EQ(detail::find_crowder({"a:1", "b:2", "b:2"}, "b:2"), std::nullopt);
  EXPECT_EQ(detail::find_crowder({"a:1", "b:2", "b:2"}, "a:1"), std::nullopt);
}

TEST(Crowder, WithOnePlaceForEachConnectionTheHostWithTheMostGivesWay) {
  EXPECT_EQ(
      detail::find_crowder({"10.0.0.1:5", "10.0.0.2:1", "10.0.0.2:2", "10.0.0.2:3"}, "10.0.0.3:9"),
      1U);
  EXPECT_EQ(detail::find_crowder({"[::1]:5", "[::1]:6"}, "[::1]:7"), std::nullopt);
}

TEST(Crowder, NobodyIsNone) {
  EXPECT_EQ(detail::find_crowder({}, "a:1"), std::nullopt);
}

}  // namespace
}  // namespace stator::session
