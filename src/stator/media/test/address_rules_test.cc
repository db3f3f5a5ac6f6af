// SPDX-License-Identifier: Apache-2.0
#include "stator/media/address_rules.h"

#include <gtest/gtest.h>

#include <string>

namespace stator::media {
namespace {

TEST(AddressRules, OnlyTheUsualSpellingIsAnAddress) {
  for (const char* text : {"192.0.2.7", "0.0.0.0", "2001:db8::7", "::", "::ffff:10.0.0.1"}) {
    EXPECT_TRUE(parse_address(text)) << text;
  }
  for (const char* text : {"127.1", "0177.0.0.1", "0x7f.0.0.1", "2130706433", "1.2.3.4.", "1.2.3",
                           "01.2.3.4", "1.2.3.256", " 1.2.3.4", "fe80::1%eth0", "[::1]", "", "a"}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

TEST(AddressRules, RefusesEverythingThatIsNotPublic) {
  for (const char* text :
       {"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255",
        "127.0.0.1", "127.255.255.254", "169.254.169.254", "169.254.0.1", "172.16.0.1",
        "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
        "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
        "255.255.255.255",
        // IPv6
        "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "100::1", "2001::1", "2001:db8::1",
        "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:c0a8:101::", "3fff::1", "5f00::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "4000::1", "8000::1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_NE(why_refused(*address), "") << text;
  }
}

TEST(AddressRules, LetsPublicAddressesPass) {
  for (const char* text :
       {"1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255",
        "172.32.0.0", "192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255",
        "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::808:808", "2002:808:808::1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(why_refused(*address), "") << text;
  }
}

TEST(AddressRules, SpellsAddressesAsItReadThem) {
  for (const std::string text : {"192.0.2.7", "2001:db8::7", "::1"}) {
    EXPECT_EQ(parse_address(text)->text(), text);
  }
}

}  // namespace
}  // namespace stator::media
