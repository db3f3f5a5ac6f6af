// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/frontend/test/frontend_fixture.h"
#include "stator/json/value.h"

namespace stator::frontend {
namespace {

using inference::FinishReason;
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
    inference::StepOutput output;
    output.tokens = tokens_of(text);
    if (finish == FinishReason::kStop) {
      output.tokens.push_back(model_->eos_token_ids.front());
    }
    ChoiceRun& target = generation.choices()[choice];
    const inference::Delta delta{.key = target.key(),
                                 .offset = target.journal().generated(),
                                 .token_count = static_cast<uint32_t>(output.tokens.size()),
                                 .cached_tokens = target.journal().generated() == 0 ? 1U : 0U,
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

TEST_F(GenerationTest, WhatAnAnswerCollectsIsHeldInItsBudget) {
  net::ByteBudget budget("answers", size_t{1} << 20, metrics_);
  auto plan = chat(
      R"({"model":"demo","messages":[{"role":"user","content":"Hi"}],"logprobs":true,"top_logprobs":3})");
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  {
    Generation generation(std::move(*plan), exchange_, TimePoint{}, &budget);
    inference::StepOutput output;
    output.tokens = tokens_of("Hello");
    const inference::TokenLogprob one{.token = output.tokens.front(), .logprob = -0.5F};
    output.logprobs.assign(output.tokens.size(), {.sampled = one, .top = {one, one, one}});
    ChoiceRun& choice = generation.choices()[0];
    size_t before = 0;
    for (int step = 0; step < 300; ++step) {
      const inference::Delta delta{.key = choice.key(),
                                   .offset = choice.journal().generated(),
                                   .token_count = static_cast<uint32_t>(output.tokens.size())};
      ASSERT_EQ(generation.on_delta(choice, delta, output, TimePoint{}), Progress::kRunning);
      ASSERT_GT(generation.collected_bytes(), before);
      before = generation.collected_bytes();
    }
    EXPECT_GE(budget.used(), before);
    generation.fail(Error(Code::kTooLarge, "too large"));
    EXPECT_EQ(exchange_.status, 413);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST_F(GenerationTest, ALargeBodyIsWrittenBySomebodyElseAndIsTheSame) {
  net::ByteBudget budget("answers", size_t{1} << 30, metrics_);
  const std::string text = [] {
    std::string words;
    for (int i = 0; i < 1500; ++i) {
      words += " token";
    }
    return words;
  }();
  const auto make = [&](FakeExchange& exchange) {
    auto plan = completion(R"({"model":"demo","prompt":"Hi","max_tokens":2000,"n":40})");
    EXPECT_TRUE(plan.has_value()) << plan.error().message();
    auto generation =
        std::make_unique<Generation>(std::move(*plan), exchange, TimePoint{}, &budget);
    for (uint32_t choice = 0; choice < 40; ++choice) {
      feed(*generation, choice, text, FinishReason::kLength);
    }
    EXPECT_TRUE(generation->all_finished());
    return generation;
  };
  FakeExchange written;
  FakeExchange finished;
  auto generation = make(written);
  Answer::BodyWriter writer = generation->take_writer(TimePoint{});
  ASSERT_TRUE(writer);
  EXPECT_FALSE(written.ended);
  EXPECT_GT(budget.used(), 40 * text.size() - 1);
  std::string body = writer();
  generation->send_body(std::move(body));
  make(finished)->finish(TimePoint{});

  EXPECT_TRUE(written.ended);
  EXPECT_EQ(written.status, 200);
  EXPECT_EQ(written.text, finished.text);
  EXPECT_EQ(written.headers, finished.headers);
  writer = {};
  generation.reset();
  EXPECT_EQ(budget.used(), 0U);
}

TEST_F(GenerationTest, ASmallBodyAndAStreamHaveNoWriter) {
  auto generation = start_chat();
  feed(*generation, 0, "Hello", FinishReason::kStop);
  EXPECT_FALSE(generation->take_writer(TimePoint{}));
  FakeExchange exchange;
  auto plan = chat(R"({"model":"demo","messages":[{"role":"user","content":"Hi"}],"stream":true})");
  ASSERT_TRUE(plan.has_value());
  Generation stream(std::move(*plan), exchange, TimePoint{});
  feed(stream, 0, std::string(300'000, 'x'));
  EXPECT_EQ(stream.collected_bytes(), 0U);
  EXPECT_FALSE(stream.take_writer(TimePoint{}));
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

TEST_F(GenerationTest, AnnotationsStandBeforeAStreamsFirstChunk) {
  constexpr std::string_view kAsked =
      R"(,"nvext":{"annotations":["worker_instance_id","token_ids","formatted_prompt","request_id","x"]})";
  auto generation = start_chat(std::string(R"(,"stream":true)") + std::string(kAsked));
  request::Actions actions;
  router::Decision decision;
  decision.worker = {WorkerId(7), 0};
  generation->choices()[0].on_routed(std::move(decision), {}, TimePoint{}, actions);
  const size_t prompt_tokens = generation->prompt_tokens();
  EXPECT_FALSE(exchange_.started);
  feed(*generation, 0, "Hello");
  feed(*generation, 0, "!", FinishReason::kLength);
  generation->finish(TimePoint{});

  std::vector<std::pair<std::string, json::Value>> frames;
  const std::string& text = exchange_.text;
  size_t at = 0;
  while (text.substr(at).starts_with("event: ")) {
    const size_t name_end = text.find("\ndata: ", at);
    const size_t end = text.find("\n\n", at);
    ASSERT_LT(name_end, end);
    frames.emplace_back(text.substr(at + 7, name_end - at - 7),
                        *json::parse(text.substr(name_end + 7, end - name_end - 7)));
    at = end + 2;
  }
  EXPECT_TRUE(text.substr(at).starts_with("data: {"));
  EXPECT_EQ(text.find("event: ", at), std::string::npos);
  ASSERT_EQ(frames.size(), 4U);
  EXPECT_EQ(frames[0].first, "formatted_prompt");
  EXPECT_THAT(std::string(frames[0].second.text()), HasSubstr("Hi"));
  EXPECT_EQ(frames[1].first, "request_id");
  EXPECT_EQ(frames[1].second, "11111111-2222-4333-8444-555555555555");
  EXPECT_EQ(frames[2].first, "token_ids");
  EXPECT_EQ(frames[2].second.elements().size(), prompt_tokens);
  EXPECT_EQ(frames[3].first, "worker_instance_id");
  EXPECT_EQ(frames[3].second, 7);
}

TEST_F(GenerationTest, AnnotationsAreForStreamsThatAskedOnly) {
  auto unary = start_chat(R"(,"nvext":{"annotations":["formatted_prompt","worker_instance_id"]})");
  feed(*unary, 0, "Hello", FinishReason::kLength);
  unary->finish(TimePoint{});
  EXPECT_TRUE(exchange_.text.starts_with("{"));
  EXPECT_THAT(exchange_.text, Not(HasSubstr("event: ")));
}

TEST_F(GenerationTest, AStreamThatFailsBeforeItsFirstTokenHasNoAnnotations) {
  auto generation = start_chat(R"(,"stream":true,"nvext":{"annotations":["request_id"]})");
  generation->fail(Error(Code::kUnavailable, "no worker is left"));
  expect_unavailable();
  EXPECT_THAT(exchange_.text, Not(HasSubstr("event: ")));
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
  ChoiceRun& choice = generation->choices()[0];
  inference::StepOutput output;
  output.tokens = tokens_of("old");
  inference::Delta delta{.key = choice.key(),
                         .token_count = static_cast<uint32_t>(output.tokens.size())};
  choice.journal().lose(continuity::Loss::kVanished, {WorkerId(1), 0});
  EXPECT_EQ(generation->on_delta(choice, delta, output, TimePoint{}), Progress::kStale);
  EXPECT_EQ(generation->output_tokens(), 0U);
}

TEST_F(GenerationTest, OutputThatSkipsTokensBreaksItsAttempt) {
  auto generation = start_chat();
  feed(*generation, 0, "Hello");
  ChoiceRun& choice = generation->choices()[0];
  inference::StepOutput output;
  output.tokens = {1};
  const inference::Delta delta{
      .key = choice.key(), .offset = choice.journal().generated() + 1, .token_count = 1};
  EXPECT_EQ(generation->on_delta(choice, delta, output, TimePoint{}), Progress::kBroken);
}

TEST_F(GenerationTest, OutputThatRepeatsTokensIsStale) {
  auto generation = start_chat(R"(,"stream":true)");
  feed(*generation, 0, "Hello");
  ChoiceRun& choice = generation->choices()[0];
  inference::StepOutput output;
  output.tokens = tokens_of("Hello");
  const std::string sent = exchange_.text;
  const inference::Delta delta{.key = choice.key(),
                               .token_count = static_cast<uint32_t>(output.tokens.size())};
  EXPECT_EQ(generation->on_delta(choice, delta, output, TimePoint{}), Progress::kStale);
  EXPECT_EQ(exchange_.text, sent);
}

// The whole text above the seam: detokenizer, stop strings, logprobs, usage.
TEST_F(GenerationTest, AnAnswerGoesOnAtAnotherWorkerAsIfNothingHadHappened) {
  const std::string_view text = "Grüße 👋 to all of you, END and more";
  const auto tokens = tokens_of(text);
  const std::string fields = R"(,"stream":true,"stop":["END"],"logprobs":true)"
                             R"(,"stream_options":{"include_usage":true})";
  const auto run = [&](size_t lose_after) {
    FakeExchange exchange;
    auto plan =
        chat(R"({"model":"demo","messages":[{"role":"user","content":"Hi"}])" + fields + "}");
    EXPECT_TRUE(plan.has_value());
    auto generation = std::make_unique<Generation>(std::move(*plan), exchange, TimePoint{});
    ChoiceRun& choice = generation->choices()[0];
    for (size_t i = 0; i < tokens.size() && !choice.facts().closed; ++i) {
      if (i == lose_after) {
        const inference::RequestKey old = choice.key();
        EXPECT_EQ(choice.journal().lose(continuity::Loss::kVanished, {WorkerId(1), 0}),
                  continuity::Journal::Step::kResubmit);
        const auto request = generation->make_engine_request(choice, TimePoint{});
        EXPECT_EQ(request.generated, i);
        EXPECT_EQ(
            std::vector(request.tokens.end() - static_cast<ptrdiff_t>(i), request.tokens.end()),
            std::vector(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(i)));
        inference::StepOutput late;
        late.tokens = {tokens[i]};
        EXPECT_EQ(generation->on_delta(
                      choice, {.key = old, .offset = static_cast<uint32_t>(i), .token_count = 1},
                      late, TimePoint{}),
                  Progress::kStale);
      }
      inference::StepOutput output;
      output.tokens = {tokens[i]};
      output.logprobs = {{.sampled = {.token = tokens[i], .logprob = -0.5F, .rank = 1}, .top = {}}};
      generation->on_delta(choice,
                           {.key = choice.key(),
                            .offset = static_cast<uint32_t>(i),
                            .token_count = 1,
                            .cached_tokens = i == 0 || i == lose_after ? 1U : 0U},
                           output, TimePoint{});
    }
    EXPECT_TRUE(choice.facts().closed);
    generation->finish(TimePoint{});
    return exchange.text;
  };
  const std::string undisturbed = run(tokens.size());
  EXPECT_THAT(undisturbed, HasSubstr(R"("finish_reason":"stop")"));
  for (size_t i = 0; i + 4 < tokens.size(); ++i) {
    EXPECT_EQ(run(i), undisturbed) << "lost after " << i;
  }
}

TEST_F(GenerationTest, AChoiceWithoutALastWordIsFinishedHere) {
  auto generation = start_chat(R"(,"max_tokens":2)");
  feed(*generation, 0, "Hello");
  ChoiceRun& choice = generation->choices()[0];
  EXPECT_EQ(generation->finish_choice(choice, FinishReason::kLength, TimePoint{}),
            Progress::kChoiceDone);
  ASSERT_TRUE(generation->all_finished());
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr(R"("content":"Hello")"));
  EXPECT_THAT(exchange_.text, HasSubstr(R"("finish_reason":"length")"));
}

TEST_F(GenerationTest, RoutingAReplayCountsTheOutput) {
  model_->block_size = 4;
  auto generation = start_completion(R"(,"prompt":[1,2,3,4,5,6])");
  ChoiceRun& choice = generation->choices()[0];
  EXPECT_EQ(generation->view_prompt(choice).sequences().size(), 1U);
  feed(*generation, 0, "some more text than two tokens");
  const request::PromptView replay = generation->view_prompt(choice);
  EXPECT_EQ(replay.tokens(), 6 + choice.journal().generated());
  blocks::BlockHasher hasher(4, blocks::hash_seed("", ""));
  hasher.append(generation->make_engine_request(choice, TimePoint{}).tokens);
  EXPECT_TRUE(std::ranges::equal(replay.sequences(), hasher.sequences()));
}

TEST_F(GenerationTest, WhatMayGoOnElsewhere) {
  GenerationPlan plan;
  plan.model = model_;
  EXPECT_EQ(plan.replay(), continuity::Replay::kAlways);
  plan.structured_outputs = R"({"json":{}})";
  EXPECT_EQ(plan.replay(), continuity::Replay::kBeforeFirstToken);
  model_->structured_replay = true;
  EXPECT_EQ(plan.replay(), continuity::Replay::kAlways);
  plan.routing.pinned = WorkerId(1);
  EXPECT_EQ(plan.replay(), continuity::Replay::kNever);
}

TEST_F(GenerationTest, TheWorkerIsToldTheTimeLeft) {
  auto plan = chat(R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})");
  ASSERT_TRUE(plan.has_value());
  plan->timeout = std::chrono::seconds(10);
  auto generation = start(std::move(*plan));
  const auto deadline_at = [&](Duration passed) {
    return generation->make_engine_request(generation->choices()[0], TimePoint{} + passed)
        .deadline_ms;
  };
  EXPECT_GE(deadline_at(std::chrono::seconds(0)), 10'000U);
  EXPECT_LE(deadline_at(std::chrono::seconds(9)), 2'000U);
  EXPECT_EQ(deadline_at(std::chrono::seconds(20)), 1U) << "0 would mean none";
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
  EXPECT_EQ(generation->make_engine_request(choices[0], TimePoint{}).sampling.seed, 40);
  EXPECT_EQ(generation->make_engine_request(choices[1], TimePoint{}).sampling.seed, 41);
}

TEST_F(GenerationTest, EachPromptOfABatchGetsItsChoices) {
  auto generation = start_completion(R"(,"prompt":["one","two words"],"n":2)");
  ASSERT_EQ(generation->choices().size(), 4U);
  EXPECT_EQ(generation->make_engine_request(generation->choices()[1], TimePoint{}).tokens,
            tokens_of("one"));
  EXPECT_EQ(generation->make_engine_request(generation->choices()[2], TimePoint{}).tokens,
            tokens_of("two words"));
}

TEST_F(GenerationTest, EchoComesBeforeTheFirstToken) {
  auto generation = start_completion(R"(,"echo":true)");
  feed(*generation, 0, " there", FinishReason::kLength);
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr(R"("text":"Hi there")"));
}

inference::StepOutput scored_step(const ChoiceRun& choice, std::vector<TokenId> tokens,
                                  std::span<const TokenId> prompt) {
  inference::StepOutput output;
  for (const TokenId token : tokens) {
    output.logprobs.push_back({{token, -0.5F, 1}, {{token, -0.5F, 1}}});
  }
  output.tokens = std::move(tokens);
  output.deltas = {{.key = choice.key(),
                    .token_count = static_cast<uint32_t>(output.tokens.size()),
                    .finish = FinishReason::kLength}};
  output.prompts.push_back({.key = choice.key(), .tokens = {}});
  for (const TokenId token : prompt) {
    output.prompts.back().tokens.push_back({{token, -2.0F, 7}, {{token, -2.0F, 7}}});
  }
  return output;
}

TEST_F(GenerationTest, EchoWithLogprobsScoresThePromptAndTheAnswer) {
  model_->prompt_logprobs = true;
  auto generation = start_completion(R"(,"prompt":"Hi there","echo":true,"logprobs":1)");
  ChoiceRun& choice = generation->choices()[0];
  const std::vector<TokenId> prompt = tokens_of("Hi there");
  EXPECT_TRUE(generation->make_engine_request(choice, TimePoint{}).prompt_logprobs);

  const auto output = scored_step(choice, tokens_of("!"), std::span(prompt).subspan(1));
  ASSERT_EQ(generation->on_delta(choice, output.deltas[0], output, TimePoint{}),
            Progress::kChoiceDone);
  generation->finish(TimePoint{});

  const json::Value answer = json::parse(exchange_.text)->at("choices").at(0);
  EXPECT_EQ(answer.at("text"), "Hi there!");
  const auto& logprobs = answer.at("logprobs");
  std::string spelled;
  for (const auto& token : logprobs.at("tokens").elements()) {
    spelled += token.text();
  }
  EXPECT_EQ(spelled, "Hi there!");
  const auto& values = logprobs.at("token_logprobs").elements();
  ASSERT_EQ(values.size(), prompt.size() + 1);
  EXPECT_TRUE(values.front().is_null());
  EXPECT_EQ(values.at(1).as_double(), -2);
  EXPECT_EQ(values.back(), -0.5);
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(logprobs.at("top_logprobs").elements().back().at("!"), -0.5);
  EXPECT_EQ(logprobs.at("text_offset").elements().back(), 8);
}

TEST_F(GenerationTest, AWorkerThatDoesNotScoreTheWholePromptIsGivenUp) {
  model_->prompt_logprobs = true;
  auto generation = start_completion(R"(,"prompt":"Hi there","echo":true,"logprobs":1)");
  ChoiceRun& choice = generation->choices()[0];

  const auto output = scored_step(choice, tokens_of("!"), {});

  EXPECT_EQ(generation->on_delta(choice, output.deltas[0], output, TimePoint{}), Progress::kBroken);
  EXPECT_EQ(choice.journal().generated(), 0U);
}

TEST_F(GenerationTest, AnotherWorkerNeedNotScoreThePromptAgain) {
  model_->prompt_logprobs = true;
  auto generation = start_completion(R"(,"prompt":"Hi there","echo":true,"logprobs":1)");
  ChoiceRun& choice = generation->choices()[0];
  const std::vector<TokenId> prompt = tokens_of("Hi there");
  auto output = scored_step(choice, tokens_of("!"), std::span(prompt).subspan(1));
  output.deltas[0].finish = FinishReason::kNone;

  generation->on_delta(choice, output.deltas[0], output, TimePoint{});

  EXPECT_FALSE(generation->make_engine_request(choice, TimePoint{}).prompt_logprobs);
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

TEST_F(GenerationTest, WhatEndedTheAnswerIsToldToWhoAsksForItAlone) {
  auto generation = start_chat(R"(,"stop":["worker"],"nvext":{"extra_fields":["stop_reason"]})");
  feed(*generation, 0, "The worker picks");
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr(R"("stop_reason":"worker")"));
  EXPECT_EQ(exchange_.text.find("worker_id"), std::string::npos);
}

// ---- reasoning and tool calls

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}])";

class ParsedGenerationTest : public GenerationTest {
 protected:
  void SetUp() override {
    model_->parsers =
        *choose_parsers(parsers::FamilyRegistry::builtin(),
                        {.tools = "hermes", .reasoning = "basic"}, *model_->assets->tokenizer);
  }
  /// Feeds `text` token by token.
  Progress say(Generation& generation, std::string_view text,
               FinishReason finish = FinishReason::kStop) {
    const auto tokens = tokens_of(text);
    ChoiceRun& choice = generation.choices()[0];
    for (const TokenId token : tokens) {
      inference::StepOutput output;
      output.tokens = {token};
      output.logprobs = {{.sampled = {.token = token, .logprob = -0.5F, .rank = 1}, .top = {}}};
      const inference::Delta delta{
          .key = choice.key(), .offset = choice.journal().generated(), .token_count = 1};
      generation.on_delta(choice, delta, output, TimePoint{});
    }
    return feed(generation, 0, "", finish);
  }
  /// The JSON of every chunk that was sent, in order.
  std::vector<json::Value> chunks() const {
    std::vector<json::Value> out;
    for (size_t at = 0; (at = exchange_.text.find("data: {", at)) != std::string::npos;) {
      const size_t end = exchange_.text.find("\n\n", at);
      out.push_back(*json::parse(exchange_.text.substr(at + 6, end - at - 6)));
      at = end;
    }
    return out;
  }
  std::vector<json::Value> deltas() const {
    std::vector<json::Value> out;
    for (const auto& chunk : chunks()) {
      for (const auto& choice : chunk.at("choices").elements()) {
        out.push_back(choice.at("delta"));
      }
    }
    return out;
  }
};

constexpr std::string_view kAnswer =
    "<think>\nParis.\n</think>\nLet me see.<tool_call>\n"
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}\n</tool_call>";

TEST_F(ParsedGenerationTest, AUnaryAnswerHasReasoningContentAndCalls) {
  auto generation = start_chat(kTools);
  EXPECT_EQ(say(*generation, kAnswer), Progress::kChoiceDone);
  generation->finish(TimePoint{});
  const json::Value body = *json::parse(exchange_.text);
  const auto& choice = body.at("choices").at(0);
  const auto& message = choice.at("message");
  EXPECT_EQ(message.at("content"), "Let me see.");
  EXPECT_EQ(message.at("reasoning_content"), "Paris.");
  const auto& call = message.at("tool_calls").at(0);
  EXPECT_TRUE(call.at("id").text().starts_with("call_"));
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function").at("name"), "get_weather");
  EXPECT_EQ(call.at("function").at("arguments"), R"({"city": "Paris", "days": 3})");
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens"),
            tokens_of("Paris.").size());
  EXPECT_EQ(generation->parser_counts().tool_calls, 1U);
}

TEST_F(ParsedGenerationTest, ContentIsNullWhenThereAreOnlyCalls) {
  auto generation = start_chat(kTools);
  say(*generation, kAnswer.substr(kAnswer.find("<tool_call>")));
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr(R"("content":null)"));
}

TEST_F(ParsedGenerationTest, AStreamedCallBeginsWithItsNameAndContinuesWithArguments) {
  auto generation = start_chat(std::string(kTools) + R"(,"stream":true)");
  say(*generation, kAnswer);
  generation->finish(TimePoint{});
  std::string content;
  std::string reasoning;
  std::string arguments;
  bool call_open = false;
  for (const auto& delta : deltas()) {
    if (const auto* text = delta.find("content")) {
      EXPECT_FALSE(call_open);
      content += text->text();
    }
    if (const auto* text = delta.find("reasoning_content")) {
      reasoning += text->text();
    }
    const auto* calls = delta.find("tool_calls");
    if (calls == nullptr) {
      continue;
    }
    ASSERT_EQ(calls->elements().size(), 1U) << "one entry per chunk";
    const auto& call = calls->at(0);
    EXPECT_EQ(call.at("index"), 0);
    const auto& function = call.at("function");
    if (!std::exchange(call_open, true)) {
      EXPECT_TRUE(call.find("id"));
      EXPECT_EQ(call.at("type"), "function");
      EXPECT_EQ(function.at("name"), "get_weather");
      EXPECT_EQ(function.at("arguments"), "");
    } else {
      EXPECT_FALSE(call.find("id"));
      EXPECT_FALSE(call.find("type"));
      EXPECT_FALSE(function.find("name"));
      arguments += function.at("arguments").text();
    }
  }
  EXPECT_EQ(content, "Let me see.");
  EXPECT_EQ(reasoning, "Paris.");
  EXPECT_EQ(arguments, R"({"city": "Paris", "days": 3})");
  const auto all = chunks();
  EXPECT_EQ(all.back().at("choices").at(0).at("finish_reason"), "tool_calls");
  EXPECT_EQ(all.front().at("choices").at(0).at("delta").at("role"), "assistant");
}

TEST_F(ParsedGenerationTest, HeldBackTextSendsNothing) {
  auto generation = start_chat(std::string(kTools) + R"(,"stream":true)");
  feed(*generation, 0, "Hello");
  const size_t sent = exchange_.text.size();
  feed(*generation, 0, "<tool_c");
  EXPECT_EQ(exchange_.text.size(), sent);
  feed(*generation, 0, "at>", FinishReason::kLength);
  EXPECT_THAT(exchange_.text, HasSubstr("<tool_cat>"));
  generation->finish(TimePoint{});
}

TEST_F(ParsedGenerationTest, AStreamWhoseTextIsHeldBackIsKeptAlive) {
  auto generation = start_chat(std::string(kTools) + R"(,"stream":true)");
  feed(*generation, 0, "Hello");
  const size_t sent = exchange_.text.size();
  ChoiceRun& choice = generation->choices()[0];
  inference::StepOutput output;
  output.tokens = tokens_of("<tool_call>");
  const TimePoint later = TimePoint{} + std::chrono::seconds(14);
  const inference::Delta delta{.key = choice.key(),
                               .offset = choice.journal().generated(),
                               .token_count = static_cast<uint32_t>(output.tokens.size())};
  generation->on_delta(choice, delta, output, later);
  EXPECT_EQ(exchange_.text.size(), sent);
  generation->keep_alive(later + std::chrono::seconds(1), std::chrono::seconds(15));
  EXPECT_GT(exchange_.text.size(), sent) << "tokens came, but nothing was sent for 15 s";
  generation->fail(Error(Code::kUnavailable, "over"));
}

TEST_F(ParsedGenerationTest, LogprobsOfSwallowedTokensGoWithTheNextChunk) {
  auto generation = start_chat(std::string(kTools) + R"(,"stream":true,"logprobs":true)");
  say(*generation, kAnswer);
  generation->finish(TimePoint{});
  std::string bytes;
  for (const auto& chunk : chunks()) {
    for (const auto& choice : chunk.at("choices").elements()) {
      const auto& logprobs = choice.at("logprobs");
      const bool visible = choice.at("delta").size() > 0 || !choice.at("finish_reason").is_null();
      EXPECT_TRUE(visible);
      if (logprobs.is_null()) {
        continue;
      }
      for (const auto& entry : logprobs.at("content").elements()) {
        for (const auto& byte : entry.at("bytes").elements()) {
          bytes += static_cast<char>(byte.as_int64().value());
        }
      }
    }
  }
  EXPECT_EQ(bytes, kAnswer) << "the raw output, markers included";
}

TEST_F(ParsedGenerationTest, TheReasoningFieldCanHaveItsOtherName) {
  config_.reasoning_field = "reasoning";
  auto generation = start_chat(kTools);
  say(*generation, kAnswer);
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr(R"("reasoning":"Paris.")"));
  EXPECT_THAT(exchange_.text, Not(HasSubstr("reasoning_content")));
}

TEST_F(ParsedGenerationTest, WhatWasSurvivedIsCounted) {
  auto generation = start_chat(kTools);
  say(*generation, "<tool_call>\n{\"name\": \"get_weather\", nonsense\n</tool_call>Sorry.");
  generation->finish(TimePoint{});
  uint32_t recoveries = 0;
  for (const uint32_t count : generation->parser_counts().recoveries) {
    recoveries += count;
  }
  EXPECT_GT(recoveries, 0U);
  EXPECT_EQ(generation->plan().format->name, "hermes");
}

TEST_F(ParsedGenerationTest, CompletionsAreNeverParsed) {
  auto generation = start_completion();
  feed(*generation, 0, "<think>Hm</think>", FinishReason::kLength);
  generation->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr("<think>Hm</think>"));
}

TEST_F(ParsedGenerationTest, AGenerationMayMoveBeforeItsOutputComes) {
  auto first = start_chat(kTools);
  auto moved = std::make_unique<Generation>(std::move(*first));
  first.reset();
  say(*moved, kAnswer);
  moved->finish(TimePoint{});
  EXPECT_THAT(exchange_.text, HasSubstr("get_weather"));
}

TEST_F(GenerationTest, TheWantedShapeReachesEnginesThatFollowIt) {
  const std::string wish = R"(,"response_format":{"type":"json_object"})";
  std::string body = R"({"model":"demo","messages":[{"role":"user","content":"Hi"}])" + wish + "}";
  auto request = api::parse_chat_request(body, {.guided_decoding = true});
  ASSERT_TRUE(request.has_value());
  const auto refused = prepare_chat(*request, {model_, {}}, context());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_EQ(refused.error().param, "response_format");
  model_->structured_output = true;
  auto plan = prepare_chat(std::move(*request), {model_, {}}, context());
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  auto generation = start(std::move(*plan));
  EXPECT_EQ(
      generation->make_engine_request(generation->choices()[0], TimePoint{}).structured_outputs,
      R"({"json_object":true})");
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
