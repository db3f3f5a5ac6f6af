// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/pooling.h"

#include <gtest/gtest.h>

namespace stator::engine::adapters {
namespace {

EngineFacts facts() {
  EngineFacts facts;
  facts.model = "m";
  return facts;
}

inference::EngineRequest ask(inference::PoolTask task) {
  inference::EngineRequest request{.key = {RequestId(1), Attempt(0)}, .tokens = {1, 2, 3}};
  request.pool = inference::PoolRequest{.task = task, .lengths = {2, 1}, .texts = {"a b", "c"}};
  return request;
}

inference::EngineRequest ask_pairs(std::vector<std::string> texts) {
  inference::EngineRequest request = ask(inference::PoolTask::kScore);
  request.pool->texts = std::move(texts);
  return request;
}

std::string lowered(const inference::EngineRequest& request, std::string_view kind) {
  const auto call = lower_pool(request, kind, facts());
  return call ? call->path + " " + call->body : "refused: " + call.error().message();
}

TEST(LowerPool, EmbeddingsGoAsIdsWhereTheServerTakesThem) {
  EXPECT_EQ(lowered(ask(inference::PoolTask::kEmbed), "vllm"),
            R"(/v1/embeddings {"model":"m","input":[[1,2],[3]],"encoding_format":"base64"})");
  EXPECT_EQ(lowered(ask(inference::PoolTask::kEmbed), "sglang"),
            R"(/v1/embeddings {"model":"m","input":[[1,2],[3]],"encoding_format":"float"})");
  EXPECT_EQ(lowered(ask(inference::PoolTask::kEmbed), "openai"),
            R"(/v1/embeddings {"model":"m","input":["a b","c"],"encoding_format":"float"})");
}

TEST(LowerPool, TheOtherTasksHaveRoutesOfVllm) {
  EXPECT_EQ(lowered(ask(inference::PoolTask::kTokenEmbed), "vllm"),
            R"(/pooling {"model":"m","input":[[1,2],[3]],"task":"token_embed"})");
  EXPECT_EQ(lowered(ask(inference::PoolTask::kClassify), "vllm"),
            R"(/classify {"model":"m","input":[[1,2],[3]]})");
  EXPECT_EQ(lowered(ask(inference::PoolTask::kClassify), "sglang"),
            "refused: engine 'sglang' has no route for task 'classify'");
}

TEST(LowerPool, PairsAreScoredOrRanked) {
  EXPECT_EQ(lowered(ask_pairs({"q", "a", "q", "b"}), "vllm"),
            R"(/score {"model":"m","text_1":["q","q"],"text_2":["a","b"]})");
  EXPECT_EQ(
      lowered(ask_pairs({"q", "a", "q", "b"}), "llamacpp"),
      R"(/v1/rerank {"model":"m","query":"q","documents":["a","b"],"return_documents":false})");
  EXPECT_TRUE(lowered(ask_pairs({"q", "a", "other", "b"}), "llamacpp").starts_with("refused"));
  EXPECT_TRUE(lowered(ask_pairs({}), "vllm").starts_with("refused"));
}

Result<inference::PoolAnswer> raised(inference::PoolTask task, std::string_view body) {
  const auto raiser = make_pool_raiser(ask(task));
  Raised out;
  STATOR_CHECK(raiser->on_event(body, out));
  STATOR_CHECK(raiser->on_done(out));
  return std::move(*out.pooled);
}

TEST(RaisePool, VectorsAsNumbersAndAsBase64InAnyOrder) {
  const auto answer = raised(inference::PoolTask::kEmbed,
                             R"({"data":[{"index":1,"embedding":"AACAPwAAIMA="},)"
                             R"({"index":0,"embedding":[0.5,2]}],"usage":{"prompt_tokens":3}})");
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_EQ(*answer,
            (inference::PoolAnswer{.width = 2, .values = {0.5F, 2, 1, -2.5F}, .prompt_tokens = 3}));
}

TEST(RaisePool, RowsPerToken) {
  const auto answer =
      raised(inference::PoolTask::kTokenEmbed,
             R"({"data":[{"index":0,"data":[[1,2],[3,4]]},{"index":1,"data":[[5,6]]}]})");
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_EQ(answer->rows, (std::vector<uint32_t>{2, 1}));
  EXPECT_EQ(answer->values.size(), 6U);
}

TEST(RaisePool, ScoresOfEveryShape) {
  for (const std::string_view body :
       {R"({"data":[{"index":0,"score":0.5},{"index":1,"score":1}]})",
        R"({"results":[{"index":1,"relevance_score":1},{"index":0,"relevance_score":0.5}]})",
        R"([{"score":1,"index":1},{"score":0.5,"index":0}])"}) {
    const auto answer = raised(inference::PoolTask::kScore, body);
    ASSERT_TRUE(answer.has_value()) << body << answer.error().message();
    EXPECT_EQ(answer->values, (std::vector<float>{0.5F, 1})) << body;
  }
}

TEST(RaisePool, WhatContradictsTheRequestIsNoAnswer) {
  for (const std::string_view body :
       {R"({"data":[{"index":0,"embedding":[1]}]})",
        R"({"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]})",
        R"({"data":[{"index":0,"embedding":[1]},{"index":7,"embedding":[1]}]})",
        R"({"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]})",
        R"({"data":[{"index":0,"embedding":["x"]},{"index":1,"embedding":[1]}]})",
        R"({"data":[{"index":0,"embedding":"AAA"},{"index":1,"embedding":[1]}]})", "[", "{}"}) {
    EXPECT_FALSE(raised(inference::PoolTask::kEmbed, body).has_value()) << body;
  }
}

TEST(PoolAbility, ByWhatTheServerToldAndWhatTheOperatorSays) {
  EngineFacts told = facts();
  EXPECT_TRUE(pool_ability("vllm", told, "auto").generates);
  EXPECT_FALSE(pool_ability("vllm", told, "auto").tasks.any());
  told.generates = false;
  told.pool_tasks = {inference::PoolTask::kEmbed};
  EXPECT_TRUE(pool_ability("vllm", told, "auto").tasks.has(inference::PoolTask::kEmbed));
  EXPECT_FALSE(pool_ability("vllm", told, "auto").generates);
  EXPECT_TRUE(pool_ability("vllm", facts(), "score").tasks.has(inference::PoolTask::kScore));
  EXPECT_TRUE(pool_ability("openai", facts(), "auto").tasks.has(inference::PoolTask::kEmbed));
  EXPECT_FALSE(pool_ability("openai", facts(), "generate").tasks.any());
}

}  // namespace
}  // namespace stator::engine::adapters
