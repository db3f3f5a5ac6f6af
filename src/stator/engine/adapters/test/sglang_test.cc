// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/test/recorded.h"

namespace stator::engine::adapters {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const auto kTokens = ElementsAre(9192, 7940, 7668, 25939, 9095, 4801, 9947, 10737);

std::unique_ptr<EventRaiser> raiser(const inference::EngineRequest& request = make_request()) {
  static const auto dialect = make_sglang_dialect({});
  return dialect->make_raiser(request);
}

TEST(SglangRaise, ACumulativeStreamGivesEachTokenOnce) {
  for (const size_t piece : {1UL, 50UL, 100'000UL}) {
    const Replayed got = replay(raiser(), load_recorded("sglang-0.5.23/generate-stream"), piece);
    ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
    EXPECT_THAT(got.all.tokens, kTokens);
    EXPECT_EQ(got.all.finish, inference::FinishReason::kLength);
  }
}

TEST(SglangRaise, AnIncrementalStreamGivesTheSame) {
  const auto event = [](int token, int total, std::string_view finish) {
    return "data: {\"output_ids\":[" + std::to_string(token) +
           "],\"meta_info\":{\"completion_tokens\":" + std::to_string(total) +
           ",\"finish_reason\":" + std::string(finish) + "}}\n\n";
  };
  const Recorded answer = {.status = 200,
                           .content_type = "text/event-stream",
                           .body = event(5, 1, "null") + event(6, 2, "null") +
                                   event(7, 3, R"({"type":"stop","matched":7})") +
                                   "data: [DONE]\n\n"};

  const Replayed got = replay(raiser(), answer, 1);

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_THAT(got.all.tokens, ElementsAre(5, 6, 7));
  EXPECT_EQ(got.all.finish, inference::FinishReason::kStop);
  EXPECT_TRUE(got.all.last_is_stop);
}

TEST(SglangRaise, LogprobsAndCachedTokensOfAPlainAnswer) {
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 2;

  const Replayed got = replay(raiser(request), load_recorded("sglang-0.5.23/generate-nonstream"));

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_THAT(got.all.tokens, kTokens);
  EXPECT_EQ(got.all.cached_tokens, 32U);
  ASSERT_EQ(got.all.logprobs.size(), 8U);
  EXPECT_EQ(got.all.logprobs[1].sampled.token, 7940U);
  EXPECT_EQ(got.all.logprobs[1].sampled.rank, 1U);
  ASSERT_EQ(got.all.logprobs[1].top.size(), 2U);
  EXPECT_EQ(got.all.logprobs[1].top[1].token, 14740U);
}

TEST(SglangRaise, LogprobsOfAPromptStartBehindItsFirstToken) {
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 2;
  request.prompt_logprobs = true;

  const Replayed got = replay(raiser(request), load_recorded("sglang-0.5.23/generate-nonstream"));

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  ASSERT_EQ(got.all.prompt_logprobs.size(), 3U) << "the recording asked for the last four";
  EXPECT_EQ(got.all.prompt_logprobs[0].sampled.token, 1405U);
  EXPECT_FLOAT_EQ(got.all.prompt_logprobs[0].sampled.logprob, -16.928843F);
  ASSERT_EQ(got.all.prompt_logprobs[0].top.size(), 2U);
  EXPECT_EQ(got.all.prompt_logprobs[0].top[1].token, 10321U);
  EXPECT_EQ(got.all.logprobs.size(), 8U);
}

TEST(SglangLower, LogprobsOfAPromptAreAskedForInOnePiece) {
  const auto dialect = make_sglang_dialect({});
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 2;
  EXPECT_THAT(dialect->lower(request, {})->body, Not(HasSubstr("logprob_start_len")));

  request.prompt_logprobs = true;
  const auto call = dialect->lower(request, {});

  EXPECT_THAT(call->body, HasSubstr(R"("logprob_start_len":0)"));
  EXPECT_THAT(call->body, HasSubstr(R"("stream":false)"));
}

TEST(SglangRaise, AnAbortIsTheClientsOrTheEngines) {
  const auto abort = [](int status) {
    return Recorded{
        .status = 200,
        .content_type = "text/event-stream",
        .body = R"(data: {"output_ids":[],"meta_info":{"finish_reason":{"type":"abort",)"
                R"("message":"why","status_code":)" +
                std::to_string(status) + "}}}\n\n"};
  };
  EXPECT_EQ(replay(raiser(), abort(400)).status.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(replay(raiser(), abort(503)).status.error().code(), Code::kDisconnected);
  EXPECT_EQ(replay(raiser(), load_recorded("sglang-0.5.23/error-too-long")).status.error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(replay(raiser(), load_recorded("sglang-0.5.23/abort-disconnect")).status.error().code(),
            Code::kDisconnected)
      << "the recording ends in mid stream";
}

TEST(SglangFacts, FromRecordedAnswers) {
  const auto dialect = make_sglang_dialect({.host = "h"});
  EngineFacts facts;
  ASSERT_TRUE(
      dialect->learn("/v1/models", load_recorded("sglang-0.5.23/info-v1-models").body, facts));
  ASSERT_TRUE(
      dialect->learn("/server_info", load_testdata("sglang-0.5.23/server_info.json"), facts));

  EXPECT_EQ(facts.model, "m");
  EXPECT_EQ(facts.version, "0.5.23");
  EXPECT_EQ(facts.max_model_len, 1024U);
  EXPECT_EQ(facts.block_size, 16U);
  EXPECT_EQ(facts.total_blocks, 256U);
  EXPECT_FALSE(facts.keeps_seeds);
  ASSERT_EQ(facts.kv_sources.size(), 1U);
  EXPECT_EQ(facts.kv_sources[0].endpoint, "tcp://h:5560");

  LoadReading reading;
  ASSERT_TRUE(dialect->read_load(load_testdata("sglang-0.5.23/metrics.txt"), facts, reading));
  EXPECT_EQ(reading.load.prefix_hit_tokens, 224U);
  EXPECT_EQ(reading.load.prefix_query_tokens, 337U);
  EXPECT_EQ(reading.load.kv_used_blocks, 5U) << "token_usage 0.02 of 256";
}

TEST(SglangLower, NamesItsOwn) {
  inference::EngineRequest request = make_request();
  request.sampling.seed = 7;
  request.sampling.logprobs = 3;
  request.priority = 5;
  request.structured_outputs = R"({"choice":["a","b"]})";
  EngineFacts facts;

  const auto call = make_sglang_dialect({})->lower(request, facts);

  ASSERT_TRUE(call.has_value()) << call.error().message();
  EXPECT_EQ(call->path, "/generate");
  for (const char* part :
       {R"("input_ids":[1,14826,28371])", R"("max_new_tokens":8)", R"("top_k":-1)",
        R"("sampling_seed":7)", R"("return_logprob":true,"top_logprobs_num":3)", R"("priority":5)",
        R"("regex":)"}) {
    EXPECT_THAT(call->body, HasSubstr(part));
  }
}

}  // namespace
}  // namespace stator::engine::adapters
