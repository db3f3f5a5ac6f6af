// SPDX-License-Identifier: Apache-2.0
#include "stator/net/loopback.h"

#include <gtest/gtest.h>

namespace stator::net {
namespace {

TEST(Loopback, HostsThatOnlyThisHostCanBe) {
  for (const char* host :
       {"localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback_host(host)) << host;
  }
  for (const char* host :
       {"", "127.evil.example", "127.0.0.1.example", "localhost.example", "0.0.0.0",
        "::", "10.0.0.1", "::ffff:10.0.0.1", "[127.0.0.1", "128.0.0.1"}) {
    EXPECT_FALSE(is_loopback_host(host)) << host;
  }
}

TEST(HostInUrl, BracketsAddressesOfIpv6Only) {
  EXPECT_EQ(host_in_url("::1"), "[::1]");
  EXPECT_EQ(host_in_url("[fe80::1%eth0]"), "[fe80::1%eth0]");
  EXPECT_EQ(host_in_url("10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(host_in_url("engine-7"), "engine-7");
}

TEST(LinkLocal, InEverySpelling) {
  for (const char* host : {"169.254.169.254", "169.254.0.1", "0xA9FEA9FE", "2852039166",
                           "169.16689662", "fe80::1", "[fe80::1%eth0]", "::ffff:169.254.169.254"}) {
    EXPECT_TRUE(is_link_local_host(host)) << host;
  }
  for (const char* host :
       {"", "10.0.0.7", "169.253.1.1", "engine-7", "::1", "fd00::1", "127.0.0.1"}) {
    EXPECT_FALSE(is_link_local_host(host)) << host;
  }
}

TEST(Loopback, OfAUrlItsHostCounts) {
  EXPECT_TRUE(is_loopback_url("http://127.0.0.1:8000/v1"));
  EXPECT_TRUE(is_loopback_url("http://[::1]:8000"));
  EXPECT_FALSE(is_loopback_url("http://127.evil.example/"));
  EXPECT_FALSE(is_loopback_url("http://localhost@evil.example/")) << "a user name is no host";
  EXPECT_FALSE(is_loopback_url(""));
}

}  // namespace
}  // namespace stator::net
