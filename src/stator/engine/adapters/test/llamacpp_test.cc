// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/test/recorded.h"

namespace stator::engine::adapters {
namespace {

using testing::ElementsAre;

// As a real server with a tiny model sent them, settings and timings shortened.
constexpr std::string_view kStream =
    R"(data: {"index":0,"content":" viewpoints","tokens":[42806],"stop":false,"id_slot":-1,)"
    R"("tokens_predicted":1,"tokens_evaluated":6})"
    "\n\n"
    R"(data: {"index":0,"content":" separate","tokens":[4553],"stop":false,"id_slot":-1,)"
    R"("tokens_predicted":2,"tokens_evaluated":6})"
    "\n\n"
    R"(data: {"index":0,"content":"","tokens":[],"id_slot":1,"stop":true,"model":"tinyv.gguf",)"
    R"("tokens_predicted":2,"tokens_evaluated":6,"truncated":false,"stop_type":"limit",)"
    R"("stopping_word":"","tokens_cached":7,"timings":{"cache_n":4,"prompt_n":2}})"
    "\n\n";

Recorded stream(std::string_view events) {
  return {.status = 200, .content_type = "text/event-stream", .body = std::string(events)};
}

std::unique_ptr<EventRaiser> raiser(const inference::EngineRequest& request = make_request()) {
  static const auto dialect = make_llamacpp_dialect({});
  return dialect->make_raiser(request);
}

TEST(LlamaCppRaise, TheLastEventHasTheReasonButNoTokens) {
  for (const size_t piece : {1UL, 64UL, 100'000UL}) {
    const Replayed got = replay(raiser(), stream(kStream), piece);
    ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
    EXPECT_THAT(got.all.tokens, ElementsAre(42806, 4553));
    EXPECT_EQ(got.all.finish, inference::FinishReason::kLength);
    EXPECT_EQ(got.all.cached_tokens, 4U);
    EXPECT_FALSE(got.all.last_is_stop) << "the end token is not told";
  }
}

TEST(LlamaCppRaise, AClientsStopTokenEndsTheAnswerHere) {
  inference::EngineRequest request = make_request();
  request.stop.stop_token_ids = {4553};
  ReplyReader reader(raiser(request), "llamacpp");
  reader.on_head(200, "text/event-stream");
  Raised raised;

  ASSERT_TRUE(reader.on_bytes(kStream, raised));

  EXPECT_THAT(raised.tokens, ElementsAre(42806, 4553));
  EXPECT_EQ(raised.finish, inference::FinishReason::kStop);
  EXPECT_TRUE(raised.last_is_stop);
  EXPECT_TRUE(reader.abort()) << "the server would go on";
}

TEST(LlamaCppRaise, ProbabilitiesHaveIds) {
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 1;
  const Replayed got = replay(
      raiser(request),
      stream(R"(data: {"tokens":[42806],"stop":false,"completion_probabilities":[{"id":42806,)"
             R"("token":" viewpoints","logprob":-3.5,"top_logprobs":[{"id":7,"logprob":-1.0},)"
             R"({"id":42806,"logprob":-3.5}]}]})"
             "\n\n"
             R"(data: {"tokens":[],"stop":true,"stop_type":"eos"})"
             "\n\n"));

  ASSERT_TRUE(got.status.has_value()) << got.status.error().message();
  EXPECT_EQ(got.all.finish, inference::FinishReason::kStop);
  ASSERT_EQ(got.all.logprobs.size(), 1U);
  EXPECT_EQ(got.all.logprobs[0].sampled.rank, 2U);
  ASSERT_EQ(got.all.logprobs[0].top.size(), 1U);
  EXPECT_EQ(got.all.logprobs[0].top[0].token, 7U);
}

TEST(LlamaCppRaise, ErrorsInAndInsteadOfAStream) {
  EXPECT_EQ(
      replay(raiser(), stream("error: {\"code\":400,\"message\":\"x\"}\n\n")).status.error().code(),
      Code::kInvalidArgument);
  EXPECT_EQ(replay(raiser(), {.status = 503,
                              .content_type = "application/json",
                              .body = R"({"error":{"code":503,"message":"Loading model"}})"})
                .status.error()
                .code(),
            Code::kOverloaded);
  EXPECT_EQ(
      replay(raiser(), stream("data: {\"tokens\":[1],\"stop\":false}\n\n")).status.error().code(),
      Code::kDisconnected);
}

TEST(LlamaCppFacts, ASlotsContextIsTheLimit) {
  const auto dialect = make_llamacpp_dialect({});
  EngineFacts facts;
  ASSERT_TRUE(dialect->learn("/v1/models", R"({"data":[{"id":"tiny.gguf","meta":{}}]})", facts));
  ASSERT_TRUE(dialect->learn("/props",
                             R"({"default_generation_settings":{"n_ctx":256},"total_slots":2,)"
                             R"("model_path":"/models/tiny.gguf","build_info":"b1-x"})",
                             facts));
  EXPECT_EQ(facts.max_model_len, 256U);
  EXPECT_EQ(facts.max_num_seqs, 2U);
  EXPECT_EQ(facts.model_root, "/models/tiny.gguf");
}

}  // namespace
}  // namespace stator::engine::adapters
