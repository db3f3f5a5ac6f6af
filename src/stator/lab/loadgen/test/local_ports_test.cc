// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/detail/local_ports.h"

#include <gmock/gmock.h>

#include <set>

namespace stator::loadgen::detail {
namespace {

TEST(LocalPorts, OfAllThreadsAreDifferentUntilTheyAreUsedUp) {
  std::set<uint16_t> seen;
  for (uint32_t share = 0; share < 3; ++share) {
    LocalPorts ports(65'500, 65'535, share, 3);
    for (int i = 0; i < 12; ++i) {
      const uint16_t port = ports.next();
      EXPECT_GE(port, 65'500);
      EXPECT_TRUE(seen.insert(port).second) << port;
    }
  }

  EXPECT_EQ(seen.size(), 36U);
}

TEST(LocalPorts, BeginAgainAfterTheLast) {
  LocalPorts ports(10, 11, 0, 1);

  EXPECT_EQ(ports.next(), 10);
  EXPECT_EQ(ports.next(), 11);
  EXPECT_EQ(ports.next(), 10);
}

TEST(LocalPorts, WithoutARangeTheKernelChooses) {
  LocalPorts ports(1, 0, 0, 1);

  EXPECT_EQ(ports.next(), 0);
}

TEST(LocalPorts, OfTheSystemAreAboveTheReservedOnes) {
  EXPECT_GE(LocalPorts::of_system(0, 1).next(), 1024);
}

}  // namespace
}  // namespace stator::loadgen::detail
