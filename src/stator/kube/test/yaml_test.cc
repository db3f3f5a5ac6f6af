// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/yaml.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::kube {
namespace {

std::string as_json(std::string_view yaml) {
  auto documents = parse_yaml(yaml, "test");
  if (!documents) {
    return documents.error().message();
  }
  std::string out;
  for (const json::Value& document : *documents) {
    out += json::to_text(document) + "\n";
  }
  return out;
}

TEST(Yaml, PlainScalarsHaveTheTypesOfTheCoreSchema) {
  EXPECT_EQ(
      as_json("[true, False, null, ~, 12, -3, 1.50, 1e5, 0x1F, 0o17, .5, 007, yes, on, 1:30]"),
      "[true,false,null,null,12,-3,1.50,1e5,31,15,0.5,7,\"yes\",\"on\",\"1:30\"]\n");
}

TEST(Yaml, QuotedScalarsStayStrings) {
  EXPECT_EQ(as_json("a: \"true\"\nb: '123'\nc: \"\"\nd: |\n  12\ne: !!str 5\n"),
            R"({"a":"true","b":"123","c":"","d":"12\n","e":"5"})"
            "\n");
}

TEST(Yaml, ReadsDocumentsAndMergesKeys) {
  EXPECT_EQ(as_json("---\n---\nx: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\n---\n[1]\n"),
            R"({"x":{"a":1,"b":2},"y":{"b":3,"a":1}})"
            "\n[1]\n");
}

TEST(Yaml, ErrorsNameThePlace) {
  EXPECT_EQ(as_json("a: 1\na: 2\n"), "test:2:1: key 'a' is there twice");
  EXPECT_TRUE(as_json("a: [1\n").starts_with("test:2:1: ")) << as_json("a: [1\n");
}

TEST(Yaml, AStrayCommaIsAnErrorAndNoEndlessDocument) {
  EXPECT_FALSE(parse_yaml("\xff:\n", "f.yaml").has_value()) << "not UTF-8";
  for (const std::string_view text : {",", ",ruea\",:", "]", "---\n,\n"}) {
    EXPECT_FALSE(parse_yaml(text, "f.yaml").has_value()) << text;
  }
  EXPECT_TRUE(parse_yaml("---\n---\n\n---\na: 1\n...\n", "f.yaml").has_value());
}

TEST(Yaml, BoundsWhatAliasesUnfoldTo) {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{0}: &a{0} [", i);
    for (int j = 0; j < 10; ++j) {
      bomb += fmt::format("{}*a{}", j == 0 ? "" : ",", i - 1);
    }
    bomb += "]\n";
  }
  const auto result = parse_yaml(bomb, "bomb", {.values_max = 100'000});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::kTooLarge);
}

json::Value random_value(Random& random, int depth) {
  static const std::array<std::string_view, 22> kTexts = {
      "",     "a",    "true", "no",         "12",   "1e5",        " x",    "x ",
      "a: b", "a #b", "- x",  "line\n",     "a\nb", "a\n\nb\n\n", "\ttab", "\"q\"",
      "é",    "{}",   "key:", "2001-01-01", "\x01", "a\n  b\n c"};
  switch (random.below(depth > 3 ? 4 : 6)) {
    case 0:
      return json::Value(kTexts[random.below(kTexts.size())]);
    case 1:
      return json::Value(static_cast<int64_t>(random.below(1000)));
    case 2:
      return json::Value(random.below(2) == 0);
    case 3:
      return json::Value();
    case 4: {
      json::Value list = json::Value::array();
      for (uint64_t i = random.below(4); i > 0; --i) {
        list.push_back(random_value(random, depth + 1));
      }
      return list;
    }
    default: {
      json::Value object = json::Value::object();
      for (uint64_t i = random.below(4); i > 0; --i) {
        object[kTexts[random.below(kTexts.size())]] = random_value(random, depth + 1);
      }
      return object;
    }
  }
}

TEST(Yaml, WhatIsWrittenReadsBackTheSame) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    json::Value value = json::Value::object();
    value["v"] = random_value(random, 0);
    const std::string text = to_yaml(value);
    const auto back = parse_yaml(text, "test");
    ASSERT_TRUE(back) << back.error().message() << "\n" << text;
    ASSERT_EQ(back->size(), 1U) << text;
    ASSERT_EQ(json::to_text(back->front()), json::to_text(value)) << text;
  }
}

}  // namespace
}  // namespace stator::kube
