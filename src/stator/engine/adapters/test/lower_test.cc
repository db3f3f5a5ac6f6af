// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "stator/engine/adapters/test/recorded.h"

namespace stator::engine::adapters {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kVocab = 32'000;

EngineFacts facts() {
  EngineFacts out;
  out.model = "m";
  out.max_model_len = 100;
  return out;
}

Code refused(const inference::EngineRequest& request, const Traits& traits) {
  const Status checked = check_request(request, traits, facts(), kVocab);
  return checked ? Code::kInternal : checked.error().code();
}

TEST(CheckRequest, TokensOutsideTheVocabularyAreNeverSent) {
  const auto dialect = make_sglang_dialect({});
  inference::EngineRequest request = make_request();
  EXPECT_TRUE(check_request(request, dialect->traits(), facts(), kVocab));

  request.tokens.push_back(kVocab);

  EXPECT_EQ(refused(request, dialect->traits()), Code::kInvalidArgument);
}

TEST(CheckRequest, WhatNoEngineTakes) {
  const Traits traits = make_vllm_dialect({})->traits();
  const std::function<void(inference::EngineRequest&)> wrong[] = {
      [](inference::EngineRequest& r) { r.tokens.clear(); },
      [](inference::EngineRequest& r) { r.tokens.resize(100, 1); },
      [](inference::EngineRequest& r) { r.generated = 3; },
      [](inference::EngineRequest& r) { r.generated = 2, r.stop.max_tokens = 2; },
      [](inference::EngineRequest& r) { r.stop.min_tokens = 9; },
      [](inference::EngineRequest& r) { r.sampling.logprobs = 21; },
  };
  for (const auto& change : wrong) {
    inference::EngineRequest request = make_request();
    change(request);
    EXPECT_EQ(refused(request, traits), Code::kInvalidArgument);
  }
}

TEST(CheckRequest, WhatAnEngineCannotHonourIsRefusedByName) {
  const Traits text = {.kind = "openai",
                       .min_tokens = false,
                       .ignore_eos = false,
                       .stop_token_ids = false,
                       .structured_output = false};
  const struct {
    std::function<void(inference::EngineRequest&)> change;
    std::string_view name;
  } cases[] = {
      {[](inference::EngineRequest& r) { r.stop.min_tokens = 1; }, "min_tokens"},
      {[](inference::EngineRequest& r) { r.stop.ignore_eos = true; }, "ignore_eos"},
      {[](inference::EngineRequest& r) { r.stop.stop_token_ids = {1}; }, "stop_token_ids"},
      {[](inference::EngineRequest& r) { r.sampling.logprobs = 0; }, "logprobs"},
      {[](inference::EngineRequest& r) { r.cache_salt = "x"; }, "cache_salt"},
      {[](inference::EngineRequest& r) { r.sampling.allowed_token_ids = {1}; },
       "allowed_token_ids"},
      {[](inference::EngineRequest& r) { r.sampling.bad_words = {"x"}; }, "bad_words"},
      {[](inference::EngineRequest& r) { r.structured_outputs = R"({"json_object":true})"; },
       "structured_outputs"},
  };
  for (const auto& [change, name] : cases) {
    inference::EngineRequest request = make_request();
    change(request);
    const Status checked = check_request(request, text, facts(), kVocab);
    ASSERT_FALSE(checked.has_value()) << name;
    EXPECT_EQ(checked.error().code(), Code::kUnsupported);
    EXPECT_THAT(checked.error().message(), HasSubstr(std::string(name)));
  }
}

TEST(CheckRequest, AnAnswerIsNotContinuedWhereItWouldChange) {
  const Traits traits = make_vllm_dialect({})->traits();
  inference::EngineRequest request = make_request();
  request.generated = 1;
  EXPECT_TRUE(check_request(request, traits, facts(), kVocab));

  request.sampling.presence_penalty = 1;
  EXPECT_EQ(refused(request, traits), Code::kUnsupported);
  request.sampling.presence_penalty = 0;
  request.structured_outputs = R"({"json_object":true})";
  EXPECT_EQ(refused(request, traits), Code::kUnsupported);
  request.generated = 0;
  EXPECT_TRUE(check_request(request, traits, facts(), kVocab)) << "from the start it is fine";
}

TEST(CheckRequest, LogprobsOfAPromptAreForWholeRequestsOfSomeEngines) {
  inference::EngineRequest request = make_request();
  request.prompt_logprobs = true;
  request.sampling.logprobs = 1;
  EXPECT_TRUE(check_request(request, make_vllm_dialect({})->traits(), facts(), kVocab));
  EXPECT_TRUE(check_request(request, make_sglang_dialect({})->traits(), facts(), kVocab));
  EXPECT_EQ(refused(request, make_llamacpp_dialect({})->traits()), Code::kUnsupported);

  const Traits traits = make_vllm_dialect({})->traits();
  request.generated = 1;
  EXPECT_EQ(refused(request, traits), Code::kInvalidArgument);
  request.generated = 0;
  request.sampling.logprobs.reset();
  EXPECT_EQ(refused(request, traits), Code::kInvalidArgument);
}

TEST(StopTokens, AreTheClientsAndTheModels) {
  inference::EngineRequest request = make_request();
  request.stop.stop_token_ids = {9, 3};
  request.stop.eos_token_ids = {2, 3};

  EXPECT_THAT(stop_tokens(request), ElementsAre(2, 3, 9));
  EXPECT_TRUE(is_client_stop(request.stop, 9));
  EXPECT_FALSE(is_client_stop(request.stop, 3)) << "EOS comes first";
  EXPECT_FALSE(is_client_stop(request.stop, 2));
  request.stop.ignore_eos = true;
  EXPECT_THAT(stop_tokens(request), ElementsAre(3, 9));
  EXPECT_TRUE(is_client_stop(request.stop, 3));
}

TEST(LlamaCppLower, SendsEveryFieldBecauseTheServersDefaultsAreNotNeutral) {
  const auto dialect = make_llamacpp_dialect({});
  inference::EngineRequest request = make_request();
  request.sampling.logit_bias = {{42, -5.0F}};
  request.sampling.logprobs = 0;
  request.structured_outputs = R"({"regex":"[a-z]+"})";

  const auto call = dialect->lower(request, facts());

  ASSERT_TRUE(call.has_value()) << call.error().message();
  EXPECT_EQ(call->path, "/completion");
  EXPECT_THAT(
      call->body,
      testing::StartsWith(
          R"({"prompt":[1,14826,28371],"n_predict":8,"stream":true,"return_tokens":true,)"
          R"("cache_prompt":true,"temperature":0,"top_k":0,"top_p":1,"min_p":0,"typical_p":1,)"
          R"("repeat_penalty":1,"repeat_last_n":0,"presence_penalty":0,"frequency_penalty":0,)"
          R"("ignore_eos":false,"samplers":["penalties","top_k","top_p","min_p","temperature"],)"
          R"("logit_bias":[[42,-5]],"n_probs":1,"grammar":)"));
}

TEST(LlamaCppLower, PenaltiesLookBackOverTheWholeContext) {
  const auto dialect = make_llamacpp_dialect({});
  inference::EngineRequest request = make_request();
  request.sampling.frequency_penalty = 0.5F;
  EngineFacts known = facts();
  known.max_model_len = 4096;

  EXPECT_THAT(dialect->lower(request, known)->body, testing::HasSubstr(R"("repeat_last_n":4096,)"));
}

TEST(TrtllmLower, SendsOnlyKeysOfItsOwnSchema) {
  const auto dialect = make_trtllm_dialect({});

  const auto call = dialect->lower(make_request(), facts());

  ASSERT_TRUE(call.has_value());
  EXPECT_EQ(call->body, R"({"model":"m","prompt":[1,14826,28371],"detokenize":false,"stream":true,)"
                        R"("stream_options":{"include_usage":true},"max_tokens":8,"min_tokens":0,)"
                        R"("temperature":0,"top_p":1,"top_k":0,"min_p":0,"presence_penalty":0,)"
                        R"("frequency_penalty":0,"repetition_penalty":1,"ignore_eos":false,)"
                        R"("stop_token_ids":[]})");
  inference::EngineRequest request = make_request();
  request.sampling.logprobs = 1;
  EXPECT_EQ(refused(request, dialect->traits()), Code::kUnsupported);
}

}  // namespace
}  // namespace stator::engine::adapters
