// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/json_stream.h"

#include <gtest/gtest.h>

namespace stator::parsers {
namespace {

struct Read {
  std::string out;
  size_t used = 0;
  JsonStream::Status status = JsonStream::Status::kMore;
  bool repaired = false;
};

Read read(std::string_view text) {
  JsonStream stream;
  Read result;
  result.used = stream.feed(text, result.out);
  stream.end(result.out);
  result.status = stream.status();
  result.repaired = stream.repaired();
  return result;
}

TEST(JsonStream, WritesAValueThroughUnchanged) {
  for (const std::string_view text :
       {"{}", "[]", "{ \"a\" : [1, -0.50, 1E+5, true, null, \"\\u00e9\\n\\/\"] }", "\"x\"", "12",
        "-0", "1.5e-3", "false", "{\"a\":{\"b\":[[{}]]}}", "\"漢字\""}) {
    const Read result = read(text);
    EXPECT_EQ(result.out, text);
    EXPECT_EQ(result.status, JsonStream::Status::kDone) << text;
    EXPECT_FALSE(result.repaired);
  }
}

TEST(JsonStream, StopsBehindTheValue) {
  const Read result = read(" {\"a\":1} trailing");
  EXPECT_EQ(result.used, 8U);
  EXPECT_EQ(result.out, "{\"a\":1}");
}

TEST(JsonStream, StopsAtWhatIsNotJson) {
  for (const std::string_view text :
       {"{a}", "{\"a\" 1}", "{\"a\":}", "[1 2]", "[1,]x", "{\"a\":1,}", "[01]", "1.", "-", "1e",
        "tru", "+1", "}", "\"\\u12g4\"", "nan", "{\"a\":1]", "'a'"}) {
    const Read result = read(text);
    EXPECT_NE(result.status, JsonStream::Status::kDone) << text;
  }
  EXPECT_EQ(read("{\"a\": oops}").out, "{\"a\": ");
}

TEST(JsonStream, SpellsWhatModelsGetWrongAsJson) {
  EXPECT_EQ(read("\"a\nb\tc\x01\"").out, "\"a\\nb\\tc\\u0001\"");
  EXPECT_EQ(read(R"("\d+ it\'s")").out, R"("\\d+ it's")");
  EXPECT_EQ(read("[True, False, None]").out, "[true, false, null]");
  EXPECT_TRUE(read("[True]").repaired);
}

TEST(JsonStream, IsTheSameByteByByte) {
  const std::string text = R"({"a\"b": ["x\u00e9\d", 1.50, True, {"c": []}], "é": null} rest)";
  const Read whole = read(text);
  JsonStream stream;
  std::string out;
  size_t used = 0;
  for (const char& byte : text) {
    used += stream.feed(std::string_view(&byte, 1), out);
  }
  EXPECT_EQ(out, whole.out);
  EXPECT_EQ(used, whole.used);
}

TEST(JsonStream, BoundsItsDepth) {
  const std::string fits = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_EQ(read(fits).status, JsonStream::Status::kDone);
  EXPECT_EQ(read("[" + fits + "]").status, JsonStream::Status::kMalformed);
}

TEST(AppendUnescaped, DecodesEveryEscape) {
  std::string out;
  EXPECT_TRUE(append_unescaped(out, R"(a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00)"));
  EXPECT_EQ(out, "a\"\\/\b\f\n\r\té😀");
}

TEST(AppendUnescaped, ReplacesLoneSurrogatesAndStopsAtBrokenEscapes) {
  std::string out;
  EXPECT_TRUE(append_unescaped(out, R"(\ud83dx\ude00)"));
  EXPECT_EQ(out, "\uFFFDx\uFFFD");
  EXPECT_FALSE(append_unescaped(out, R"(\x)"));
  EXPECT_FALSE(append_unescaped(out, R"(\u12)"));
  EXPECT_FALSE(append_unescaped(out, "\\"));
}

TEST(EscapeLength, WaitsForAPairOfSurrogates) {
  EXPECT_EQ(escape_length("\\"), 0U);
  EXPECT_EQ(escape_length(R"(\n)"), 2U);
  EXPECT_EQ(escape_length(R"(\u00)"), 0U);
  EXPECT_EQ(escape_length(R"(\u00e9)"), 6U);
  EXPECT_EQ(escape_length(R"(\ud83d)"), 0U);
  EXPECT_EQ(escape_length(R"(\ud83d\)"), 0U);
  EXPECT_EQ(escape_length(R"(\ud83d\ude0)"), 0U);
  EXPECT_EQ(escape_length(R"(\ud83d\ude00)"), 12U);
  EXPECT_EQ(escape_length(R"(\ud83dx)"), 6U);
  EXPECT_EQ(escape_length(R"(\ud83d\u0041)"), 6U);
  EXPECT_EQ(escape_length(R"(\q)"), 1U);
  EXPECT_EQ(escape_length(R"(\u0g)"), 1U);
}

TEST(AppendJsonString, EscapesOnlyWhatMustBe) {
  std::string out;
  append_json_string(out, "a\"b\\c\nd\x02é/");
  EXPECT_EQ(out, "\"a\\\"b\\\\c\\nd\\u0002é/\"");
}

TEST(JsonString, IsAppendedWithNothingBehindItHoweverTheStringGrows) {
  for (size_t before = 0; before < 40; ++before) {
    for (size_t size = 0; size < 40; ++size) {
      std::string out(before, 'b');
      const std::string text(size, 't');
      append_json_string(out, text);
      EXPECT_EQ(out, std::string(before, 'b') + '"' + text + '"');
    }
  }
}

}  // namespace
}  // namespace stator::parsers
