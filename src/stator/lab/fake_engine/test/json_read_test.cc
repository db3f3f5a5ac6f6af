// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/json_read.h"

#include <gtest/gtest.h>

namespace stator::fake_engine {
namespace {

TEST(JsonRead, FindsWhereABodyStopsBeingJson) {
  EXPECT_TRUE(parse_body("{\"a\":1} \n").ok);
  EXPECT_FALSE(parse_body("").ok);
  EXPECT_FALSE(parse_body("[1]").ok);
  EXPECT_FALSE(parse_body("{\"a\":1} x").ok);
  const auto cut = parse_body("{\"model\": \"m\", ");
  EXPECT_FALSE(cut.ok);
  EXPECT_EQ(cut.error_at, 15U);
}

TEST(JsonRead, WrongTypesCountAsAbsent) {
  const json::Value object = json::parse(R"({"a":"x","b":1.5,"c":null,"d":[1,-2],"e":2})").value();
  EXPECT_EQ(read_integer(object, "a"), std::nullopt);
  EXPECT_EQ(read_integer(object, "b"), std::nullopt);
  EXPECT_EQ(read_integer(object, "e"), 2);
  EXPECT_EQ(read_number(object, "b"), 1.5);
  EXPECT_EQ(find_member(object, "c"), nullptr);
  EXPECT_EQ(read_ids(object.at("d")), std::nullopt);
}

TEST(JsonRead, SamplesFollowTheirSchema) {
  const json::Value schema = *json::parse(
      R"({"type":"object","properties":{"city":{"type":"string","enum":["Oslo","Rome"]},
          "days":{"type":"integer","minimum":3},"tags":{"type":"array"}},
          "required":["city","days","tags"]})");
  EXPECT_EQ(sample_of_schema(schema), R"({"city":"Oslo","days":3,"tags":[]})");
  EXPECT_EQ(
      sample_of_schema(*json::parse(R"({"type":"array","minItems":2,"items":{"type":"integer"}})")),
      "[0,0]");
}

TEST(JsonRead, SamplesMatchTheirRegex) {
  EXPECT_EQ(sample_of_regex("(yes|no)"), "yes");
  EXPECT_EQ(sample_of_regex(R"(\d{3}-[a-z]+x?)"), "000-a");
  EXPECT_EQ(sample_of_regex("(a|b"), std::nullopt);
  EXPECT_EQ(sample_of_regex("[^a]"), std::nullopt);
  EXPECT_EQ(sample_of_regex(std::string(100, '(')), std::nullopt);
  EXPECT_EQ(sample_of_regex("a{99999999}"), std::nullopt);
  EXPECT_EQ(sample_of_regex("["), std::nullopt);
  EXPECT_EQ(sample_of_regex("\\"), std::nullopt);
}

}  // namespace
}  // namespace stator::fake_engine
