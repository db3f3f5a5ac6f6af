// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace stator::engine {
namespace {

using testing::HasSubstr;

TEST(EngineConfig, TheRunnersLimitIsTheDefaultContext) {
  EXPECT_EQ(resolve(EngineConfig{}, 2048)->max_model_len, 2048U);
}

TEST(EngineConfig, ContradictionsNameTheKey) {
  const struct {
    const char* key;
    std::function<void(EngineConfig&)> breaks;
  } cases[] = {
      {"block_size", [](auto& c) { c.block_size = 0; }},
      {"block_size", [](auto& c) { c.block_size = 2048; }},
      {"total_blocks", [](auto& c) { c.total_blocks = 0; }},
      {"total_blocks", [](auto& c) { c.total_blocks = 127; }},
      {"max_model_len", [](auto& c) { c.max_model_len = 1; }},
      {"max_model_len", [](auto& c) { c.max_model_len = 4096; }},
      {"max_num_seqs", [](auto& c) { c.max_num_seqs = 0; }},
      {"max_num_batched_tokens", [](auto& c) { c.max_num_batched_tokens = 255; }},
      {"enable_chunked_prefill",
       [](auto& c) {
         c.enable_chunked_prefill = false;
         c.max_num_batched_tokens = 1024;
       }},
      {"waiting_max", [](auto& c) { c.waiting_max = 0; }},
  };
  for (const auto& [key, breaks] : cases) {
    EngineConfig config;
    breaks(config);
    const auto result = resolve(config, 2048);
    ASSERT_FALSE(result.has_value()) << key;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr(key));
  }
}

inference::EngineRequest good_request() {
  inference::EngineRequest request;
  request.tokens = {1, 2, 3};
  request.stop.max_tokens = 4;
  return request;
}

TEST(EngineConfig, RefusesRequestsThatCannotRun) {
  const EngineConfig config = *resolve(EngineConfig{}, 8);
  ASSERT_TRUE(validate(good_request(), config, 10));
  const struct {
    const char* names;
    std::function<void(inference::EngineRequest&)> breaks;
  } cases[] = {
      {"empty", [](auto& r) { r.tokens.clear(); }},
      {"max_model_len", [](auto& r) { r.tokens.assign(8, 1); }},
      {"vocabulary", [](auto& r) { r.tokens[2] = 10; }},
      {"generated", [](auto& r) { r.generated = 3; }},
      {"max_tokens", [](auto& r) { r.stop.max_tokens = 0; }},
      {"max_tokens",
       [](auto& r) {
         r.stop.max_tokens = 2;
         r.generated = 2;
       }},
      {"min_tokens", [](auto& r) { r.stop.min_tokens = 5; }},
      {"LoRA", [](auto& r) { r.lora_name = "adapter"; }},
  };
  for (const auto& [names, breaks] : cases) {
    inference::EngineRequest request = good_request();
    breaks(request);
    const Status status = validate(request, config, 10);
    ASSERT_FALSE(status.has_value()) << names;
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(status.error().message(), HasSubstr(names));
  }
}

TEST(EngineConfig, AdaptersAreWelcomeWhereSupported) {
  EngineConfig config = *resolve(EngineConfig{}, 8);
  config.supports_lora = true;
  inference::EngineRequest request = good_request();
  request.lora_name = "adapter";
  EXPECT_TRUE(validate(request, config, 10));
}

TEST(EngineConfig, StructuredOutputIsRefusedWhereItWouldNotBeKept) {
  EngineConfig config = *resolve(EngineConfig{}, 8);
  inference::EngineRequest request = good_request();
  request.structured_outputs = R"({"json_object":true})";
  const Status refused = validate(request, config, 10);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  config.structured_output = true;
  EXPECT_TRUE(validate(request, config, 10));
}

TEST(EngineConfig, LogprobsOfAPromptAreRefusedWhereNobodyTellsThem) {
  EngineConfig config = *resolve(EngineConfig{}, 8);
  inference::EngineRequest request = good_request();
  request.sampling.logprobs = 1;
  request.prompt_logprobs = true;
  const Status refused = validate(request, config, 10);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  config.prompt_logprobs = true;
  EXPECT_TRUE(validate(request, config, 10));
}

}  // namespace
}  // namespace stator::engine
