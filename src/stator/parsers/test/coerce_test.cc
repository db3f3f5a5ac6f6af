// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/coerce.h"

#include <gtest/gtest.h>

namespace stator::parsers {
namespace {

std::string coerce(std::string_view text, std::vector<ValueKind> kinds) {
  ValueSchema schema;
  schema.kinds = std::move(kinds);
  std::string out;
  append_coerced(out, text, &schema);
  return out;
}

std::string guess(std::string_view text) {
  std::string out;
  append_coerced(out, text, nullptr);
  return out;
}

TEST(Coerce, KeepsTextWhereTheSchemaSaysString) {
  EXPECT_EQ(coerce("42", {ValueKind::kString}), "\"42\"");
  EXPECT_EQ(coerce(" {\"a\":1} ", {ValueKind::kString}), "\" {\\\"a\\\":1} \"");
  EXPECT_EQ(coerce("null", {ValueKind::kString}), "\"null\"");
  EXPECT_EQ(coerce("", {ValueKind::kString}), "\"\"");
}

TEST(Coerce, ReadsJsonThenPythonThenText) {
  EXPECT_EQ(coerce("12345678901234567890", {ValueKind::kInteger}), "12345678901234567890");
  EXPECT_EQ(coerce(" 1.50\n", {ValueKind::kNumber}), "1.50");
  EXPECT_EQ(coerce("TRUE", {ValueKind::kBoolean}), "true");
  EXPECT_EQ(coerce("False", {ValueKind::kBoolean}), "false");
  EXPECT_EQ(coerce("None", {ValueKind::kNull}), "null");
  EXPECT_EQ(coerce("{'a': [1, None]}", {ValueKind::kObject}), "{\"a\":[1,null]}");
  EXPECT_EQ(coerce("many", {ValueKind::kInteger}), "\"many\"");
}

TEST(Coerce, TakesOneAndZeroForBooleans) {
  EXPECT_EQ(coerce("1", {ValueKind::kBoolean}), "true");
  EXPECT_EQ(coerce(" 0 ", {ValueKind::kBoolean, ValueKind::kNull}), "false");
  EXPECT_EQ(coerce("1", {ValueKind::kBoolean, ValueKind::kInteger}), "1");
  EXPECT_EQ(coerce("1", {ValueKind::kBoolean, ValueKind::kString}), "\"1\"");
  EXPECT_EQ(coerce("2", {ValueKind::kBoolean}), "2");
}

TEST(Coerce, TriesSeveralTypesAndTextLast) {
  const std::vector<ValueKind> number_or_text = {ValueKind::kString, ValueKind::kInteger};
  EXPECT_EQ(coerce("5", number_or_text), "5");
  EXPECT_EQ(coerce("5.0", number_or_text), "5.0");
  EXPECT_EQ(coerce("5.5", number_or_text), "\"5.5\"");
  EXPECT_EQ(coerce("[5]", number_or_text), "\"[5]\"");
  EXPECT_EQ(coerce("null", {ValueKind::kInteger, ValueKind::kNull}), "null");
  EXPECT_EQ(coerce("5", {ValueKind::kNumber, ValueKind::kString}), "5");
}

TEST(Coerce, GuessesOnlyWhatWritesBackTheSame) {
  for (const std::string_view same :
       {"0", "-7", "1.5", "0.1", "2.0", "true", "null", "[1, 2]", "{\"a\": \"1.10\"}",
        "99999999999999999999", "-12.75", "0.001", "123456789.12345", "1234567890123.25", "-0.5"}) {
    EXPECT_EQ(guess(same), same);
  }
  for (const std::string_view other :
       {"007", "1.10", "1e5", "-0", "+1", " 1", "True", "[1.10]", "{'a': 1}", "", "1.", "0x10",
        "nan", "tru", "-1.50", "100000.0", "0.00001", "1.0000000000000001",
        "12345678901234567.5"}) {
    EXPECT_EQ(guess(other), "\"" + std::string(other) + "\"") << other;
  }
  EXPECT_EQ(guess("\"q\""), "\"\\\"q\\\"\"");
}

}  // namespace
}  // namespace stator::parsers
