// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/value.h"

#include <gtest/gtest.h>

#include <string>

namespace stator::chat_template {
namespace {

std::string round_trip(std::string_view json) {
  Arena arena(size_t{64} << 20U);
  const auto value = Value::from_json(json, arena);
  return value ? value->to_python_json() : "error: " + value.error().message();
}

TEST(Value, JsonKeepsOrderAndSpelling) {
  EXPECT_EQ(round_trip(R"( {"b":1,"a":[true,false,null],"é":"😀"} )"),
            R"({"b": 1, "a": [true, false, null], "é": "😀"})");
  EXPECT_EQ(round_trip("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(round_trip("[1.0,1e-7,1E22,-0.0,1.5e300,1e999,-1e999,1e-999]"),
            "[1.0, 1e-07, 1e+22, -0.0, 1.5e+300, Infinity, -Infinity, 0.0]");
  EXPECT_EQ(round_trip("[NaN, Infinity, -Infinity]"), "[NaN, Infinity, -Infinity]");
  EXPECT_EQ(round_trip(R"(["\u0041\n\"\\\/\u00e9\ud83d\ude00\ud800x"])"), R"(["A\n\"\\/é😀�x"])");
}

TEST(Value, RepeatedKeysKeepTheFirstPlaceAndTheLastValue) {
  EXPECT_EQ(round_trip(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(Value, LargeObjectsFindEveryKey) {
  std::string json = "{";
  for (int i = 0; i < 1000; ++i) {
    json += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":" + std::to_string(i);
  }
  json += "}";
  Arena arena(size_t{4} << 20U);
  const auto value = Value::from_json(json, arena);
  ASSERT_TRUE(value);
  for (int i = 0; i < 1000; ++i) {
    const Value* found = value->find("k" + std::to_string(i));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->as_int(), i);
  }
  EXPECT_EQ(value->find("k1000"), nullptr);

  DictData& dict = value->as_dict();
  for (int i = 0; i < 995; ++i) {
    const std::string key = "k" + std::to_string(i);
    EXPECT_TRUE(dict.erase(arena, Value::string(key)));
  }
  EXPECT_EQ(value->to_python_json(),
            R"({"k995": 995, "k996": 996, "k997": 997, "k998": 998, "k999": 999})");
}

TEST(Value, BrokenJsonIsAnError) {
  for (const std::string_view json :
       {"",    " ",   "{",   "[1,]", "{\"a\"}", "{\"a\":}", "{a:1}",    "tru",     "01",
        "1.",  ".5",  "-",   "1e",   "+1",      "\"a",      "\"\x01\"", "\"\\x\"", "\"\\u12\"",
        "1 2", "[1}", "nul", "--1",  "1e5.5",   "Inf",      "-Inf",     "nan"}) {
    Arena arena(size_t{1} << 20U);
    const auto value = Value::from_json(json, arena);
    ASSERT_FALSE(value) << json;
    EXPECT_EQ(value.error().code(), Code::kInvalidArgument);
  }
}

TEST(Value, JsonBeyondTheArenaIsTooLarge) {
  Arena arena(100);
  const auto value = Value::from_json("[[[[1,2,3,4,5,6,7,8]]]]", arena);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code(), Code::kTooLarge);
}

TEST(Value, EqualityFollowsPython) {
  EXPECT_TRUE(equals(Value::integer(1), Value::number(1.0)));
  EXPECT_TRUE(equals(Value::boolean(true), Value::integer(1)));
  EXPECT_FALSE(equals(Value::string("1"), Value::integer(1)));
  EXPECT_EQ(hash_of(Value::integer(1)), hash_of(Value::number(1.0)));
  EXPECT_EQ(hash_of(Value::boolean(true)), hash_of(Value::integer(1)));
}

}  // namespace
}  // namespace stator::chat_template
