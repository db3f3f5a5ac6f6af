// SPDX-License-Identifier: Apache-2.0
#include "stator/json/value.h"

#include <gtest/gtest.h>

#include "stator/json/writer.h"

namespace stator::json {
namespace {

Value parsed(std::string_view text) {
  auto value = parse(text);
  EXPECT_TRUE(value.has_value()) << text;
  return value.has_value() ? *std::move(value) : Value();
}

TEST(JsonValue, LosesNothing) {
  for (const std::string_view text :
       {R"({"z":1,"a":2.50,"m":123456789012345678901234567890,"e":1E+5})", R"([-0,[],{},"",null])",
        R"("é\n\"\\")", "true", "null", R"({"":{"a":{"b":[[[]]]}}})"}) {
    EXPECT_EQ(to_text(parsed(text)), text);
    EXPECT_EQ(parsed(to_pretty_text(parsed(text))), parsed(text)) << text;
  }
}

TEST(JsonValue, PrettyTextIndents) {
  EXPECT_EQ(to_pretty_text(parsed(R"({"a":[1,{}],"b":{"c":"d"}})")),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": \"d\"\n  }\n}");
}

TEST(JsonValue, ReadsWhatItIsAndNothingElse) {
  const Value value = parsed(R"({"i":-7,"u":18446744073709551615,"d":1.5,"s":"7","b":true})");
  EXPECT_EQ(value.find("i")->as_int64(), -7);
  EXPECT_EQ(value.find("i")->as_uint64(), std::nullopt);
  EXPECT_EQ(value.find("u")->as_uint64(), UINT64_MAX);
  EXPECT_EQ(value.find("u")->as_int64(), std::nullopt);
  EXPECT_EQ(value.find("d")->as_double(), 1.5);
  EXPECT_EQ(value.find("d")->as_int64(), std::nullopt);
  EXPECT_EQ(value.find("s")->as_int64(), std::nullopt);
  EXPECT_EQ(value.find("s")->as_string(), "7");
  EXPECT_EQ(value.find("b")->as_bool(), true);
  EXPECT_EQ(value.find("b")->as_double(), std::nullopt);
  EXPECT_EQ(value.find("none"), nullptr);
  EXPECT_EQ(value.find("s")->find("s"), nullptr);
}

TEST(JsonValue, WalksPaths) {
  const Value pod = parsed(R"({"status":{"phase":"Running","ready":true}})");
  EXPECT_EQ(pod.text_at({"status", "phase"}), "Running");
  EXPECT_EQ(pod.text_at({"status", "ready"}), "");
  EXPECT_EQ(pod.text_at({"status", "phase", "x"}), "");
  EXPECT_EQ(pod.find_at({"status", "ready"})->as_bool(), true);
  EXPECT_EQ(pod.at("status").at("phase"), "Running");
  EXPECT_TRUE(pod.at("spec").at(3).at("x").is_null());
}

TEST(JsonValue, FollowsPointers) {
  const Value value = parsed(R"({"a/b":[{"~":1},2],"":3})");
  EXPECT_EQ(*value.find_pointer("/a~1b/0/~0"), 1);
  EXPECT_EQ(*value.find_pointer("/"), 3);
  EXPECT_EQ(value.find_pointer(""), &value);
  for (const std::string_view nowhere :
       {"a", "/x", "/a~1b/2", "/a~1b/01", "/a~1b/-", "/a~1b/1/x"}) {
    EXPECT_EQ(value.find_pointer(nowhere), nullptr) << nowhere;
  }
}

TEST(JsonValue, IsBuiltAndChanged) {
  Value value = Value::object({{"kind", "Pod"}, {"count", 3}});
  value["metadata"]["labels"]["app"] = "frontend";
  value["list"].push_back(1);
  value["list"].push_back(false);
  value["count"] = 4.5;
  EXPECT_TRUE(value.erase("kind"));
  EXPECT_FALSE(value.erase("kind"));
  EXPECT_EQ(to_text(value),
            R"({"count":4.5,"metadata":{"labels":{"app":"frontend"}},"list":[1,false]})");
}

TEST(JsonValue, TheLastOfEqualKeysCountsAtTheFirstPlace) {
  EXPECT_EQ(to_text(parsed(R"({"a":1,"b":2,"a":3})")), R"({"a":3,"b":2})");
  std::string many = "{";
  std::string once = "{";
  for (int i = 0; i < 100; ++i) {
    many += "\"k" + std::to_string(i % 50) + "\":" + std::to_string(i) + (i < 99 ? "," : "}");
    if (i < 50) {
      once += "\"k" + std::to_string(i) + "\":" + std::to_string(i + 50) + (i < 49 ? "," : "}");
    }
  }
  EXPECT_EQ(to_text(parsed(many)), once);
}

TEST(JsonValue, SaysWhereTextIsWrong) {
  EXPECT_EQ(parse(R"({"a":1,})").error().message(),
            "not valid JSON at byte 7: expected a key in double quotes");
  EXPECT_EQ(parse("[1] 2").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(parse("").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(parse("\"\xff\"").error().message(), "not valid JSON: the text is not UTF-8");
}

TEST(JsonValue, KeepsItsLimits) {
  EXPECT_FALSE(parse("[[[]]]", {.depth_max = 2}).has_value());
  EXPECT_TRUE(parse("[[]]", {.depth_max = 2}).has_value());
  EXPECT_EQ(parse("[1,2]", {.values_max = 2}).error().code(), Code::kTooLarge);
  EXPECT_TRUE(parse("[1,2]", {.values_max = 3}).has_value());
}

}  // namespace
}  // namespace stator::json
