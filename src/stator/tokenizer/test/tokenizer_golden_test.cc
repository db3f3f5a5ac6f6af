// SPDX-License-Identifier: Apache-2.0
// Every text of texts.json through tiny models in the styles of published ones, compared with what
// the Hugging Face tokenizers library recorded (testdata/make_goldens.py).
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/test/golden_files.h"
#include "stator/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace stator::tokenizer {
namespace {

using test::Golden;

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options) {
  std::vector<TokenId> ids;
  const Status status = tokenizer.encode(text, options, ids);
  EXPECT_TRUE(status.has_value()) << status.error().to_string();
  return ids;
}

std::string decode_in_steps(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                            SkipSpecial skip) {
  IncrementalDetokenizer detokenizer(tokenizer, skip, StreamStart::kStartOfText);
  std::string text;
  for (const TokenId id : ids) {
    detokenizer.step(id, text);
  }
  detokenizer.finish(text);
  return text;
}

void expect_equal(const Tokenizer& tokenizer, const std::vector<Golden>& goldens) {
  for (size_t i = 0; i < goldens.size(); ++i) {
    const Golden& golden = goldens[i];
    SCOPED_TRACE("text " + std::to_string(i) + ": " + testing::PrintToString(golden.bytes));

    EXPECT_EQ(encode(tokenizer, golden.bytes, {}), golden.ids);
    EXPECT_EQ(encode(tokenizer, golden.bytes, {.add_special = AddSpecial::kYes}), golden.special);
    EXPECT_EQ(encode(tokenizer, golden.bytes, {.special_tokens = SpecialTokens::kAsText}),
              golden.plain);
    EXPECT_EQ(tokenizer.decode(golden.special, SkipSpecial::kNo), golden.decoded);
    EXPECT_EQ(tokenizer.decode(golden.special, SkipSpecial::kYes), golden.skipped);
    EXPECT_EQ(decode_in_steps(tokenizer, golden.special, SkipSpecial::kNo), golden.decoded);
    EXPECT_EQ(decode_in_steps(tokenizer, golden.special, SkipSpecial::kYes), golden.skipped);
  }
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, EqualsReference) {
  const auto json =
      test::read_file(test::testdata_path(std::string("models/") + GetParam() + ".json"));
  ASSERT_TRUE(json);

  const auto tokenizer = Tokenizer::from_json(*json);

  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  expect_equal(**tokenizer, test::read_goldens(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Styles, TokenizerGolden,
                         testing::Values("gpt2", "llama3", "qwen2", "qwen35", "o200k", "deepseek3",
                                         "starcoder", "falcon", "deepseek_llm", "bloom", "viking",
                                         "exaone_moe", "roberta", "sentencepiece", "gemma", "clip",
                                         "words", "next", "bert", "cased", "t5", "xlm", "scripts",
                                         "wordlevel", "ctc", "gpt1"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerSharedData, TinyLlamaEqualsReference) {
  const std::string folder = std::string(STATOR_SHARED_DIR) + "/data/tokenizers/TinyLlama_v1.1";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "no " << folder << "; the sentencepiece style above covers the same code";
  }

  const auto tokenizer = Tokenizer::load(folder);

  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  expect_equal(**tokenizer, test::read_goldens("TinyLlama_v1.1"));
}

}  // namespace
}  // namespace stator::tokenizer
