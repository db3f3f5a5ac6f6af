// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/test/golden_files.h"

#include "stator/tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>

namespace stator::tokenizer::test {
namespace {

using Json = simdjson::dom::element;

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (size_t at = 0; at + 1 < digits.size(); at += 2) {
    unsigned value = 0;
    std::from_chars(digits.data() + at, digits.data() + at + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

std::string text_of(Json item) {
  std::string_view text;
  if (item["text"].get(text) == simdjson::SUCCESS) {
    return std::string(text);
  }
  EXPECT_EQ(item["hex"].get(text), simdjson::SUCCESS);
  return from_hex(text);
}

std::vector<TokenId> ids_or(Json entry, std::string_view name,
                            const std::vector<TokenId>& if_absent) {
  simdjson::dom::array array;
  if (entry[name].get(array) != simdjson::SUCCESS) {
    return if_absent;
  }
  std::vector<TokenId> ids;
  for (const Json value : array) {
    ids.push_back(static_cast<TokenId>(value.get_uint64().value_unsafe()));
  }
  return ids;
}

std::string string_or(Json entry, std::string_view name, const std::string& if_absent) {
  std::string_view text;
  return entry[name].get(text) == simdjson::SUCCESS ? std::string(text) : if_absent;
}

simdjson::dom::array parse(simdjson::dom::parser& parser, const std::string& path) {
  simdjson::dom::array items;
  EXPECT_EQ(parser.load(path).get(items), simdjson::SUCCESS) << path;
  return items;
}

}  // namespace

std::string testdata_path(const std::string& relative) {
  return std::string(STATOR_SOURCE_DIR) + "/src/stator/tokenizer/testdata/" + relative;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<Golden> read_goldens(const std::string& name) {
  simdjson::dom::parser text_parser;
  simdjson::dom::parser golden_parser;
  const auto texts = parse(text_parser, testdata_path("texts.json"));
  const auto entries = parse(golden_parser, testdata_path("goldens/" + name + ".json"));
  EXPECT_EQ(texts.size(), entries.size()) << "run make_goldens.py";
  std::vector<Golden> goldens;
  auto entry = entries.begin();
  for (const Json item : texts) {
    Golden golden;
    golden.bytes = text_of(item);
    std::string text;
    append_lossy(text, golden.bytes);
    golden.ids = ids_or(*entry, "ids", {});
    golden.special = ids_or(*entry, "special", golden.ids);
    golden.plain = ids_or(*entry, "plain", golden.ids);
    golden.decoded = string_or(*entry, "decoded", text);
    golden.skipped = string_or(*entry, "skipped", golden.decoded);
    goldens.push_back(std::move(golden));
    ++entry;
  }
  return goldens;
}

}  // namespace stator::tokenizer::test
