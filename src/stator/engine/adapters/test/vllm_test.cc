// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/vllm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stator/engine/adapters/event_sources.h"
#include "stator/engine/adapters/test/recorded.h"

namespace stator::engine::adapters {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

EngineFacts facts() {
  EngineFacts out;
  out.model = "m";
  out.version = "0.32.0";
  out.max_model_len = 1024;
  out.block_size = 32;
  out.total_blocks = 48;
  return out;
}

TEST(VllmRaise, TokensAndLogprobsOfARecordedStream) {
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 2;

  for (const size_t piece : {1UL, 7UL, 100UL, 100'000UL}) {
    const Replayed got = replay(make_vllm_completion_raiser(request),
                                load_recorded("vllm-0.32/completions-stop-token"), piece);
    ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
    EXPECT_THAT(got.all.tokens, ElementsAre(19281, 27518, 124));
    EXPECT_EQ(got.all.finish, inference::FinishReason::kStop);
    EXPECT_TRUE(got.all.last_is_stop) << "token 124 was asked for";
  }
}

TEST(VllmRaise, TheLastTokenWaitsForTheUsageAndBringsTheCachedTokens) {
  const Replayed got = replay(make_vllm_completion_raiser(make_request()),
                              load_recorded("vllm-0.32/completions-stream-interval"), 1);

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_THAT(got.all.tokens, ElementsAre(9973, 23759, 18799, 23432, 17348, 20066, 17888, 26905));
  EXPECT_EQ(got.all.finish, inference::FinishReason::kLength);
  EXPECT_EQ(got.all.cached_tokens, 32U);
  EXPECT_FALSE(got.all.last_is_stop);
  EXPECT_GT(got.tokens_per_feed.size(), 1U);
}

TEST(VllmRaise, LogprobsOfAPromptComeFromBothRoutes) {
  // The prompt of the recording: 40 tokens, of which the first ones and their values are known.
  inference::EngineRequest request = make_request();
  request.tokens.assign(40, 0);
  request.tokens[1] = 14826;
  request.tokens[2] = 9960;
  request.sampling.logprobs = 1;
  request.prompt_logprobs = true;

  const Replayed got =
      replay(make_vllm_generate_raiser(request), load_recorded("vllm-0.32/generate-nonstream"));

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  ASSERT_EQ(got.all.prompt_logprobs.size(), 39U);
  const auto& [own, top] = got.all.prompt_logprobs[0];
  EXPECT_EQ(own.token, 14826U);
  EXPECT_FLOAT_EQ(own.logprob, -17.715702F);
  EXPECT_EQ(own.rank, 18909U);
  ASSERT_EQ(top.size(), 1U);
  EXPECT_EQ(top[0].token, 30154U);
  EXPECT_EQ(got.all.prompt_logprobs[1].sampled.rank, 1U) << "it is the likeliest one itself";

  request.tokens = {7, 8};
  const std::string choice = R"({"choices":[{"text":"a","token_ids":[5],"finish_reason":"length",)"
                             R"("logprobs":{"tokens":["token_id:5"],"token_logprobs":[-1.0],)"
                             R"("top_logprobs":[{"token_id:5":-1.0}]},"prompt_logprobs":)";
  const auto answer = [&](std::string_view prompt) {
    return replay(make_vllm_completion_raiser(request),
                  {.status = 200,
                   .content_type = "application/json",
                   .body = choice + std::string(prompt) + "}]}"});
  };
  const Replayed completion = answer(R"([null,{"8":{"logprob":-0.25,"rank":1}}])");
  ASSERT_TRUE(completion.status.has_value()) << completion.status.error().message();
  ASSERT_EQ(completion.all.prompt_logprobs.size(), 1U);
  EXPECT_EQ(completion.all.prompt_logprobs[0].sampled.token, 8U);
  EXPECT_EQ(completion.all.prompt_logprobs[0].sampled.logprob, -0.25F);
  EXPECT_EQ(answer("null").status.error().code(), Code::kCorrupt);
  EXPECT_EQ(answer(R"([null,{"x":{"logprob":-1}}])").status.error().code(), Code::kCorrupt);
}

TEST(VllmLower, LogprobsOfAPromptAreAskedForInOnePiece) {
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 2;
  EXPECT_THAT(lower_vllm_completion(request, facts())->body, Not(HasSubstr("prompt_logprobs")));

  request.prompt_logprobs = true;
  for (const auto& call :
       {lower_vllm_completion(request, facts()), lower_vllm_generate(request, facts())}) {
    EXPECT_THAT(call->body, HasSubstr(R"("prompt_logprobs":2)"));
    EXPECT_THAT(call->body, HasSubstr(R"("stream":false)"));
    EXPECT_THAT(call->body, Not(HasSubstr("stream_options")));
  }
}

TEST(VllmRaise, APlainAnswerIsReadWhereAStreamWasAskedFor) {
  const Replayed got = replay(make_vllm_completion_raiser(make_request()),
                              load_recorded("vllm-0.32/completions-nonstream"), 100);

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_THAT(got.all.tokens, ElementsAre(9973, 23759, 18799, 23432, 17348, 20066, 17888, 26905));
  EXPECT_EQ(got.all.finish, inference::FinishReason::kLength);
  EXPECT_EQ(got.all.cached_tokens, 32U);
}

TEST(VllmRaise, GenerateGivesExactRanks) {
  inference::EngineRequest request = make_request(6);
  request.sampling.logprobs = 1;

  const Replayed got =
      replay(make_vllm_generate_raiser(request), load_recorded("vllm-0.32/generate-stream"), 33);

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_THAT(got.all.tokens, ElementsAre(9973, 23759, 18799, 23432, 17348, 20066));
  ASSERT_EQ(got.all.logprobs.size(), 6U);
  EXPECT_EQ(got.all.logprobs[0].sampled.token, 9973U);
  EXPECT_EQ(got.all.logprobs[0].sampled.rank, 1U);
  EXPECT_FLOAT_EQ(got.all.logprobs[0].sampled.logprob, -3.126088857650757F);
  ASSERT_EQ(got.all.logprobs[5].top.size(), 1U);
  EXPECT_EQ(got.all.cached_tokens, 32U);
}

Recorded stream_of(std::string_view events) {
  return {.status = 200, .content_type = "text/event-stream", .body = std::string(events)};
}

TEST(VllmRaise, LogprobsSpelledAsIdsGetRanks) {
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 2;
  const Recorded answer = stream_of(
      R"(data: {"choices":[{"index":0,"text":"ab","token_ids":[7,8],"finish_reason":"length",)"
      R"("logprobs":{"tokens":["token_id:7","token_id:8"],"token_logprobs":[-0.5,-3.0],)"
      R"("top_logprobs":[{"token_id:7":-0.5,"token_id:9":-1.5},)"
      R"({"token_id:8":-3.0,"token_id:5":-0.25,"token_id:6":-1.0}]}}]})"
      "\n\ndata: [DONE]\n\n");

  const Replayed got = replay(make_vllm_completion_raiser(request), answer);

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  ASSERT_EQ(got.all.logprobs.size(), 2U);
  const auto& [sampled, top] = got.all.logprobs[1];
  EXPECT_EQ(sampled.token, 8U);
  EXPECT_EQ(sampled.rank, 3U) << "behind both alternatives";
  ASSERT_EQ(top.size(), 2U);
  EXPECT_EQ(top[0].token, 5U);
  EXPECT_EQ(top[0].rank, 1U);
  EXPECT_EQ(top[1].token, 6U);
  EXPECT_EQ(got.all.logprobs[0].sampled.rank, 1U);
  EXPECT_EQ(got.all.logprobs[0].top.size(), 2U);
}

TEST(VllmRaise, TextLogprobsAreRefusedRatherThanGuessed) {
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 2;

  const Replayed got = replay(make_vllm_completion_raiser(request),
                              load_recorded("vllm-0.32/completions-stream-logprobs-usage"));

  ASSERT_FALSE(got.status.has_value());
  EXPECT_EQ(got.status.error().code(), Code::kCorrupt);
}

TEST(VllmRaise, AServerThatIgnoresReturnTokenIdsIsReadByItsLogprobs) {
  const Recorded answer =
      stream_of(R"(data: {"choices":[{"text":"ab","logprobs":{"tokens":["token_id:7"],)"
                R"("token_logprobs":[-0.5],"top_logprobs":[null]},"finish_reason":"stop"}]})"
                "\n\ndata: [DONE]\n\n");

  EXPECT_THAT(replay(make_vllm_completion_raiser(make_request()), answer).all.tokens,
              ElementsAre(7));
  const Replayed text = replay(make_vllm_completion_raiser(make_request()),
                               stream_of("data: {\"choices\":[{\"text\":\"ab\"}]}\n\n"));
  ASSERT_FALSE(text.status.has_value());
  EXPECT_EQ(text.status.error().code(), Code::kUnsupported);
}

TEST(VllmRaise, HowAnAnswerCanBreak) {
  const struct {
    std::string_view events;
    Code code;
  } cases[] = {
      {"data: {\"choices\":[{\"token_ids\":[1]}]}\n\n", Code::kDisconnected},
      {"data: {\"choices\":[{\"token_ids\":[1]}]}\n\ndata: [DONE]\n\n", Code::kDisconnected},
      {"data: {\"error\":{\"message\":\"x\",\"code\":400}}\n\n", Code::kInvalidArgument},
      {"data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\n", Code::kInternal},
      {"data: {\"choices\":[{\"finish_reason\":\"abort\"}]}\n\n", Code::kDisconnected},
      {"data: {\"choices\":[{\"finish_reason\":\"error\"}]}\n\n", Code::kInternal},
      {"data: nonsense\n\n", Code::kCorrupt},
      {"data: {\"choices\":[7]}\n\n", Code::kCorrupt},
      {"data: {\"choices\":[{\"token_ids\":[-1]}]}\n\n", Code::kCorrupt},
      {"data: {\"choices\":[{\"token_ids\":[99999999999]}]}\n\n", Code::kCorrupt},
  };
  for (const auto& [events, code] : cases) {
    const Replayed got = replay(make_vllm_completion_raiser(make_request()), stream_of(events));
    ASSERT_FALSE(got.status.has_value()) << events;
    EXPECT_EQ(got.status.error().code(), code) << events;
  }
}

TEST(VllmRaise, AConnectionCutBehindTheFinishIsNoFailure) {
  const auto cut = [](std::string_view events) {
    ReplyReader reader(make_vllm_completion_raiser(make_request()), "vllm");
    reader.on_head(200, "text/event-stream");
    Raised raised;
    EXPECT_TRUE(reader.on_bytes(events, raised));
    return std::pair(reader.on_cut(Error(Code::kDisconnected, "cut"), raised), raised);
  };

  const auto [whole, raised] =
      cut("data: {\"choices\":[{\"token_ids\":[1],\"finish_reason\":\"length\"}]}\n\n");
  EXPECT_TRUE(whole.has_value());
  EXPECT_THAT(raised.tokens, ElementsAre(1));
  EXPECT_EQ(raised.finish, inference::FinishReason::kLength);

  const auto [half, some] = cut("data: {\"choices\":[{\"token_ids\":[1]}]}\n\n");
  ASSERT_FALSE(half.has_value());
  EXPECT_EQ(half.error().code(), Code::kDisconnected);
}

TEST(VllmLower, SendsEveryFieldAndCountsFromTheWholeAnswer) {
  inference::EngineRequest request = make_request(20);
  request.tokens = {1, 2, 3, 4};
  request.generated = 3;
  request.stop.min_tokens = 5;
  request.stop.stop_token_ids = {9, 7};
  request.stop.eos_token_ids = {2, 7};
  request.sampling.seed = -5;
  request.sampling.top_k = -1;
  request.sampling.logprobs = 0;
  request.sampling.logit_bias = {{42, -5.0F}};
  request.priority = 3;
  request.cache_salt = "tenant";

  const auto call = lower_vllm_completion(request, facts());

  ASSERT_TRUE(call.has_value()) << call.error().message();
  EXPECT_EQ(call->path, "/v1/completions");
  EXPECT_EQ(
      call->body,
      R"({"model":"m","request_id":"st-1a-1","stream":true,"stream_options":{"include_usage":true},)"
      R"("priority":-3,"cache_salt":"stator-salt:tenant","prompt":[1,2,3,4],"return_token_ids":true,)"
      R"("max_tokens":17,"temperature":0,"top_p":1,"top_k":0,"min_p":0,"presence_penalty":0,)"
      R"("frequency_penalty":0,"repetition_penalty":1,"seed":-5,"ignore_eos":false,"min_tokens":2,)"
      R"("stop_token_ids":[2,7,9],"logit_bias":{"42":-5},"logprobs":0,)"
      R"("return_tokens_as_token_ids":true})");
}

TEST(VllmLower, AnAdapterIsAModelAndTheContextBoundsTheAnswer) {
  inference::EngineRequest request = make_request(5000);
  request.lora_name = "ad1";
  request.stop.ignore_eos = true;
  request.stop.eos_token_ids = {2};

  const auto call = lower_vllm_completion(request, facts());

  ASSERT_TRUE(call.has_value());
  EXPECT_THAT(call->body, HasSubstr(R"("model":"ad1")"));
  EXPECT_THAT(call->body, HasSubstr(R"("max_tokens":1021)"));
  EXPECT_THAT(call->body, HasSubstr(R"("stop_token_ids":[])"));
}

TEST(VllmLower, StructuredOutputHasTheNameTheVersionKnows) {
  inference::EngineRequest request = make_request();
  request.structured_outputs = R"({"choice":["a","b"]})";

  EngineFacts old = facts();
  old.version = "0.9.2";
  EXPECT_THAT(lower_vllm_completion(request, facts())->body,
              HasSubstr(R"("structured_outputs":{"choice":["a","b"]})"));
  EXPECT_THAT(lower_vllm_completion(request, old)->body, HasSubstr(R"("guided_choice":["a","b"])"));
  EXPECT_THAT(lower_vllm_completion(request, old)->body, Not(HasSubstr("structured_outputs")));
}

TEST(VllmLower, GenerateNestsTheSamplingParameters) {
  const auto call = lower_vllm_generate(make_request(), facts());

  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(call->path, "/inference/v1/generate");
  EXPECT_THAT(call->body,
              HasSubstr(R"("token_ids":[1,14826,28371],"sampling_params":{"max_tokens":8,)"));
}

TEST(VllmFacts, FromRecordedAnswers) {
  const auto dialect = make_vllm_dialect({.host = "10.0.0.5"});
  EngineFacts got;
  ASSERT_TRUE(dialect->learn("/v1/models", load_recorded("vllm-0.32/info-v1-models").body, got));
  ASSERT_TRUE(dialect->learn("/version", load_recorded("vllm-0.32/info-version").body, got));
  ASSERT_TRUE(dialect->learn("/metrics", load_testdata("vllm-0.32/metrics.txt"), got));
  ASSERT_TRUE(dialect->learn("/kv_event_sources",
                             load_recorded("vllm-0.32/info-kv_event_sources").body, got));

  EXPECT_EQ(got.model, "m");
  EXPECT_EQ(got.model_root, "qwen3");
  EXPECT_EQ(got.version, "0.32.0");
  EXPECT_EQ(got.max_model_len, 1024U);
  EXPECT_EQ(got.block_size, 32U);
  EXPECT_EQ(got.total_blocks, 48U);
  const KvEventSource source{.dp_rank = 0,
                             .endpoint = "tcp://10.0.0.5:5550",
                             .replay_endpoint = "tcp://10.0.0.5:5551",
                             .topic = "kv-events"};
  EXPECT_THAT(got.kv_sources, ElementsAre(source));
}

TEST(VllmFacts, AnAdapterIsNotTheModelAndAnotherNameIsTold) {
  const auto dialect = make_vllm_dialect({});
  EngineFacts got;
  got.model = "ad1";
  const Status learned =
      dialect->learn("/v1/models", load_recorded("vllm-0.32/lora-models").body, got);
  ASSERT_FALSE(learned.has_value());
  EXPECT_EQ(learned.error().code(), Code::kNotFound);
  EXPECT_FALSE(dialect->learn("/v1/models", "[]", got).has_value());
}

TEST(VllmLoad, FromARecordedScrapeAndOlderNames) {
  const auto dialect = make_vllm_dialect({});
  LoadReading reading;
  ASSERT_TRUE(dialect->read_load(load_testdata("vllm-0.32/metrics.txt"), facts(), reading));
  EXPECT_EQ(reading.load.prefix_query_tokens, 7989U);
  EXPECT_EQ(reading.load.prefix_hit_tokens, 1088U);
  EXPECT_EQ(reading.load.kv_total_blocks, 48U);
  EXPECT_GT(reading.process_start_s, 0);

  LoadReading old;
  ASSERT_TRUE(
      dialect->read_load("vllm:num_requests_running{model_name=\"m\"} 3.0\n"
                         "vllm:num_requests_waiting{model_name=\"m\"} 2.0\n"
                         "vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.5\n",
                         facts(), old));
  EXPECT_EQ(old.load.running, 3U);
  EXPECT_EQ(old.load.waiting, 2U);
  EXPECT_EQ(old.load.kv_used_blocks, 24U);
  EXPECT_FALSE(dialect->read_load("other 1\n", facts(), old));
}

TEST(EventSources, WildcardsBecomeTheEnginesHostAndRanksTheirPorts) {
  EXPECT_EQ(reachable_endpoint("tcp://*:5557", "h"), "tcp://h:5557");
  EXPECT_EQ(reachable_endpoint("tcp://0.0.0.0:5557", "h"), "tcp://h:5557");
  EXPECT_EQ(reachable_endpoint("tcp://10.1.1.1:5557", "h"), "tcp://10.1.1.1:5557");
  EXPECT_EQ(reachable_endpoint("ipc:///tmp/x", "h"), "ipc:///tmp/x");
  EXPECT_EQ(endpoint_of_rank("tcp://h:5557", 2), "tcp://h:5559");
  EXPECT_EQ(endpoint_of_rank("inproc://kv", 1), "inproc://kv_dp1");
}

}  // namespace
}  // namespace stator::engine::adapters
