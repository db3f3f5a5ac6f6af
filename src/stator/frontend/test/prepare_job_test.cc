// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prepare_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using ::testing::HasSubstr;

class PrepareJobTest : public CatalogTest {
 protected:
  void SetUp() override {
    discovery::ModelCard card;
    card.name = "demo";
    card.model_path = demo_model_dir();
    card.context_length = 2048;
    card.vocab_size = demo_assets()->tokenizer->vocab_size();
    ASSERT_TRUE(catalog_.preload(card).has_value());
  }
  void run(PrepareJob& job, TextRequest kind, std::string body) {
    job.route.kind = kind;
    job.body = std::move(body);
    run_job(job, {.config = config_, .catalog = catalog_, .encoder = encoder_});
    EXPECT_TRUE(job.done.load());
  }
  std::string body_of(TextRequest kind, std::string body) {
    PrepareJob job;
    run(job, kind, std::move(body));
    return std::holds_alternative<std::string>(job.outcome) ? std::get<std::string>(job.outcome)
                                                            : "";
  }
  Code code_of(TextRequest kind, std::string body) {
    PrepareJob job;
    run(job, kind, std::move(body));
    EXPECT_TRUE(std::holds_alternative<api::ApiError>(job.outcome));
    return std::get<api::ApiError>(job.outcome).code();
  }

  PromptEncoder encoder_{config_, clock_, metrics_, nullptr};
};

TEST_F(PrepareJobTest, RequestsBecomePlans) {
  PrepareJob chat;
  run(chat, TextRequest::kChat, R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})");
  ASSERT_TRUE(std::holds_alternative<GenerationPlan>(chat.outcome));
  PrepareJob completion;
  run(completion, TextRequest::kCompletion, R"({"model":"demo","prompt":"Hi"})");
  ASSERT_TRUE(std::holds_alternative<GenerationPlan>(completion.outcome));
  EXPECT_EQ(std::get<GenerationPlan>(completion.outcome).prompts.front(), tokens_of("Hi"));
}

TEST_F(PrepareJobTest, WhatIsWrongIsTheOutcome) {
  EXPECT_EQ(code_of(TextRequest::kChat, "{"), Code::kInvalidArgument);
  EXPECT_EQ(code_of(TextRequest::kCompletion, R"({"model":"absent","prompt":"x"})"),
            Code::kNotFound);
}

TEST_F(PrepareJobTest, ACancelledJobDoesNothing) {
  PrepareJob job;
  job.cancel.cancel();
  run(job, TextRequest::kTokenize, R"({"model":"demo","prompt":"A block"})");
  ASSERT_TRUE(std::holds_alternative<api::ApiError>(job.outcome));
  EXPECT_EQ(std::get<api::ApiError>(job.outcome).code(), Code::kCancelled);
}

std::string words(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "word ";
  }
  return text;
}

TEST_F(PrepareJobTest, TokenEndpointsBoundWhatTheyTakeAndAnswer) {
  config_.tokenize_tokens_max = 3000;
  const std::string quoted = '"' + words(20'000) + '"';
  EXPECT_EQ(code_of(TextRequest::kTokenize, R"({"model":"demo","prompt":)" + quoted + "}"),
            Code::kTooLarge);
  EXPECT_EQ(code_of(TextRequest::kTokenize,
                    R"({"model":"demo","messages":[{"role":"user","content":)" + quoted + "}]}"),
            Code::kTooLarge);
  std::string ids = "1";
  for (int i = 1; i < 3000; ++i) {
    ids += ",1";
  }
  EXPECT_THAT(body_of(TextRequest::kDetokenize, R"({"model":"demo","tokens":[)" + ids + "]}"),
              HasSubstr("prompt"));
  EXPECT_EQ(code_of(TextRequest::kDetokenize, R"({"model":"demo","tokens":[)" + ids + ",1]}"),
            Code::kTooLarge);
}

TEST_F(PrepareJobTest, WhatFitsTheModelCanBeTokenizedWhateverTheSetting) {
  config_.tokenize_tokens_max = 1;
  EXPECT_THAT(body_of(TextRequest::kTokenize, R"({"model":"demo","prompt":"A block of words"})"),
              HasSubstr("\"count\""));
}

TEST_F(PrepareJobTest, TokenizeAndDetokenizeAreInverse) {
  const std::string body =
      body_of(TextRequest::kTokenize, R"({"model":"demo","prompt":"A block"})");
  EXPECT_THAT(body, HasSubstr("\"count\":" + std::to_string(tokens_of("A block").size())));
  std::string ids;
  for (const TokenId token : tokens_of("A block")) {
    ids += (ids.empty() ? "" : ",") + std::to_string(token);
  }
  EXPECT_EQ(body_of(TextRequest::kDetokenize, R"({"model":"demo","tokens":[)" + ids + "]}"),
            R"({"prompt":"A block"})");
}

TEST_F(PrepareJobTest, TokenizeRendersConversations) {
  const std::string body = body_of(TextRequest::kTokenize,
                                   R"({"model":"demo","messages":[{"role":"user","content":"Hi"}],)"
                                   R"("return_token_strs":true})");
  EXPECT_THAT(body, HasSubstr("\"Hi\""));
}

TEST_F(PrepareJobTest, TokenEndpointsRefuseWhatTheyCannotRead) {
  EXPECT_EQ(code_of(TextRequest::kTokenize, "{"), Code::kInvalidArgument);
  EXPECT_EQ(code_of(TextRequest::kTokenize, R"({"model":"absent","prompt":"x"})"), Code::kNotFound);
  EXPECT_EQ(code_of(TextRequest::kDetokenize, R"({"model":"demo","tokens":[4000000]})"),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace stator::frontend
