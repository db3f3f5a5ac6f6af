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

TEST(Crowder, WhoOnlyGreetsFromACrowdedHostGivesWayToItsFrontends) {
  std::vector<std::string> holders = {"10.0.0.9:1"};
  for (size_t port = 1; port <= detail::kCrowdPlaces; ++port) {
    holders.push_back("10.0.0.2:" + std::to_string(port));
  }
  std::vector<bool> idle(holders.size(), true);
  idle[1] = false;  // serves

  EXPECT_EQ(detail::find_idler(holders, "10.0.0.2:999", idle), 2U);
  EXPECT_EQ(detail::find_idler(holders, "10.0.0.9:2", idle), std::nullopt);  // no crowd
  holders.pop_back();
  idle.pop_back();
  EXPECT_EQ(detail::find_idler(holders, "10.0.0.2:999", idle), std::nullopt);
  EXPECT_EQ(detail::find_idler(std::vector<std::string>(64, "10.0.0.2:1"), "10.0.0.2:2",
                               std::vector<bool>(64, false)),
            std::nullopt);
}

TEST(Crowder, NobodyIsNone) {
  EXPECT_EQ(detail::find_crowder({}, "a:1"), std::nullopt);
}

}  // namespace
}  // namespace stator::session
