// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/pooling/prepare_pool.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "stator/frontend/pooling/pool_body.h"
#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using inference::PoolTask;

class PreparePool : public PrepareFixture {
 protected:
  void SetUp() override {
    model_->pool = {.tasks = {PoolTask::kEmbed, PoolTask::kTokenEmbed, PoolTask::kScore},
                    .width = 4};
  }
  api::ApiResult<PoolPlan> prepare(std::string body,
                                   api::PoolKind kind = api::PoolKind::kEmbeddings) {
    auto call = api::parse_pool_call(body, kind, {});
    EXPECT_TRUE(call.has_value()) << body;
    return prepare_pool(std::move(*call), {model_, {}}, context());
  }
  std::string blamed(std::string body, api::PoolKind kind = api::PoolKind::kEmbeddings) {
    auto plan = prepare(std::move(body), kind);
    return plan ? "accepted" : plan.error().param;
  }
};

std::string input_of(size_t texts) {
  std::string body = R"({"model":"demo","input":["one two")";
  for (size_t i = 1; i < texts; ++i) {
    body += R"(,"one two")";
  }
  return body + "]}";
}

TEST_F(PreparePool, LargeRequestsBecomeSeveralParts) {
  const auto plan = prepare(input_of(300));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->parts.size(), 3U);
  EXPECT_EQ(plan->sequences, 300U);
  size_t tokens = 0;
  for (const PoolPart& part : plan->parts) {
    tokens += part.tokens.size();
    EXPECT_EQ(part.pool.task, PoolTask::kEmbed);
  }
  EXPECT_EQ(tokens, plan->prompt_tokens);
  EXPECT_EQ(plan->parts[0].tokens.size() / plan->parts[0].pool.lengths.size(),
            tokens_of("one two").size());
}

TEST_F(PreparePool, TruncationKeepsTheBeginning) {
  const auto plan = prepare(R"({"model":"demo","input":[5,6,7,8],"truncate_prompt_tokens":3})");
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->parts[0].tokens, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(blamed(R"({"model":"demo","input":"a","truncate_prompt_tokens":4000})"),
            "truncate_prompt_tokens");
}

TEST_F(PreparePool, WhatDoesNotFitIsNamed) {
  model_->context_length = 3;
  EXPECT_EQ(blamed(R"({"model":"demo","input":[[1,2,3],[1]]})"), "accepted");
  EXPECT_EQ(blamed(R"({"model":"demo","input":[[1,2,3,4],[1]]})"), "input[0]");
  EXPECT_EQ(blamed(R"({"model":"demo","input":[1,999999]})"), "input");
  EXPECT_EQ(blamed(R"({"model":"demo","input":"a","dimensions":5})"), "dimensions");
  EXPECT_EQ(blamed(R"({"model":"demo","input":"a"})", api::PoolKind::kClassify), "model");
  EXPECT_EQ(blamed(R"({"model":"demo","input":"a","task":"classify"})", api::PoolKind::kPooling),
            "task");
}

TEST_F(PreparePool, PairsOfAScoringModel) {
  const auto plan = prepare(R"({"model":"demo","query":[1,2],"documents":[[3],[4,5,6]],)"
                            R"("max_tokens_per_doc":2})",
                            api::PoolKind::kRerank);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->compared_queries, 0U);
  EXPECT_EQ(plan->parts[0].pool.lengths.size(), 2U);
  EXPECT_EQ(plan->parts[0].pool.first_lengths.size(), 2U);
  EXPECT_EQ(plan->parts[0].tokens, (std::vector<TokenId>{1, 2, 3, 1, 2, 4, 5}));
}

TEST_F(PreparePool, ModelsWithoutScoresCompareVectors) {
  model_->pool.tasks = {PoolTask::kEmbed};
  const auto plan =
      prepare(R"({"model":"demo","query":[1],"documents":[[1],[2]]})", api::PoolKind::kRerank);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->compared_queries, 1U);
  EXPECT_EQ(plan->sequences, 3U);

  const auto body =
      make_pool_body(*plan, {{.width = 2, .values = {1, 0, 0, 1, 2, 0}, .prompt_tokens = 3}});
  ASSERT_TRUE(body.has_value());
  EXPECT_TRUE(body->text.contains(
      R"("results":[{"index":1,"relevance_score":1},{"index":0,"relevance_score":0}])"))
      << body->text;
}

TEST_F(PreparePool, EnginesThatWantTextGetIt) {
  model_->pool.wants_text = true;
  const auto plan = prepare(R"({"model":"demo","input":["a b","c"]})");
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->parts[0].pool.texts, (std::vector<std::string>{"a b", "c"}));
}

TEST_F(PreparePool, AModelThatOnlyPoolsDoesNotGenerate) {
  EXPECT_TRUE(check_generates(*model_).has_value());
  model_->pool.generates = false;
  const auto refused = check_generates(*model_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.error().param, "model");
}

TEST_F(PreparePool, AnswersThatDoNotFitTheRequestAreNotPassedOn) {
  const auto plan = prepare(input_of(2));
  ASSERT_TRUE(plan.has_value());
  for (const inference::PoolAnswer& wrong :
       {inference::PoolAnswer{.width = 0, .values = {}},
        inference::PoolAnswer{.width = 2, .values = {1, 2}},
        inference::PoolAnswer{.width = 2, .values = {1, 2, 3}}}) {
    const auto body = make_pool_body(*plan, {wrong});
    ASSERT_FALSE(body.has_value());
    EXPECT_EQ(body.error().code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace stator::frontend
