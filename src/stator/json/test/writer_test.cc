// SPDX-License-Identifier: Apache-2.0
#include "stator/json/writer.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>
#include <simdjson.h>

#include "stator/core/random.h"
#include "stator/text/utf8.h"

namespace stator::json {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

std::string parse_back(std::string_view json) {
  simdjson::dom::parser other;
  return std::string(other.parse(json).get_string().value());
}

TEST(JsonString, EscapesWhatJsonDemands) {
  EXPECT_EQ(escaped("a\"b\\c\n\r\t\b\f"), R"("a\"b\\c\n\r\t\b\f")");
  EXPECT_EQ(escaped(std::string_view("\0\x1F", 2)), R"("\u0000\u001f")");
  EXPECT_EQ(escaped("\x7F"), "\"\x7F\"");
}

TEST(JsonString, KeepsTextBeyondAscii) {
  EXPECT_EQ(escaped("grün 漢字 🎉"), "\"grün 漢字 🎉\"");
}

TEST(JsonString, EscapesLineBreaksThatOnlyUnicodeKnows) {
  EXPECT_EQ(escaped("a\xC2\x85"
                    "b\xE2\x80\xA8"
                    "c\xE2\x80\xA9"),
            R"("a\u0085b\u2028c\u2029")");
}

struct BrokenCase {
  std::string_view input;
  std::string_view expected;  // � marks one replacement
};

TEST(JsonString, ReplacesEachBrokenSubpartOnce) {
  const BrokenCase cases[] = {
      {"\xFF", "\"\xEF\xBF\xBD\""},
      {"a\x80z", "\"a\xEF\xBF\xBDz\""},
      {"\xE6\xBC", "\"\xEF\xBF\xBD\""},                              // cut off
      {"\xE6\xBCx", "\"\xEF\xBF\xBDx\""},                            // interrupted
      {"\xC0\xAF", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                  // overlong
      {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},  // surrogate
      {"\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
      {"\xF0\x9F\x8E", "\"\xEF\xBF\xBD\""},
  };
  for (const BrokenCase& c : cases) {
    EXPECT_EQ(escaped(c.input), c.expected);
  }
}

TEST(JsonString, ReadsBackToTheSameTextForRandomUtf8) {
  const char* given = std::getenv("STATOR_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 7;
  SCOPED_TRACE(testing::Message() << "STATOR_TEST_SEED=" << seed);
  Random random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const uint64_t length = random.below(80);
    for (uint64_t i = 0; i < length; ++i) {
      const uint64_t limits[] = {0x20, 0x80, 0x800, 0x10000, 0x110000};
      text::append_utf8(text, static_cast<uint32_t>(random.below(limits[random.below(5)])));
    }

    EXPECT_EQ(parse_back(escaped(text)), text);
  }
}

TEST(JsonString, IsValidUtf8ForRandomBytes) {
  Random random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(random.below(64), '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random.below(256));
    }

    const std::string json = escaped(bytes);

    std::string replaced;
    text::append_lossy(replaced, bytes);
    EXPECT_TRUE(text::is_valid_utf8(json));
    EXPECT_EQ(parse_back(json), replaced);
  }
}

TEST(JsonWriter, PlacesCommasBetweenMembersOnly) {
  std::string out;
  Writer json(out);
  json.begin_object();
  json.key("empty").begin_array().end_array();
  json.key("list").begin_array().value(1).begin_object().end_object().null().end_array();
  json.key("flag").value(true).key("raw").raw("{\"x\":1}").key_escaped("a\"b").value("c");
  json.end_object();
  EXPECT_EQ(out, R"({"empty":[],"list":[1,{},null],"flag":true,"raw":{"x":1},"a\"b":"c"})");
}

TEST(JsonWriter, WritesNumbersExactly) {
  std::string out;
  Writer json(out);
  json.begin_array();
  json.value(std::numeric_limits<int64_t>::min()).value(std::numeric_limits<uint64_t>::max());
  json.value(uint8_t{200}).value(0.1).value(-1.5F).value(-9999.0F).value(1e300);
  json.end_array();
  EXPECT_EQ(out, "[-9223372036854775808,18446744073709551615,200,0.1,-1.5,-9999,1e+300]");
}

TEST(JsonWriter, WritesNullForWhatJsonCannotSay) {
  std::string out;
  Writer json(out);
  json.begin_array().value(std::nan("")).value(std::numeric_limits<float>::infinity()).end_array();
  EXPECT_EQ(out, "[null,null]");
}

}  // namespace
}  // namespace stator::json
