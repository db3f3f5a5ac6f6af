// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/split_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/tokenizer/pipeline.h"

namespace stator::tokenizer {
namespace {

const std::string kModels = STATOR_SOURCE_DIR "/src/stator/tokenizer/testdata/models/";

std::unique_ptr<Tokenizer> load_model(const std::string& name) {
  std::ifstream file(kModels + name);
  std::stringstream text;
  text << file.rdbuf();
  auto tokenizer = Tokenizer::from_json(text.str());
  EXPECT_TRUE(tokenizer.has_value()) << name;
  return std::move(*tokenizer);
}

/// Text of the fragments that split expressions and added tokens care about.
std::string random_text(Random& random, const Tokenizer& tokenizer) {
  static const std::vector<std::string> kFragments = {
      " ",     "  ",        "\n",       "\n\n",         "\r\n",         "\t",
      "a",     "B",         "word",     "Word",         "WORD",         "'s",
      "'LL",   "'\xC5\xBF", "1",        "2345",         "...",          "/",
      "//\n/", "\xC3\xA9",  "\xCC\x81", "\xE4\xB8\xAD", "\xE3\x81\x82", "_",
      "<",     "<|",        "\xC2\xA0", "\xE3\x80\x80", "\xED\x95\x9C", "\xD9\x85",
      "\xFF",  "e\xCC\x81", "x y",      "\nline",       "don't ",       "\xF0\x9F\x98\x80"};
  const auto& added = tokenizer.pipeline().raw_added_tokens.tokens();
  const auto& normalized = tokenizer.pipeline().normalized_added_tokens.tokens();
  std::string text;
  for (uint64_t i = 0, count = 1 + random.below(30); i < count; ++i) {
    const uint64_t kind = random.below(12);
    if (kind == 0 && !added.empty()) {
      text += added[random.below(added.size())].content;
    } else if (kind == 1 && !normalized.empty()) {
      text += normalized[random.below(normalized.size())].content;
    } else {
      text += kFragments[random.below(kFragments.size())];
    }
  }
  return text;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            SpecialTokens special = SpecialTokens::kParse) {
  std::vector<TokenId> ids;
  EXPECT_TRUE(tokenizer.encode(text, {.special_tokens = special}, ids).has_value());
  return ids;
}

/// Encodes random texts cut at every safe place; counts cuts.
size_t expect_cuts_are_safe(const Tokenizer& tokenizer, SpecialTokens special, uint64_t seed) {
  Random random(seed);
  size_t cuts = 0;
  for (int round = 0; round < 700; ++round) {
    const std::string text = random_text(random, tokenizer);
    const auto whole = encode(tokenizer, text, special);
    std::vector<TokenId> parts;
    size_t begin = 0;
    while (begin < text.size()) {
      const size_t end = tokenizer.safe_cuts().find(text, begin + 1, special);
      const auto part = encode(tokenizer, text.substr(begin, end - begin), special);
      parts.insert(parts.end(), part.begin(), part.end());
      cuts += end < text.size() ? 1 : 0;
      begin = end;
    }
    EXPECT_EQ(parts, whole) << "seed " << seed << " round " << round << ": " << text;
    if (parts != whole) {
      break;
    }
  }
  return cuts;
}

TEST(SafeCuts, NeverChangeTheIdsOfAnyModel) {
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    const auto tokenizer = load_model(name);
    expect_cuts_are_safe(*tokenizer, SpecialTokens::kParse, 1);
    expect_cuts_are_safe(*tokenizer, SpecialTokens::kAsText, 2);
  }
}

TEST(SafeCuts, ArePlentifulInTheExpressionsInUse) {
  const std::set<std::string> spaces_only = {"gpt2", "starcoder", "falcon"};
  for (const std::string name :
       {"gpt2", "starcoder", "falcon", "llama3", "qwen2", "qwen35", "o200k", "deepseek3",
        "deepseek_llm", "bloom", "viking", "exaone_moe"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = load_model(name + ".json");
    EXPECT_EQ(tokenizer->safe_cuts().before_spaces(), name != "exaone_moe");
    EXPECT_EQ(tokenizer->safe_cuts().after_lines(), !spaces_only.contains(name));
    EXPECT_GT(expect_cuts_are_safe(*tokenizer, SpecialTokens::kAsText, 3), 500U);
  }
}

TEST(SafeCuts, ModelsThatTreatTheStartOfTextApartAreCutOnlyBeforeSpecialTokens) {
  for (const char* name : {"sentencepiece.json", "gemma.json", "words.json"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = load_model(name);
    EXPECT_FALSE(tokenizer->safe_cuts().before_spaces());
    EXPECT_FALSE(tokenizer->safe_cuts().after_lines());
  }
}

/// A tokenizer with Llama 3's expression, some merges and the given added tokens.
std::unique_ptr<Tokenizer> with_added_tokens(const std::string& added_tokens) {
  std::ifstream file(kModels + "llama3.json");
  std::stringstream text;
  text << file.rdbuf();
  std::string json = text.str();
  const size_t list = json.find("\"added_tokens\"");
  const size_t begin = json.find('[', list);
  json.replace(begin, json.find(']', begin) + 1 - begin, "[" + added_tokens + "]");
  auto tokenizer = Tokenizer::from_json(json);
  EXPECT_TRUE(tokenizer.has_value());
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

std::string added_token(const std::string& content, const std::string& fields = "") {
  static int id = 900000;
  return "{\"id\":" + std::to_string(++id) + ",\"content\":\"" + content +
         "\",\"single_word\":" + (fields == "single_word" ? "true" : "false") +
         ",\"lstrip\":" + (fields == "lstrip" ? "true" : "false") +
         ",\"rstrip\":" + (fields == "rstrip" ? "true" : "false") +
         ",\"normalized\":" + (fields == "normalized" ? "true" : "false") +
         ",\"special\":" + (fields == "plain" ? "false" : "true") + "}";
}

TEST(SafeCuts, GiveWayToAddedTokensThatCouldReachAcross) {
  struct Case {
    std::string added;
    bool spaces;
    bool lines;
    bool tokens;
  };
  const std::vector<Case> cases = {
      {added_token("<|a|>"), true, true, true},
      {added_token("<|a|>", "rstrip"), true, true, true},
      {added_token("<|a|>", "plain"), true, true, false},
      {added_token("<|a|>", "lstrip"), true, true, false},
      {added_token("<|a|>", "single_word"), true, true, false},
      {added_token("<|a|>", "normalized"), true, true, false},
      {added_token("two words"), false, true, false},
      {added_token("word", "rstrip"), false, true, false},
      {added_token("word", "lstrip"), true, false, false},
      {added_token(" word", "single_word"), false, true, false},
      {added_token("a\\nb"), true, false, false},
      {added_token("a\\n", "single_word"), true, false, false},
      {added_token("<|a|>") + "," + added_token("x<"), true, true, false},
      {added_token("<|a|>") + "," + added_token("[<|a|>"), true, true, true},
      {added_token("<|a|>") + "," + added_token("<|a|>b", "lstrip"), true, true, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.added);
    const auto tokenizer = with_added_tokens(c.added);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->safe_cuts().before_spaces(), c.spaces);
    EXPECT_EQ(tokenizer->safe_cuts().after_lines(), c.lines);
    EXPECT_EQ(tokenizer->safe_cuts().before_special_tokens(), c.tokens);
    expect_cuts_are_safe(*tokenizer, SpecialTokens::kParse, 4);
    expect_cuts_are_safe(*tokenizer, SpecialTokens::kAsText, 5);
  }
}

TEST(SafeCuts, DependOnTheBytesAroundThemOnly) {
  const auto tokenizer = load_model("qwen2.json");
  const SafeCuts& cuts = tokenizer->safe_cuts();
  EXPECT_EQ(cuts.find("one two", 1, SpecialTokens::kParse), 3U);
  EXPECT_EQ(cuts.find("one two", 4, SpecialTokens::kParse), 7U);
  EXPECT_EQ(cuts.find("1 2\n3\n\xE4\xB8\xAD", 1, SpecialTokens::kParse), 6U);
  EXPECT_EQ(cuts.find("1\n\xE4\xB8", 1, SpecialTokens::kParse), 4U);  // cut short
  EXPECT_EQ(cuts.find("1<|begin|>2", 1, SpecialTokens::kParse), 1U);
  EXPECT_EQ(cuts.find("1<|begin|>2", 1, SpecialTokens::kAsText), 11U);
  EXPECT_EQ(cuts.find("", 1, SpecialTokens::kParse), 0U);
  EXPECT_EQ(SafeCuts().find("one two", 1, SpecialTokens::kParse), 7U);
}

}  // namespace
}  // namespace stator::tokenizer
