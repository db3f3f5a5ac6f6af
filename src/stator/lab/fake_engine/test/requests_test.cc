// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/lab/fake_engine/plain_request.h"
#include "stator/lab/fake_engine/vllm_request.h"

namespace stator::fake_engine {
namespace {

using testing::HasSubstr;

struct View {
  FakeModel model;
  VllmModelView vllm{.model = model, .max_model_len = 1'024, .dp_size = 2, .names = {"m", "ad1"}};
  PlainView plain{
      .model = model, .dialect = Dialect::kSglang, .model_name = "m", .max_model_len = 1'024};
};

VllmResult<VllmRequest> completion(std::string_view body, const VllmHeaders& headers = {}) {
  const View view;
  return read_vllm_request(VllmRoute::kCompletions, body, headers, view.vllm);
}

TEST(VllmRequest, DefaultsAreTheEngines) {
  const auto request = completion(R"({"prompt":[5,6,7]})");

  ASSERT_TRUE(request);
  EXPECT_EQ(request->spec.stop.max_tokens, 16U);
  EXPECT_EQ(request->spec.prompts, (std::vector<std::vector<TokenId>>{{5, 6, 7}}));
  EXPECT_EQ(request->spec.altered, 0U);
}

TEST(VllmRequest, LowerPriorityValuesRunFirst) {
  EXPECT_EQ(completion(R"({"prompt":[5],"priority":3})")->spec.priority, -3);
}

TEST(VllmRequest, AdaptersAreModelsWithOtherTokens) {
  const auto request = completion(R"({"prompt":[5],"model":"ad1"})");

  ASSERT_TRUE(request);
  EXPECT_EQ(request->spec.owner.lora_name, "ad1");
  EXPECT_EQ(request->spec.owner.lora_id, 1U);
  EXPECT_NE(request->spec.altered, 0U);
}

TEST(VllmRequest, RefusalsNameTheField) {
  for (const auto& [body, word, param] : std::vector<std::array<const char*, 3>>{
           {R"({"prompt":[5],"model":"x"})", "does not exist", "model"},
           {R"({"prompt":[5],"max_tokens":0})", "at least 1, got 0", "max_tokens"},
           {R"({"prompt":[5],"max_tokens":"x"})", "int_parsing", "body.max_tokens"},
           {R"({"prompt":[5],"temperature":-1})", "non-negative, got -1.0", "temperature"},
           {R"({"prompt":[5],"top_p":0})", "top_p must be in (0, 1]", "top_p"},
           {R"({"prompt":[5],"n":2,"temperature":0})", "greedy", "n"},
           {R"({"prompt":[5],"logprobs":21})", "max allowed: 20", "logprobs"},
           {R"({"prompt":[5,-1]})", "greater than or equal to 0", "body.prompt.1"},
           {R"({"prompt":[5],"max_tokens":1020,"min_tokens":-1})", "min_tokens", "min_tokens"},
           {R"({"prompt":[32000]})", "out of vocabulary", ""},
           {R"({"prompt":[]})", "at least one prompt", ""},
           {R"({"prompt":[[],[5]]})", "at least one prompt", ""},
           {R"({"prompt":[5],"stop":[""]})", "empty string", ""},
           {R"([5])", "json_invalid", "body.3"},
       }) {
    const auto request = completion(body);
    ASSERT_FALSE(request) << body;
    EXPECT_THAT(request.error().message, HasSubstr(word)) << body;
    EXPECT_EQ(request.error().param, param) << body;
  }
}

TEST(VllmRequest, RanksOutOfRangeAreRefused) {
  EXPECT_EQ(completion(R"({"prompt":[5]})", {.dp_rank = "1"})->spec.dp_rank, 1U);
  EXPECT_FALSE(completion(R"({"prompt":[5]})", {.dp_rank = "2"}));
  EXPECT_FALSE(completion(R"({"prompt":[5]})", {.dp_rank = "x"}));
}

TEST(PlainRequest, SglangHasItsOwnNamesAndDefaults) {
  const View view;
  const auto request = read_plain_request(
      PlainRoute::kSglangGenerate,
      R"({"rid":"r","input_ids":[5,6],"sampling_params":{"sampling_seed":3},"routed_dp_rank":0})",
      view.plain);

  ASSERT_TRUE(request);
  EXPECT_EQ(request->spec.stop.max_tokens, 128U);
  EXPECT_EQ(request->spec.sampling.seed, 3);
  EXPECT_EQ(request->id, "r");
  EXPECT_EQ(request->spec.dp_rank, 0U);
}

TEST(PlainRequest, NonsenseIsRefused) {
  const View view;
  for (const char* body : {"", "[]", "{}", R"({"input_ids":[]})", R"({"input_ids":[-1]})",
                           R"({"input_ids":[5],"sampling_params":{"temperature":-1}})",
                           R"({"input_ids":[5],"sampling_params":{"max_new_tokens":-2}})",
                           R"({"input_ids":[5],"sampling_params":{"max_new_tokens":"x"}})"}) {
    EXPECT_FALSE(read_plain_request(PlainRoute::kSglangGenerate, body, view.plain)) << body;
  }
}

TEST(PlainRequest, ForeignTokensAreTheCallersBusiness) {
  const View view;
  const auto request =
      read_plain_request(PlainRoute::kSglangGenerate, R"({"input_ids":[5,32000]})", view.plain);

  ASSERT_TRUE(request);
  EXPECT_EQ(find_foreign_token(request->spec, view.model), 32'000U);
}

}  // namespace
}  // namespace stator::fake_engine
