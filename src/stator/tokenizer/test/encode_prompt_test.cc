// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/encode_prompt.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/tokenizer/split_text.h"

namespace stator::tokenizer {
namespace {

std::unique_ptr<Tokenizer> load_model(const std::string& name) {
  std::ifstream file(STATOR_SOURCE_DIR "/src/stator/tokenizer/testdata/models/" + name);
  std::stringstream text;
  text << file.rdbuf();
  auto tokenizer = Tokenizer::from_json(text.str());
  EXPECT_TRUE(tokenizer.has_value()) << name;
  return std::move(*tokenizer);
}

std::string conversation(Random& random, size_t bytes) {
  static const std::vector<std::string> kWords = {
      "the ",   "cache",        " holds",       "\n",        "blocks. ",       "1234 ",
      "don't ", "\n\n",         "  if ",        "(x)",       " {\n",           "}\n",
      "WORD ",  "\xE4\xB8\xAD", "caf\xC3\xA9 ", "<|end|>\n", "<|begin|>user\n"};
  std::string text;
  while (text.size() < bytes) {
    text += kWords[random.below(kWords.size())];
  }
  return text;
}

class EncodePromptTest : public ::testing::TestWithParam<const char*> {
 protected:
  /// Encodes with the cache and compares with encoding and hashing the whole.
  PromptIds expect_equal(const std::string& text, EncodeOptions options = {},
                         BlockScheme blocks = {.block_size = 16, .seed = 1337}) {
    auto prompt = encode_prompt(*tokenizer_, text, options, blocks, tools_);
    EXPECT_TRUE(prompt.has_value());
    std::vector<TokenId> ids;
    EXPECT_TRUE(tokenizer_->encode(text, options, ids).has_value());
    EXPECT_EQ(prompt->ids, ids);
    blocks::BlockHasher hasher(blocks.block_size, blocks.seed);
    hasher.append(ids);
    EXPECT_TRUE(std::ranges::equal(prompt->sequences, hasher.sequences()));
    return std::move(*prompt);
  }
  /// Whether this model's conversations have safe cuts.
  bool has_cuts() const {
    Random random(1);
    const std::string text = conversation(random, 10'000);
    return tokenizer_->safe_cuts().find(text, 1, SpecialTokens::kParse) < text.size();
  }
  std::unique_ptr<Tokenizer> tokenizer_ = load_model(GetParam());
  PrefixCache cache_{2 << 20, {}};
  PromptTools tools_{.cache = &cache_};
  Random random_{5};
};

INSTANTIATE_TEST_SUITE_P(Models, EncodePromptTest,
                         ::testing::Values("llama3.json", "qwen2.json", "gpt2.json", "o200k.json",
                                           "roberta.json", "sentencepiece.json", "deepseek3.json"));

TEST_P(EncodePromptTest, AConversationThatGrowsGivesTheIdsOfTheWhole) {
  std::string text;
  size_t cached = 0;
  for (int turn = 0; turn < 12; ++turn) {
    text += conversation(random_, 1 + random_.below(6000));
    cached += expect_equal(text).cached_ids;
  }
  EXPECT_EQ(cached > 0, has_cuts());
}

TEST_P(EncodePromptTest, TokensAroundTheTextAreNotTakenForTheText) {
  const std::string text = conversation(random_, 20'000);
  for (int round = 0; round < 2; ++round) {
    expect_equal(text, {.add_special = AddSpecial::kYes});
    expect_equal(text, {.add_special = AddSpecial::kNo});
    expect_equal(text, {.special_tokens = SpecialTokens::kAsText});
    expect_equal(text + "more", {.add_special = AddSpecial::kYes});
  }
}

TEST_P(EncodePromptTest, BlockSizesAndSaltsHaveTheirOwnHashes) {
  const std::string text = conversation(random_, 10'000);
  for (int round = 0; round < 2; ++round) {
    for (const uint32_t size : {1U, 7U, 16U, 64U, 100'000U}) {
      expect_equal(text, {}, {.block_size = size, .seed = 1});
      expect_equal(text, {}, {.block_size = size, .seed = 2});
    }
  }
}

TEST_P(EncodePromptTest, ShortAndEmptyTextsAreNotKept) {
  expect_equal("");
  expect_equal("short");
  expect_equal("short", {.add_special = AddSpecial::kYes});
  EXPECT_EQ(cache_.bytes(), 0U);
}

TEST_P(EncodePromptTest, PartsGiveTheIdsOfTheWholeInAnyOrder) {
  const RunParts backwards = [](size_t count, const std::function<void(size_t)>& part) {
    for (size_t i = count; i > 0; --i) {
      part(i - 1);
    }
  };
  const std::string text = conversation(random_, 200'000);
  tools_ = {.cache = nullptr, .run_parts = &backwards};
  expect_equal(text);
  tools_.cache = &cache_;
  expect_equal(text, {.add_special = AddSpecial::kYes});
  expect_equal(text.substr(0, 50'000) + conversation(random_, 100'000),
               {.add_special = AddSpecial::kYes});
}

TEST_P(EncodePromptTest, ATextWithoutASafeCutIsKeptWhole) {
  const std::string text(10'000, '.');
  expect_equal(text);
  EXPECT_EQ(expect_equal(text).cached_ids, expect_equal(text).ids.size());
}

TEST_P(EncodePromptTest, ATextBeyondItsShareOfTheCacheLeavesTheRestAlone) {
  const std::string known = conversation(random_, 20'000);
  expect_equal(known);
  const std::string huge = conversation(random_, 1 << 20);
  EXPECT_TRUE(encode_prompt(*tokenizer_, huge, {}, {.seed = 1337}, tools_).has_value());
  EXPECT_GT(expect_equal(known).cached_ids, 0U);
}

TEST_P(EncodePromptTest, ATextOfTooManyIdsIsCutShortAndNotKept) {
  const RunParts in_turn = [](size_t count, const std::function<void(size_t)>& part) {
    for (size_t i = 0; i < count; ++i) {
      part(i);
    }
  };
  const std::string text = conversation(random_, 1 << 20);
  std::vector<TokenId> all;
  ASSERT_TRUE(tokenizer_->encode(text, {}, all).has_value());
  for (const RunParts* run_parts : {static_cast<const RunParts*>(nullptr), &in_turn}) {
    tools_.run_parts = run_parts;
    tools_.stop.ids_max = 1000;
    const auto prompt = encode_prompt(*tokenizer_, text, {}, {.seed = 1337}, tools_);
    ASSERT_TRUE(prompt.has_value());
    EXPECT_TRUE(prompt->is_cut_short);
    EXPECT_GT(prompt->ids.size(), 1000U);
    EXPECT_TRUE(!has_cuts() || prompt->ids.size() < all.size() / 10) << prompt->ids.size();
    EXPECT_TRUE(prompt->sequences.empty());
    EXPECT_EQ(cache_.bytes(), 0U);
  }
  tools_.stop.ids_max = all.size();
  EXPECT_EQ(encode_prompt(*tokenizer_, text, {}, {.seed = 1337}, tools_)->ids, all);
}

TEST_P(EncodePromptTest, CancelledWorkEndsWithoutAResult) {
  CancelToken cancel;
  cancel.cancel();
  tools_.stop.cancel = &cancel;
  for (const std::string& text : {conversation(random_, 100'000), std::string(200'000, 'a')}) {
    const auto prompt = encode_prompt(*tokenizer_, text, {}, {.seed = 1337}, tools_);
    ASSERT_FALSE(prompt.has_value());
    EXPECT_EQ(prompt.error().code(), Code::kCancelled);
  }
  EXPECT_EQ(cache_.bytes(), 0U);
  // Nor does what was begun stay in the threads' caches of pieces.
  tools_.stop.cancel = nullptr;
  expect_equal(std::string(200'000, 'a'));
}

TEST(EncodePrompt, ATextBeyondTheLimitIsTheTokenizersError) {
  const auto tokenizer = load_model("words.json");
  const std::string text(kMaxTextBytes + 1, 'a');
  const auto prompt = encode_prompt(*tokenizer, text, {}, {}, {});
  ASSERT_FALSE(prompt.has_value());
  EXPECT_EQ(prompt.error().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace stator::tokenizer
