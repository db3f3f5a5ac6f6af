// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using api::FinishReason;
using ::testing::HasSubstr;
using ::testing::Not;

class GenerationTest : public PrepareFixture {
 protected:
  std::unique_ptr<Generation> start(GenerationPlan plan) {
    return std::make_unique<Generation>(std::move(plan), exchange_, TimePoint{});
  }
  std::unique_ptr<Generation> start_chat(std::string fields = "") {
    auto plan =
        chat(R"({"model":"demo","messages":[{"role":"user","content":"Hi"}])" + fields + "}");
    EXPECT_TRUE(plan.has_value()) << plan.error().message();
    return start(std::move(*plan));
  }
  std::unique_ptr<Generation> start_completion(std::string fields = "") {
    auto plan = completion(R"({"model":"demo","prompt":"Hi")" + fields + "}");
    EXPECT_TRUE(plan.has_value()) << plan.error().message();
    return start(std::move(*plan));
  }
  /// A worker's step with the tokens of `text` for `choice`, at its next offset.
  Progress feed(Generation& generation, uint32_t choice, std::string_view text,
                FinishReason finish = FinishReason::kNone) {
    engine::StepOutput output;
    output.tokens = tokens_of(text);
    if (finish == FinishReason::kStop) {
      output.tokens.push_back(model_->eos_token_ids.front());
    }
    Choice& target = generation.choices()[choice];
    const engine::Delta delta{.key = target.key(),
                              .offset = target.next_offset,
                              .token_count = static_cast<uint32_t>(output.tokens.size()),
                              .cached_tokens = target.next_offset == 0 ? 1U : 0U,
                              .finish = finish};
    return generation.on_delta(target, delta, output, TimePoint{});
  }

  void expect_unavailable() {
    EXPECT_EQ(exchange_.status, 503);
    EXPECT_FALSE(exchange_.started);
    EXPECT_TRUE(exchange_.ended);
    EXPECT_THAT(exchange_.text, HasSubstr("no worker is left"));
    EXPECT_EQ(exchange_.header("retry-after"), "1");
  }

  FakeExchange exchange_;
};

TEST_F(GenerationTest, AUnaryAnswerIsSentWhenItIsComplete) {
  auto generation = start_chat();
  EXPECT_EQ(feed(*generation, 0, "Hello"), Progress::kRunning);
  EXPECT_FALSE(exchange_.ended);
  EXPECT_EQ(feed(*generation, 0, " there", FinishReason::kStop), Progress::kChoiceDone);
  ASSERT_TRUE(generation->all_finished());
  generation->finish(TimePoint{});
  EXPECT_EQ(exchange_.status, 200);
  EXPECT_EQ(exchange_.content_type, "application/json");
  EXPECT_THAT(exchange_.text, HasSubstr(R"("content":"Hello there")"));
  EXPECT_THAT(exchange_.text, HasSubstr(R"("finish_reason":"stop")"));
  EXPECT_EQ(exchange_.header("x-request-id"), "11111111-2222-4333-8444-555555555555");
}

TEST_F(GenerationTest, AStreamSendsNothingBeforeItsFirstToken) {
  auto generation = start_chat(R"(,"stream":true)");
  generation->keep_alive(TimePoint{} + std::chrono::hours(1), std::chrono::seconds(1));
  EXPECT_FALSE(exchange_.started);
  EXPECT_FALSE(generation->produced_tokens());
  feed(*generation, 0, "Hello");
  EXPECT_TRUE(exchange_.started);
  EXPECT_TRUE(generation->produced_tokens());
  EXPECT_THAT(exchange_.text, HasSubstr("Hello"));
  EXPECT_THAT(exchange_.content_type, HasSubstr("text/event-stream"));
  feed(*generation, 0, "!", FinishReason::kLength);
  generation->finish(TimePoint{});
  EXPECT_TRUE(exchange_.text.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(exchange_.ended);
}

TEST_F(GenerationTest, AQuietStreamGetsOneCommentPerInterval) {
  auto generation = start_chat(R"(,"stream":true)");
  feed(*generation, 0, "Hello");
  const size_t sent = exchange_.text.size();
  generation->keep_alive(TimePoint{} + std::chrono::seconds(9), std::chrono::seconds(10));
  EXPECT_EQ(exchange_.text.size(), sent);
  generation->keep_alive(TimePoint{} + std::chrono::seconds(10), std::chrono::seconds(10));
  const size_t after_one = exchange_.text.size();
  EXPECT_GT(after_one, sent);
  generation->keep_alive(TimePoint{} + std::chrono::seconds(11), std::chrono::seconds(10));
  EXPECT_EQ(exchange_.text.size(), after_one);
  generation->fail(Error(Code::kUnavailable, "over"));
}

TEST_F(GenerationTest, OutputOfAnEarlierAttemptIsStale) {
  auto generation = start_chat();
  Choice& choice = generation->choices()[0];
  engine::StepOutput output;
  output.tokens = tokens_of("old");
  engine::Delta delta{.key = choice.key(),
                      .token_count = static_cast<uint32_t>(output.tokens.size())};
  choice.attempt = Attempt(1);
  EXPECT_EQ(generation->on_delta(choice, delta, output, TimePoint{}), Progress::kStale);
  EXPECT_EQ(generation->output_tokens(), 0U);
}

TEST_F(GenerationTest, OutputThatSkipsOrRepeatsTokensIsStale) {
  auto generation = start_chat();
  feed(*generation, 0, "Hello");
  Choice& choice = generation->choices()[0];
  engine::StepOutput output;
  output.tokens = {1};
  for (const uint32_t offset : {0U, choice.next_offset + 1}) {
    const engine::Delta delta{.key = choice.key(), .offset = offset, .token_count = 1};
    EXPECT_EQ(generation->on_delta(choice, delta, output, TimePoint{}), Progress::kStale);
  }
}

TEST_F(GenerationTest, OutputBehindTheEndIsStale) {
  auto generation = start_chat(R"(,"n":2)");
  feed(*generation, 0, "Hello", FinishReason::kLength);
  EXPECT_EQ(feed(*generation, 0, "more"), Progress::kStale);
}

TEST_F(GenerationTest, AnErrorBeforeTheFirstTokenOfAnAnswerHasItsOwnStatus) {
  start_chat()->fail(Error(Code::kUnavailable, "no worker is left"));
  expect_unavailable();
}

TEST_F(GenerationTest, AnErrorBeforeTheFirstTokenOfAStreamHasItsOwnStatus) {
  start_chat(R"(,"stream":true)")->fail(Error(Code::kUnavailable, "no worker is left"));
  expect_unavailable();
}

TEST_F(GenerationTest, AnErrorWithinAStreamIsItsLastEvent) {
  auto generation = start_chat(R"(,"stream":true)");
  feed(*generation, 0, "Hello");
  generation->fail(Error(Code::kUnavailable, "the worker was lost"));
  EXPECT_EQ(exchange_.status, 200);
  EXPECT_THAT(exchange_.text, HasSubstr("the worker was lost"));
  EXPECT_THAT(exchange_.text, HasSubstr("\"error\""));
  EXPECT_TRUE(exchange_.text.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(exchange_.ended);
}

TEST_F(GenerationTest, AnErrorWithinAUnaryAnswerIsStillAStatus) {
  auto generation = start_chat();
  feed(*generation, 0, "Hello");
  generation->fail(Error(Code::kUnavailable, "the worker was lost"));
  EXPECT_EQ(exchange_.status, 503);
  EXPECT_THAT(exchange_.text, Not(HasSubstr("Hello")));
}

TEST_F(GenerationTest, ErrorsThatNoRetryHelpsHaveNoRetryAfter) {
  auto generation = start_chat();
  generation->fail(Error(Code::kInvalidArgument, "no"));
  EXPECT_EQ(exchange_.status, 400);
  EXPECT_EQ(exchange_.header("retry-after"), "");
}

TEST_F(GenerationTest, TwoChoicesFinishOneByOne) {
  auto generation = start_chat(R"(,"n":2)");
  ASSERT_EQ(generation->choices().size(), 2U);
  feed(*generation, 1, "second", FinishReason::kLength);
  EXPECT_FALSE(generation->all_finished());
  feed(*generation, 0, "first", FinishReason::kStop);
  EXPECT_TRUE(generation->all_finished());
  generation->finish(TimePoint{});
  const size_t first = exchange_.text.find("first");
  const size_t second = exchange_.text.find("second");
  ASSERT_NE(second, std::string::npos);
  EXPECT_LT(first, second) << "in the order of their indices";
}

TEST_F(GenerationTest, ChoicesOfOneSeedGetDifferentSeeds) {
  auto generation = start_chat(R"(,"n":2,"seed":40)");
  const auto& choices = generation->choices();
  EXPECT_EQ(generation->make_engine_request(choices[0]).sampling.seed, 40);
  EXPECT_EQ(generation->make_engine_request(choices[1]).sampling.seed, 41);
}

TEST_F(GenerationTest, EachPromptOfABatchGetsItsChoices) {
  auto generation = start_completion(R"(,"prompt":["one","two words"],"n":2)");
  ASSERT_EQ(generation->choices().size(), 4U);
  EXPECT_EQ(generation->make_engine_request(generation->choices()[1]).tokens, tokens_of("one"));
  EXPECT_EQ(generation->make_engine_request(generation->choices()[2]).tokens,
            tokens_of("two words"));
}

TEST_F(GenerationTest, EchoComesBeforeTheFirstToken) {
  auto generation = start_completion(R"(,"echo":true)");
  feed(*generation, 0, " there", FinishReason::kLength);
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr(R"("text":"Hi there")"));
}

TEST_F(GenerationTest, UsageCountsPromptOutputAndCachedTokens) {
  auto generation =
      start_completion(R"(,"n":2,"stream":true,"stream_options":{"include_usage":true})");
  feed(*generation, 0, "Hello", FinishReason::kLength);
  feed(*generation, 1, "Hello", FinishReason::kLength);
  const auto prompt = static_cast<uint32_t>(tokens_of("Hi").size());
  const auto output = static_cast<uint32_t>(tokens_of("Hello").size());
  EXPECT_EQ(generation->prompt_tokens(), prompt);
  EXPECT_EQ(generation->output_tokens(), 2 * output);
  EXPECT_EQ(generation->cached_tokens(), 1U) << "once per prompt, not per choice";
  EXPECT_THAT(exchange_.text, Not(HasSubstr("\"prompt_tokens\"")));
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr("\"prompt_tokens\":" + std::to_string(prompt)));
  EXPECT_THAT(exchange_.text, HasSubstr("\"choices\":[]"));
}

TEST_F(GenerationTest, AStopStringEndsTheChoiceAndAsksToCancelTheEngine) {
  auto generation = start_chat(R"(,"stop":["worker"],"nvext":{"extra_fields":["worker_id"]})");
  EXPECT_EQ(feed(*generation, 0, "The worker picks"), Progress::kChoiceDoneCancelEngine);
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr(R"("content":"The ")"));
  EXPECT_THAT(exchange_.text, HasSubstr(R"("finish_reason":"stop")"));
}

TEST_F(GenerationTest, ALastDeltaWithoutTokensStillEndsTheChoice) {
  auto generation = start_chat(R"(,"stream":true)");
  feed(*generation, 0, "Hello");
  EXPECT_EQ(feed(*generation, 0, "", FinishReason::kLength), Progress::kChoiceDone);
  EXPECT_THAT(exchange_.text, HasSubstr(R"("finish_reason":"length")"));
  generation->finish(TimePoint{});
}

}  // namespace
}  // namespace stator::frontend
