// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/retokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/test/recorded.h"
#include "stator/tokenizer/incremental_detokenizer.h"

namespace stator::engine::adapters {
namespace {

using testing::HasSubstr;

std::unique_ptr<tokenizer::Tokenizer> load(const std::string& path) {
  auto made = tokenizer::Tokenizer::load(std::string(STATOR_SOURCE_DIR) + path);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(*made);
}

/// The text a client gets of pieces that were re-tokenised one by one.
std::string shown(const tokenizer::Tokenizer& tokenizer, const Retokenizer& retokenizer,
                  std::initializer_list<std::string_view> pieces) {
  std::vector<TokenId> tokens;
  for (const std::string_view piece : pieces) {
    const Status added = retokenizer.append(piece, tokens);
    EXPECT_TRUE(added.has_value()) << piece;
  }
  tokenizer::IncrementalDetokenizer detokenizer(tokenizer, tokenizer::SkipSpecial::kYes);
  std::string text;
  for (const TokenId token : tokens) {
    detokenizer.step(token, text);
  }
  detokenizer.finish(text);
  return text;
}

TEST(Retokenizer, TheTextComesBackWhateverThePiecesAndTheTokenizer) {
  constexpr std::string_view kGoldens = "/src/stator/tokenizer/testdata/models/";
  for (const std::string name : {"sentencepiece", "gpt2", "llama3", "qwen2"}) {
    const auto tokenizer = load(std::string(kGoldens) + name + ".json");
    const Retokenizer retokenizer(*tokenizer);
    EXPECT_EQ(shown(*tokenizer, retokenizer, {"Hel", "lo", " wor", "ld", "\n", "  a", "b ", "c"}),
              "Hello world\n  ab c")
        << name;
  }
  const auto demo = load("/models/demo");
  const Retokenizer retokenizer(*demo);
  EXPECT_EQ(shown(*demo, retokenizer, {"größer ", "日本", "語 🙂", "!"}), "größer 日本語 🙂!");
}

TEST(Retokenizer, ATextEngineGetsThePromptsTextAndGivesText) {
  const auto tokenizer = load("/models/demo");
  const auto dialect = make_openai_dialect({.tokenizer = tokenizer.get()});
  inference::EngineRequest request = make_request();
  request.tokens.clear();
  ASSERT_TRUE(tokenizer->encode("What is it?", {}, request.tokens));
  EngineFacts facts;
  facts.model = "m";

  const auto call = dialect->lower(request, facts);
  const Replayed got = replay(
      dialect->make_raiser(request),
      {.status = 200,
       .content_type = "text/event-stream; charset=utf-8",
       .body = "data: {\"choices\":[{\"text\":\"It is \"}]}\n\n"
               "data: {\"choices\":[{\"text\":\"so.\",\"finish_reason\":\"stop\"}]}\n\n"
               "data: {\"choices\":[],\"usage\":{\"prompt_tokens_details\":{\"cached_tokens\":3}}}"
               "\n\ndata: [DONE]\n\n"},
      5);

  ASSERT_TRUE(call.has_value());
  EXPECT_THAT(call->body, HasSubstr(R"("prompt":"What is it?")"));
  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_EQ(tokenizer->decode(got.all.tokens, tokenizer::SkipSpecial::kYes), "It is so.");
  EXPECT_EQ(got.all.finish, inference::FinishReason::kStop);
  EXPECT_FALSE(got.all.last_is_stop) << "all of it is text";
  EXPECT_EQ(got.all.cached_tokens, 3U);
}

}  // namespace
}  // namespace stator::engine::adapters
