// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/python_literal.h"

#include <gtest/gtest.h>

namespace stator::parsers {
namespace {

std::string value_of(std::string_view text) {
  std::string out = "before ";
  return append_python_value(out, text) ? out.substr(7) : (out == "before " ? "refused" : "dirty");
}

struct Row {
  std::string_view python;
  std::string_view json;
};

TEST(PythonLiteral, IsSpelledAsJson) {
  constexpr Row kRows[] = {
      {"True", "true"},
      {" None ", "null"},
      {"false", "false"},
      {"42", "42"},
      {"-42", "-42"},
      {"--1", "1"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"1_000_000", "1000000"},
      {"007", "7"},
      {"000", "0"},
      {"0x1F", "31"},
      {"0o17", "15"},
      {"0b101", "5"},
      {"1.50", "1.50"},
      {"1.", "1.0"},
      {".5", "0.5"},
      {"-2.e3", "-2.0e3"},
      {"1E+5", "1E+5"},
      {"'a'", "\"a\""},
      {"\"it's\"", "\"it's\""},
      {"''", "\"\""},
      {"'''a'b\n'''", "\"a'b\\n\""},
      {"'a' \"b\"  'c'", "\"abc\""},
      {"r'\\d'", "\"\\\\d\""},
      {"u'x'", "\"x\""},
      {"'\\n\\t\\\\\\'\\\"\\a\\x41\\101\\u00e9\\U0001F306\\q'",
       "\"\\n\\t\\\\'\\\"\\u0007AAé🌆\\\\q\""},
      {"'\\ud83c\\udf06'", "\"🌆\""},
      {"'a\\\nb'", "\"ab\""},
      {"'C:\\x \\u12 \\ud83c\\u0041'",
       "\"C:\\\\x \\\\u12 \xEF\xBF\xBD"
       "A\""},
      {"'it's'", "\"it's\""},
      {"['sed -n '1,5p' x', 'say 'hi'']", "[\"sed -n '1,5p' x\",\"say 'hi'\"]"},
      {"'東京 ß'", "\"東京 ß\""},
      {"[1, 'a', [], ()]", "[1,\"a\",[],[]]"},
      {"(1,)", "[1]"},
      {"(1)", "1"},
      {"[('a' 'b')]", "[\"ab\"]"},
      {"(1, 2)", "[1,2]"},
      {"[1, 2, ]", "[1,2]"},
      {"{}", "{}"},
      {"{'a': 1, \"b\": {'c': None}}", "{\"a\":1,\"b\":{\"c\":null}}"},
      {"{1: 2, None: 3}", "{\"1\":2,\"null\":3}"},
      {"{1, 2}", "[1,2]"},
  };
  for (const Row& row : kRows) {
    EXPECT_EQ(value_of(row.python), row.json) << row.python;
  }
}

TEST(PythonLiteral, RefusesEverythingElse) {
  for (const std::string_view text :
       {"",          " ",         "x",         "f()",        "1 + 2",
        "1 2",       "[1 2]",     "[1",        "(1",         "1]",
        "'a",        "'''a'",     "b'x'",      "f'{x}'",     "rb'x'",
        "{1: 2, 3}", "{1, 2: 3}", "{[1]: 2}",  "{'a' 1}",    "-",
        ".",         "1e",        "1x",        "0x",         "0xfffffffffffffffff",
        "'\\'",      "[,]",       "lambda: 1", "True False", "__import__"}) {
    EXPECT_EQ(value_of(text), "refused") << text;
  }
}

TEST(PythonLiteral, NestsOnlySoDeep) {
  const std::string deep(kMaxPythonDepth - 1, '[');
  const std::string too_deep(100'000, '[');

  EXPECT_EQ(value_of(deep + "1" + std::string(deep.size(), ']')).size(), 2 * deep.size() + 1);
  EXPECT_EQ(value_of(too_deep + "1" + std::string(too_deep.size(), ']')), "refused");
}

TEST(PythonLiteral, ReadsKeywordArguments) {
  std::string out;
  EXPECT_TRUE(append_python_arguments(out, " a=1,\n b = 'x', größe=[True], "));
  EXPECT_EQ(out, "{\"a\":1,\"b\":\"x\",\"größe\":[true]}");

  out.clear();
  EXPECT_TRUE(append_python_arguments(out, "  "));
  EXPECT_EQ(out, "{}");
}

TEST(PythonLiteral, RefusesOtherArguments) {
  for (const std::string_view text :
       {"1", "a", "a=", "a=1 b=2", "a=1,,", ",", "a=f(x=1)", "**a", "1=2", "a==1", "a=1, b"}) {
    std::string out = "kept";
    EXPECT_FALSE(append_python_arguments(out, text)) << text;
    EXPECT_EQ(out, "kept") << text;
  }
}

struct EndRow {
  std::string_view text;
  size_t end;
};

TEST(PythonCallScanner, FindsTheClosingParenthesisHoweverTheTextIsCut) {
  constexpr size_t kNone = std::string_view::npos;
  constexpr EndRow kRows[] = {
      {")", 0},           {"a=1) b", 3},  {"a=(1, [2]))", 10},     {"a=')')", 5},
      {"a='\\')')", 7},   {"a=\"\")", 4}, {"a='''it's )''')", 14}, {"a='''x\\''')''')", 14},
      {"a=''''''), ", 8}, {"a=(", kNone}, {"a='''')", kNone},
  };
  for (const EndRow& row : kRows) {
    SCOPED_TRACE(row.text);
    PythonCallScanner whole;
    EXPECT_EQ(whole.find_end(row.text, Window::Ending::kYes), row.end);
    PythonCallScanner bytewise;
    size_t end = kNone;
    for (size_t size = 1; size <= row.text.size() && end == kNone; ++size) {
      end = bytewise.find_end(row.text.substr(0, size), Window::Ending::kNo);
    }
    if (end == kNone) {
      end = bytewise.find_end(row.text, Window::Ending::kYes);
    }
    EXPECT_EQ(end, row.end);
  }
}

}  // namespace
}  // namespace stator::parsers
