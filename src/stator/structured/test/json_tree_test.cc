// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/json_tree.h"

#include "stator/structured/structured_output.h"
#include "stator/structured/test/expect.h"

namespace stator::structured {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(JsonTree, KeepsEachValuesOwnText) {
  const std::string text = R"( {"a": [1.50, "x\n" , {"b" :null} ] , "c":true, "d":1e3 } )";
  const auto tree = JsonTree::parse(text);
  ASSERT_TRUE(tree.has_value());

  const JsonIndex array = tree->find(0, "a");

  EXPECT_EQ(tree->root().raw, R"({"a": [1.50, "x\n" , {"b" :null} ] , "c":true, "d":1e3 })");
  EXPECT_EQ((*tree)[array].raw, R"([1.50, "x\n" , {"b" :null} ])");
  EXPECT_EQ((*tree)[tree->resolve(array, "/0")].raw, "1.50");
  EXPECT_EQ((*tree)[tree->resolve(array, "/0")].number, 1.5);
  EXPECT_EQ((*tree)[tree->resolve(array, "/1")].raw, R"("x\n")");
  EXPECT_EQ((*tree)[tree->resolve(array, "/1")].text, "x\n");
  EXPECT_EQ((*tree)[tree->resolve(0, "/a/2")].raw, R"({"b" :null})");
  EXPECT_EQ((*tree)[tree->find(0, "c")].boolean, true);
  EXPECT_EQ((*tree)[tree->find(0, "d")].raw, "1e3");
}

TEST(JsonTree, ReadsDocumentsThatAreOneScalar) {
  for (const std::string_view text : {"1", "\"a\"", "true", "null", " 30000000000000000000000 "}) {
    const auto tree = JsonTree::parse(text);
    ASSERT_TRUE(tree.has_value()) << text;
    EXPECT_EQ(tree->size(), 1U);
  }
}

TEST(JsonTree, PointsAtValuesAndFollowsPointers) {
  const auto tree = JsonTree::parse(R"({"a/b":{"~":[0,{"x":1}]},"":2})");
  ASSERT_TRUE(tree.has_value());
  for (JsonIndex i = 0; i < tree->size(); ++i) {
    const std::string pointer = tree->pointer(i);
    EXPECT_EQ(tree->resolve(0, pointer.substr(1)), i) << pointer;
  }
  EXPECT_EQ(tree->pointer(tree->resolve(0, "/a~1b/~0/1/x")), "#/a~1b/~0/1/x");
  for (const std::string_view nowhere : {"/b", "a", "/a~1b/~0/2", "/a~1b/~0/-1", "/a~1b/~0/x"}) {
    EXPECT_EQ(tree->resolve(0, nowhere), kNoJson) << nowhere;
  }
}

TEST(JsonTree, RefusesWhatIsNotOneJsonValue) {
  for (const std::string_view text :
       {"",        " ",    "{",          "}",           "[1",       "[1]]",  "1 2",
        "1],[2",   "[1,]", "{\"a\":1,}", "{\"a\" 1}",   "{a:1}",    "[1 2]", "{\"a\":1 \"b\":2}",
        "tru",     "nul",  "nulll",      "01",          "1.",       ".5",    "+1",
        "\"\\x\"", "\"a",  "\"\x01\"",   "\"\\ud800\"", "\"\xff\"", "1e999", "NaN",
        "[1][2]",  "//a"}) {
    EXPECT_THAT(verdict(JsonTree::parse(text)), StartsWith("is not valid JSON")) << text;
  }
}

TEST(JsonTree, RefusesDuplicateKeysWithTheirPlace) {
  EXPECT_EQ(verdict(JsonTree::parse(R"({"x":{"a":1,"b":2,"a":3}})")),
            "at #/x: the key \"a\" appears twice");
  EXPECT_EQ(verdict(JsonTree::parse(R"([1,[{"a":1,"a":3}]])")),
            "at #/1/0: the key \"a\" appears twice");
}

TEST(JsonTree, BoundsDepthSizeAndValues) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(verdict(JsonTree::parse(nested(kJsonDepthMax))), "ok");
  EXPECT_THAT(verdict(JsonTree::parse(nested(kJsonDepthMax + 1))), HasSubstr("deeper than 128"));
  EXPECT_THAT(verdict(JsonTree::parse(nested(10'000))), HasSubstr("deeper than 128"));

  std::string many = "[0";
  for (uint32_t i = 2; i < kJsonNodesMax; ++i) {
    many += ",0";
  }
  EXPECT_EQ(verdict(JsonTree::parse(many + "]")), "ok");
  const auto too_many = JsonTree::parse(many + ",0]");
  EXPECT_THAT(verdict(too_many), HasSubstr("more than 200000 values"));
  EXPECT_EQ(too_many.error().code, Code::kTooLarge);

  const auto too_long = JsonTree::parse(std::string(kTextBytesMax + 1, ' '));
  EXPECT_THAT(verdict(too_long), HasSubstr("longer than 4 MiB"));
}

TEST(JsonString, EscapesWhatJsonDemands) {
  EXPECT_EQ(json_string("a\"\\\n\t\x01é"), "\"a\\\"\\\\\\n\\t\\u0001é\"");
}

}  // namespace
}  // namespace stator::structured
