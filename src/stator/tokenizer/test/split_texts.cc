// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/test/split_texts.h"

#include "stator/tokenizer/regex.h"
#include "stator/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <iterator>
#include <utility>

namespace stator::tokenizer {
namespace {

/// Characters of every class that the expressions distinguish.
const std::string kAlphabet[] = {
    "a",      "B",      "s",      "T",      "l",          "e",          "'",      "'",
    "\u017f", "1",      "2",      "\u00bd", " ",          " ",          "\n",     "\r",
    "\t",     "\u00a0", "\u3000", "\u180e", ".",          "/",          "(",      "=",
    "\u0301", "\u01c5", "\u02b0", "\u4e2d", "\u306e",     "\U0001F600", "\u2028", "\u0085",
    "\u00e9", "\u00c9", "\u30fb", "\u309b", "\u3099",     "\u3001",     "\u0967", "\uac00",
    "\x01",   "\u200d", "\x7f",   "\u1c89", "\U00010d40", "`",          "~",      "34",
    "567",    "\u1e00", "\uff21", "\u2003", "\u3000",     "\u2039",     "\u00fc", "\u00a9",
    "\u2460", "|"};

}  // namespace

std::vector<std::string> cut(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  EXPECT_TRUE(pre_tokenize(pre_tokenizer, text, TextStart::kYes, pieces).has_value());
  std::vector<std::string> out;
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    out.emplace_back(pieces[i]);
  }
  return out;
}

PreTokenizer regex_split(std::string_view pattern) {
  auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.has_value()) << pattern;
  return {{PreTokenizer::Split{*std::move(regex), PreTokenizer::Behavior::kIsolated}}};
}

PreTokenizer regex_splits(std::span<const std::string_view> expressions) {
  PreTokenizer all;
  for (const std::string_view expression : expressions) {
    all.steps.push_back(regex_split(expression).steps.front());
  }
  return all;
}

std::string text_of_alphabet(Random& random) {
  std::string text;
  for (uint64_t i = 1 + random.below(10); i > 0; --i) {
    text += kAlphabet[random.below(std::size(kAlphabet))];
  }
  return text;
}

std::string text_of_one_block(Random& random) {
  const auto base = static_cast<char32_t>(random.below(random.below(2) == 0 ? 0x3400 : 0x32000));
  std::string text;
  for (int i = 0; i < 30; ++i) {
    const char32_t c = base + static_cast<char32_t>(random.below(128));
    const uint32_t number = UnicodeTable::get().flags(c) & (kDigit | kNumber);
    const bool is_newer = number != 0 && number != (kDigit | kNumber);  // see isolate_digits()
    if (random.below(4) == 0 || (c >= 0xD800 && c < 0xE000) || is_newer) {
      text += kAlphabet[random.below(std::size(kAlphabet))];
    } else {
      append_utf8(text, c);
    }
  }
  return text;
}

}  // namespace stator::tokenizer
