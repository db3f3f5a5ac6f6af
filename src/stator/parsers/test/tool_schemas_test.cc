// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/tool_schemas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::parsers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const ToolSchemas> parse_parameters(const std::string& parameters) {
  auto schemas = ToolSchemas::parse(R"([{"type":"function","function":{"name":"f","parameters":)" +
                                    parameters + "}}]");
  EXPECT_TRUE(schemas) << schemas.error().message();
  return *schemas;
}

std::vector<ValueKind> kinds(const std::string& schema) {
  const auto schemas = parse_parameters(R"({"properties":{"a":)" + schema +
                                        R"(},"$defs":{"Int":{"type":"integer"}}})");
  const ValueSchema* parameter = schemas->find_parameter("f", "a");
  return parameter == nullptr ? std::vector<ValueKind>{} : parameter->kinds;
}

TEST(ToolSchemas, OfTwoToolsWithOneNameTheLastCounts) {
  const auto schemas = ToolSchemas::parse(
      R"([{"name":"f","parameters":{"properties":{"a":{"type":"string"},"b":{"type":"string"}}}},)"
      R"({"name":"f","parameters":{"properties":{"a":{"type":"integer"}}}}])");
  ASSERT_TRUE(schemas);
  EXPECT_THAT((*schemas)->find_parameter("f", "a")->kinds, ElementsAre(ValueKind::kInteger));
  EXPECT_EQ((*schemas)->find_parameter("f", "b"), nullptr);
}

TEST(ToolSchemas, ReadsTypes) {
  EXPECT_THAT(kinds(R"({"type":"string"})"), ElementsAre(ValueKind::kString));
  EXPECT_THAT(kinds(R"({"type":["integer","null"]})"),
              ElementsAre(ValueKind::kInteger, ValueKind::kNull));
  EXPECT_THAT(kinds(R"({"anyOf":[{"type":"boolean"},{"type":"string"}]})"),
              ElementsAre(ValueKind::kBoolean, ValueKind::kString));
  EXPECT_THAT(kinds(R"({"enum":["a","b",1]})"),
              ElementsAre(ValueKind::kString, ValueKind::kInteger));
  EXPECT_THAT(kinds(R"({"const":1.5})"), ElementsAre(ValueKind::kNumber));
  EXPECT_THAT(kinds(R"({"type":"number","nullable":true})"),
              ElementsAre(ValueKind::kNumber, ValueKind::kNull));
  EXPECT_THAT(kinds(R"({"properties":{}})"), ElementsAre());
  EXPECT_THAT(kinds(R"({"properties":{"x":{}}})"), ElementsAre(ValueKind::kObject));
  EXPECT_THAT(kinds("{}"), ElementsAre());
  EXPECT_THAT(kinds("true"), ElementsAre());
}

TEST(ToolSchemas, FollowsReferencesWithinTheSchema) {
  EXPECT_THAT(kinds(R"({"$ref":"#/$defs/Int"})"), ElementsAre(ValueKind::kInteger));
  EXPECT_THAT(kinds(R"({"$ref":"#/$defs/None"})"), ElementsAre());
  EXPECT_THAT(kinds(R"({"$ref":"http://x"})"), ElementsAre());
  EXPECT_THAT(kinds(R"({"$ref":"#/properties/a"})"), ElementsAre());  // itself: depth is bounded
}

TEST(ToolSchemas, KnowsNamesAndNestedParts) {
  const auto schemas = parse_parameters(
      R"({"properties":{"list":{"type":"array","items":{"properties":{"n":{"type":"integer"}}}}}})");

  EXPECT_TRUE(schemas->contains("f"));
  EXPECT_FALSE(schemas->contains("g"));
  EXPECT_EQ(schemas->find_parameter("g", "a"), nullptr);
  const ValueSchema* list = schemas->find_parameter("f", "list");
  ASSERT_NE(list, nullptr);
  ASSERT_NE(list->items, nullptr);
  EXPECT_TRUE(list->items->find_property("n")->allows(ValueKind::kInteger));
  EXPECT_FALSE(list->items->find_property("n")->allows(ValueKind::kString));
}

TEST(ToolSchemas, ReadsTheFlatForm) {
  const auto schemas = ToolSchemas::parse(
      R"([{"type":"function","name":"g","parameters":{"properties":{"a":{"type":"null"}}}}])");
  ASSERT_TRUE(schemas);
  EXPECT_NE((*schemas)->find_parameter("g", "a"), nullptr);
}

TEST(ToolSchemas, NamesWhatIsWrong) {
  const std::string deep(10'000, '[');
  for (const auto& [text, problem] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "array"},
           {"[1", "JSON"},
           {"[{}]", "tools[0]"},
           {"[5]", "tools[0]"},
           {R"([{"function":{"name":""}}])", "tools[0]"},
           {deep, "JSON"}}) {
    const auto schemas = ToolSchemas::parse(text);
    ASSERT_FALSE(schemas) << text;
    EXPECT_EQ(schemas.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(schemas.error().message(), HasSubstr(problem));
  }
}

}  // namespace
}  // namespace stator::parsers
