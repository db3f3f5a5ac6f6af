// SPDX-License-Identifier: Apache-2.0
#include "stator/text/percent.h"

#include <gtest/gtest.h>

#include "stator/text/hex.h"

namespace stator::text {
namespace {

TEST(Percent, DecodesEscapes) {
  EXPECT_EQ(percent_decode("a%2Fb%2fc"), "a/b/c");
  EXPECT_EQ(percent_decode("%E6%BC%A2"), "漢");
  EXPECT_EQ(percent_decode("a+b"), "a+b");
}

TEST(Percent, LeavesWhatIsNoEscape) {
  EXPECT_EQ(percent_decode("100%"), "100%");
  EXPECT_EQ(percent_decode("%4"), "%4");
  EXPECT_EQ(percent_decode("%g0%0g"), "%g0%0g");
  EXPECT_EQ(percent_decode("%%41"), "%A");
}

TEST(Hex, ValuesOfBothCases) {
  EXPECT_EQ(hex_value('0'), 0U);
  EXPECT_EQ(hex_value('f'), 15U);
  EXPECT_EQ(hex_value('A'), 10U);
  for (const char c : {'g', 'G', '/', ':', '@', '`', '\0', '\xFF'}) {
    EXPECT_EQ(hex_value(c), kNoHexDigit) << c;
  }
}

}  // namespace
}  // namespace stator::text
