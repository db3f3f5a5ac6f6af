// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/incremental_detokenizer.h"

#include "stator/core/random.h"
#include "stator/tokenizer/test/golden_files.h"
#include "stator/tokenizer/unicode.h"

#include <gtest/gtest.h>

namespace stator::tokenizer {
namespace {

std::unique_ptr<Tokenizer> load_model(const std::string& name) {
  auto tokenizer = Tokenizer::from_json(
      test::read_file(test::testdata_path("models/" + name + ".json")).value_or(""));
  EXPECT_TRUE(tokenizer.has_value());
  return *std::move(tokenizer);
}

TokenId byte_token(const Tokenizer& tokenizer, unsigned char byte) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_bytes(id) == std::string_view(reinterpret_cast<const char*>(&byte), 1)) {
      return id;
    }
  }
  ADD_FAILURE() << "no token for byte " << int{byte};
  return 0;
}

TEST(IncrementalDetokenizer, StepsEqualTheFullDecodeForRandomIds) {
  Random random(11);
  for (const std::string name : {"gpt2", "sentencepiece", "gemma", "clip"}) {
    const auto tokenizer = load_model(name);
    for (int round = 0; round < 2000; ++round) {
      const SkipSpecial skip = round % 2 == 0 ? SkipSpecial::kNo : SkipSpecial::kYes;
      // Low ids are single bytes in these models: their random mixtures are mostly broken UTF-8.
      const uint64_t ids_below = round % 3 == 0 ? tokenizer->vocab_size() + 3 : 260;
      std::vector<TokenId> ids;
      std::string text;
      IncrementalDetokenizer detokenizer(*tokenizer, skip, StreamStart::kStartOfText);
      for (int i = 0; i < 12; ++i) {
        ids.push_back(static_cast<TokenId>(random.below(ids_below)));
        detokenizer.step(ids.back(), text);
        ASSERT_TRUE(is_valid_utf8(text));  // I2
        ASSERT_LE(detokenizer.held_bytes(), 3);
      }
      detokenizer.finish(text);

      ASSERT_EQ(text, tokenizer->decode(ids, skip))
          << name << " " << testing::PrintToString(ids);  // I1
    }
  }
}

TEST(IncrementalDetokenizer, HoldsACharacterUntilItIsComplete) {
  const auto tokenizer = load_model("gpt2");
  IncrementalDetokenizer detokenizer(*tokenizer, SkipSpecial::kYes);
  std::string text;

  for (const char byte : {'\xF0', '\x9F', '\x98'}) {
    detokenizer.step(byte_token(*tokenizer, static_cast<unsigned char>(byte)), text);
  }
  EXPECT_EQ(text, "");
  EXPECT_EQ(detokenizer.held_bytes(), 3);
  detokenizer.step(byte_token(*tokenizer, 0x80), text);

  EXPECT_EQ(text, "\U0001F600");
  EXPECT_EQ(detokenizer.held_bytes(), 0);
}

TEST(IncrementalDetokenizer, FlushesAnIncompleteTailAsOneReplacement) {
  const auto tokenizer = load_model("gpt2");
  IncrementalDetokenizer detokenizer(*tokenizer, SkipSpecial::kYes);
  std::string text;
  detokenizer.step(byte_token(*tokenizer, 0xE2), text);
  detokenizer.step(byte_token(*tokenizer, 0x82), text);

  detokenizer.finish(text);
  detokenizer.finish(text);

  EXPECT_EQ(text, kReplacementCharacter);
}

TEST(IncrementalDetokenizer, KeepsTheFirstSpaceAfterAPrompt) {
  const auto tokenizer = load_model("sentencepiece");
  const auto space = tokenizer->find("▁");
  ASSERT_TRUE(space);
  std::string after_prompt;
  std::string at_start;

  IncrementalDetokenizer(*tokenizer, SkipSpecial::kYes).step(*space, after_prompt);
  IncrementalDetokenizer(*tokenizer, SkipSpecial::kYes, StreamStart::kStartOfText)
      .step(*space, at_start);

  EXPECT_EQ(after_prompt, " ");
  EXPECT_EQ(at_start, "");
}

TEST(IncrementalDetokenizer, BrokenByteFallbackRunsGiveOneReplacementPerSubpart) {
  const auto tokenizer = load_model("sentencepiece");
  const std::vector<TokenId> ids = {*tokenizer->find("<0xE2>"), *tokenizer->find("<0x82>"),
                                    *tokenizer->find("<0xFF>")};

  EXPECT_EQ(tokenizer->decode(ids, SkipSpecial::kNo), "\uFFFD\uFFFD");
}

TEST(IncrementalDetokenizer, SkipsSpecialAndUnknownIds) {
  const auto tokenizer = load_model("gpt2");
  const TokenId special = *tokenizer->find("<|end|>");
  std::string shown;
  std::string skipped;

  IncrementalDetokenizer(*tokenizer, SkipSpecial::kNo).step(special, shown);
  IncrementalDetokenizer(*tokenizer, SkipSpecial::kYes).step(special, skipped);
  IncrementalDetokenizer(*tokenizer, SkipSpecial::kNo).step(tokenizer->vocab_size(), skipped);

  EXPECT_EQ(shown, "<|end|>");
  EXPECT_EQ(skipped, "");
}

}  // namespace
}  // namespace stator::tokenizer
