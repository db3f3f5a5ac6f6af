// SPDX-License-Identifier: Apache-2.0
#include "stator/json/cursor.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include "stator/core/random.h"
#include "stator/json/detail/byte_scan.h"

namespace stator::json {
namespace {

bool accepts(std::string_view text, uint32_t depth_max = 128) {
  Cursor json(text, depth_max);
  return json.skip() && json.finish();
}

TEST(JsonCursor, AcceptsEveryKindOfValue) {
  for (const std::string_view text :
       {"null", "true", "false", "0", "-0", "1.5e+3", "-12E-2", "\"\"", "\"\\u00e9\\n\\/\"", "[]",
        "{}", " [ 1 , [ ] , { } ] ", "{\"a\":{\"b\":[null]}}", "123456789012345678901234567890",
        "1e999", "\"\\ud800\""}) {
    EXPECT_TRUE(accepts(text)) << text;
  }
}

struct Malformed {
  std::string_view text;
  std::string_view error;
  size_t position;
};

TEST(JsonCursor, NamesErrorAndPosition) {
  const Malformed cases[] = {
      {"", "text ends where a value is expected", 0},
      {"  ", "text ends where a value is expected", 2},
      {"x", "expected a value", 0},
      {"nul", "unknown literal", 0},
      {"truex", "something follows the JSON value", 4},
      {"NaN", "expected a value", 0},
      {"01", "number with leading zero", 1},
      {"-", "malformed number", 1},
      {"1.", "malformed number", 2},
      {".5", "expected a value", 0},
      {"1e", "malformed number", 2},
      {"+1", "expected a value", 0},
      {"[1", "expected ',' or ']'", 2},
      {"[1,]", "expected a value", 3},
      {"[1 2]", "expected ',' or ']'", 3},
      {"[,1]", "expected a value", 1},
      {"{\"a\" 1}", "expected ':'", 5},
      {"{\"a\":1,}", "expected a string", 7},
      {"{a:1}", "expected a string", 1},
      {"{\"a\":1", "expected ',' or '}'", 6},
      {"{\"a\":}", "expected a value", 5},
      {"\"abc", "string without closing quote", 4},
      {"\"a\nb\"", "control character inside a string", 2},
      {"\"\\x\"", "unknown escape in a string", 2},
      {"\"\\u12g4\"", "\\u without four hexadecimal digits", 2},
      {"\"\\u12", "\\u without four hexadecimal digits", 2},
      {"\"\\", "unknown escape in a string", 2},
      {"[1] []", "something follows the JSON value", 4},
      {"]", "expected a value", 0},
  };
  for (const Malformed& c : cases) {
    Cursor json(c.text, 128);
    EXPECT_FALSE(json.skip() && json.finish()) << c.text;
    EXPECT_EQ(json.error(), c.error) << c.text;
    EXPECT_EQ(json.position(), c.position) << c.text;
  }
}

TEST(JsonCursor, StopsAtTheDepthLimit) {
  const std::string inside = std::string(5, '[') + std::string(5, ']');
  EXPECT_TRUE(accepts(inside, 5));
  EXPECT_FALSE(accepts(inside, 4));
  EXPECT_FALSE(accepts(std::string(1'000'000, '['), 128));
}

TEST(JsonCursor, SlicesValuesVerbatim) {
  const std::string_view text = R"( {"a" :  [1.0, 2e5 ] , "b": 1e400} )";
  Cursor json(text, 8);
  std::string_view key;
  std::string storage;
  std::string_view raw;

  ASSERT_TRUE(json.enter_object());
  ASSERT_TRUE(json.next_key(key, storage) && json.skip(raw));
  EXPECT_EQ(key, "a");
  EXPECT_EQ(raw, "[1.0, 2e5 ]");
  ASSERT_TRUE(json.next_key(key, storage) && json.skip(raw));
  EXPECT_EQ(raw, "1e400");
  EXPECT_FALSE(json.next_key(key, storage));
  EXPECT_TRUE(json.finish());
}

TEST(JsonCursor, DecodesEscapesAndPairs) {
  const std::string_view text = R"("a\"\\\/\b\f\n\r\t\u0041\u00e9\u6f22\ud83c\udf89")";
  Cursor json(text, 1);
  std::string_view value;
  std::string storage;
  ASSERT_TRUE(json.read_string(value, storage));
  EXPECT_EQ(value, "a\"\\/\b\f\n\r\tAé漢🎉");
}

TEST(JsonCursor, DecodesLoneSurrogatesAsReplacement) {
  for (const std::string_view text : {R"("\ud800")", R"("\udc00")"}) {
    Cursor json(text, 1);
    std::string_view value;
    std::string storage;
    ASSERT_TRUE(json.read_string(value, storage));
    EXPECT_EQ(value, "\xEF\xBF\xBD");
  }
  Cursor json(R"("\ud800\u0041")", 1);
  std::string_view value;
  std::string storage;
  ASSERT_TRUE(json.read_string(value, storage));
  EXPECT_EQ(value,
            "\xEF\xBF\xBD"
            "A");
}

TEST(JsonCursor, StaysStillAfterAnError) {
  Cursor json("[x, 1]", 8);
  std::string_view view;
  std::string storage;
  bool flag = false;
  ASSERT_TRUE(json.enter_array());
  ASSERT_TRUE(json.next_element());
  ASSERT_FALSE(json.skip());
  const size_t position = json.position();

  EXPECT_FALSE(json.next_element());
  EXPECT_FALSE(json.skip(view));
  EXPECT_FALSE(json.read_bool(flag));
  EXPECT_FALSE(json.read_null());
  EXPECT_FALSE(json.read_number(view));
  EXPECT_FALSE(json.read_string(view, storage));
  EXPECT_FALSE(json.enter_object());
  EXPECT_FALSE(json.finish());
  EXPECT_EQ(json.peek(), Kind::kInvalid);
  EXPECT_EQ(json.position(), position);
}

// Damages valid documents at random and compares the verdict with an independent parser.
TEST(JsonCursor, AgreesWithAnotherParserOnDamagedText) {
  const std::string_view seeds[] = {
      R"({"model":"m","messages":[{"role":"user","content":"hi \u00e9\n"}],"n":1,"x":[1.5e-3,true]})",
      R"([[],{},[{"a":null}],-0.0,"\\",false])",
  };
  constexpr std::string_view kAlphabet = "{}[]\",:\\0123456789.eE+-truefalsn u\t";
  Random random(17);
  simdjson::dom::parser other;
  for (int round = 0; round < 20000; ++round) {
    std::string text(seeds[random.below(2)]);
    for (uint64_t edits = 1 + random.below(3); edits > 0; --edits) {
      const size_t at = random.below(text.size());
      const char byte = kAlphabet[random.below(kAlphabet.size())];
      if (random.below(2) == 0) {
        text[at] = byte;
      } else {
        text.insert(at, 1, byte);
      }
    }
    if (text.find("\\u") != std::string::npos && text.find("\\ud") != std::string::npos) {
      continue;  // lone surrogates are accepted here and refused there
    }
    const simdjson::error_code error = other.parse(text).error();
    if (error == simdjson::NUMBER_ERROR && accepts(text)) {
      continue;  // 1e999 is JSON, but no double
    }

    EXPECT_EQ(accepts(text), error == simdjson::SUCCESS) << text;
  }
}

TEST(FindRunEnd, FindsEachStopperAtEachPlace) {
  for (const char stopper : {'"', '\\', '\n', '\0', '\x1F'}) {
    for (size_t at = 0; at < 70; ++at) {
      std::string text(70, 'a');
      text[at] = stopper;
      EXPECT_EQ(find_run_end<StopAt::kSpecial>(text, 0), at);
      EXPECT_EQ(find_run_end<StopAt::kSpecialOrNonAscii>(text, 0), at);
      EXPECT_EQ(find_run_end<StopAt::kSpecial>(text, at + 1), text.size());
    }
  }
}

TEST(FindRunEnd, TellsNonAsciiOnlyWhenAsked) {
  for (const char high : {'\x80', '\xC3', '\xFF'}) {
    for (size_t at = 0; at < 40; ++at) {
      std::string text(40, ' ');
      text[at] = high;
      EXPECT_EQ(find_run_end<StopAt::kSpecial>(text, 0), text.size());
      EXPECT_EQ(find_run_end<StopAt::kSpecialOrNonAscii>(text, 0), at);
    }
  }
}

}  // namespace
}  // namespace stator::json
