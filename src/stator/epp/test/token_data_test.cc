// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/token_data.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace stator::epp {
namespace {

std::string with_tokens(std::string body) {
  constexpr std::array kTokens = {TokenId{5}, TokenId{17}};
  EXPECT_TRUE(add_token_data(body, kTokens)) << body;
  return body;
}

TEST(TokenData, IsPutWhereTheBodyHasRoomForIt) {
  EXPECT_EQ(with_tokens(R"({"a":1})"), R"({"nvext":{"token_data":[5,17]},"a":1})");
  EXPECT_EQ(with_tokens(" {} "), R"( {"nvext":{"token_data":[5,17]}} )");
  EXPECT_EQ(with_tokens(R"({"nvext": {"x":2}, "b":1.50})"),
            R"({"nvext": {"token_data":[5,17],"x":2}, "b":1.50})");
  EXPECT_EQ(with_tokens(R"({"nvext":{}})"), R"({"nvext":{"token_data":[5,17]}})");
  EXPECT_EQ(with_tokens(R"({"b":1,"nvext":null})"), R"({"b":1,"nvext":{"token_data":[5,17]}})");
}

TEST(TokenData, LeavesBodiesThatHaveItOrAreNone) {
  constexpr std::array kTokens = {TokenId{5}};
  for (const std::string_view text : {R"({"nvext":{"token_data":[1]}})", "[1]", "{", "", "7"}) {
    std::string body(text);
    EXPECT_FALSE(add_token_data(body, kTokens));
    EXPECT_EQ(body, text);
  }
}

}  // namespace
}  // namespace stator::epp
