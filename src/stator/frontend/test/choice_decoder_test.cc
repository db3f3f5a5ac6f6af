// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/choice_decoder.h"

#include <gtest/gtest.h>

#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using inference::FinishReason;

class ChoiceDecoderTest : public ::testing::Test {
 protected:
  ChoiceDecoder decoder(std::vector<std::string> stops = {}, DecodeOptions options = {}) {
    if (!stops.empty()) {
      auto made = parsers::StopMatcher::create(stops);
      EXPECT_TRUE(made.has_value());
      stops_ = std::move(*made);
    }
    return {*assets_->tokenizer, stops_.get(), options};
  }
  /// Feeds token by token, as a worker that sends every step does.
  Decoded feed_each(ChoiceDecoder& decoder, const std::vector<TokenId>& tokens,
                    FinishReason last = FinishReason::kNone) {
    Decoded decoded;
    for (size_t i = 0; i < tokens.size() && decoded.finish == FinishReason::kNone; ++i) {
      const bool is_last = i + 1 == tokens.size();
      decoded = decoder.feed(std::span(tokens).subspan(i, 1), is_last ? last : FinishReason::kNone,
                             false, text_);
    }
    return decoded;
  }

  std::shared_ptr<const ModelAssets> assets_ = demo_assets();
  std::shared_ptr<const parsers::StopMatcher> stops_;
  std::string text_;
};

TEST_F(ChoiceDecoderTest, TokensBecomeTheirText) {
  auto choice = decoder();
  const auto tokens = tokens_of("The router picks a worker: naïve 日本語 🙂");
  const Decoded decoded = choice.feed(tokens, FinishReason::kLength, false, text_);
  EXPECT_EQ(text_, "The router picks a worker: naïve 日本語 🙂");
  EXPECT_EQ(decoded.finish, FinishReason::kLength);
  EXPECT_EQ(decoded.tokens_used, tokens.size());
  EXPECT_EQ(choice.generated(), tokens.size());
}

TEST_F(ChoiceDecoderTest, CutIntoSingleTokensTheTextIsTheSame) {
  auto choice = decoder();
  feed_each(choice, tokens_of("A block has 16 tokens. 🙂"), FinishReason::kLength);
  EXPECT_EQ(text_, "A block has 16 tokens. 🙂");
}

TEST_F(ChoiceDecoderTest, EosIsCountedAndNotShown) {
  auto choice = decoder({}, {.skip_special = tokenizer::SkipSpecial::kNo});
  auto tokens = tokens_of("Done.");
  tokens.push_back(assets_->eos_token_ids.front());
  const Decoded decoded = choice.feed(tokens, FinishReason::kStop, false, text_);
  EXPECT_EQ(text_, "Done.");
  EXPECT_EQ(decoded.tokens_used, tokens.size());
  EXPECT_FALSE(decoded.stop_token);
}

TEST_F(ChoiceDecoderTest, AStopTokenOfTheClientIsNamedAndNotShown) {
  auto choice = decoder();
  auto tokens = tokens_of("Done.");
  const TokenId stop = tokens_of("!").front();
  tokens.push_back(stop);
  const Decoded decoded = choice.feed(tokens, FinishReason::kStop, true, text_);
  EXPECT_EQ(text_, "Done.");
  EXPECT_EQ(decoded.stop_token, stop);
}

TEST_F(ChoiceDecoderTest, AStopStringOverSeveralTokensNeverShows) {
  auto choice = decoder({"picks a work"});
  const auto tokens = tokens_of("The router picks a worker and more");
  const Decoded decoded = feed_each(choice, tokens);
  EXPECT_EQ(text_, "The router ");
  EXPECT_EQ(decoded.finish, FinishReason::kStop);
  EXPECT_EQ(decoded.stop_string, 0U);
  EXPECT_LT(choice.generated(), tokens.size());
}

TEST_F(ChoiceDecoderTest, TokensBehindAStopStringInOneBatchAreNotUsed) {
  auto choice = decoder({"never", "router"});
  const auto tokens = tokens_of("The router picks a worker");
  const Decoded decoded = choice.feed(tokens, FinishReason::kLength, false, text_);
  EXPECT_EQ(text_, "The ");
  EXPECT_EQ(decoded.finish, FinishReason::kStop);
  EXPECT_EQ(decoded.stop_string, 1U);
  EXPECT_LT(decoded.tokens_used, tokens.size());
}

TEST_F(ChoiceDecoderTest, TextHeldForAStopStringIsSentWhenTheLengthEnds) {
  auto choice = decoder({"worker!"});
  const auto tokens = tokens_of("a worker");
  for (const TokenId token : tokens) {
    choice.feed(std::span(&token, 1), FinishReason::kNone, false, text_);
  }
  EXPECT_EQ(text_, "a ");
  const Decoded decoded = choice.feed({}, FinishReason::kLength, false, text_);
  EXPECT_EQ(text_, "a worker");
  EXPECT_EQ(decoded.finish, FinishReason::kLength);
  EXPECT_FALSE(decoded.stop_string);
}

TEST_F(ChoiceDecoderTest, AMatchThatCouldStillGrowIsFinalAtTheEnd) {
  auto choice = decoder({"work", "worker bees"});
  const Decoded decoded = feed_each(choice, tokens_of("a work"), FinishReason::kLength);
  EXPECT_EQ(text_, "a ");
  EXPECT_EQ(decoded.finish, FinishReason::kStop);
  EXPECT_EQ(decoded.stop_string, 0U);
}

TEST_F(ChoiceDecoderTest, TheStopStringIsPartOfTheTextWhenAskedFor) {
  auto choice = decoder({"router"}, {.include_stop = parsers::IncludeStop::kYes});
  choice.feed(tokens_of("The router picks"), FinishReason::kNone, false, text_);
  EXPECT_EQ(text_, "The router");
}

TEST_F(ChoiceDecoderTest, StopStringsWithinMinTokensDoNotCount) {
  const auto head = tokens_of("The router");
  auto choice = decoder({"router"}, {.min_tokens = static_cast<uint32_t>(head.size())});
  EXPECT_EQ(choice.feed(head, FinishReason::kNone, false, text_).finish, FinishReason::kNone);
  EXPECT_EQ(text_, "The router");
  EXPECT_EQ(choice.feed(tokens_of(" and a router here"), FinishReason::kNone, false, text_).finish,
            FinishReason::kStop);
  EXPECT_EQ(text_, "The router and a ");
}

TEST_F(ChoiceDecoderTest, AHalfCharacterIsHeldAndReplacedOnlyAtTheEnd) {
  const auto tokens = tokens_of("🙂");
  ASSERT_GT(tokens.size(), 1U) << "the demo vocabulary has no token for this character";
  auto choice = decoder();
  choice.feed(std::span(tokens).first(1), FinishReason::kNone, false, text_);
  EXPECT_EQ(text_, "");
  choice.feed({}, FinishReason::kLength, false, text_);
  EXPECT_EQ(text_, "\uFFFD");
}

}  // namespace
}  // namespace stator::frontend
