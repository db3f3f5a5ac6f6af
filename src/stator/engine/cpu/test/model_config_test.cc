// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::engine::cpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A minimal file of an architecture, with more fields (",\"a\":1") at its end.
std::string config(std::string_view more = "", std::string_view architecture = "LlamaForCausalLM") {
  return R"({"architectures":[")" + std::string(architecture) +
         R"("],"hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,)"
         R"("num_attention_heads":4,"vocab_size":512)" +
         std::string(more) + "}";
}

TEST(ModelConfig, ReadsAnOldStyleFile) {
  const auto parsed = parse_model_config(config(
      R"(,"num_key_value_heads":2,"head_dim":32,"max_position_embeddings":4096,"rms_norm_eps":1e-5,)"
      R"("tie_word_embeddings":true,"rope_theta":500000.0,"hidden_act":"silu","sliding_window":null,)"
      R"("rope_scaling":{"type":"linear","factor":2.0},"torch_dtype":"bfloat16")",
      "Qwen3ForCausalLM"));

  ASSERT_TRUE(parsed.has_value()) << parsed.error().to_string();
  EXPECT_EQ(parsed->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(parsed->vocab_size, 512U);
  EXPECT_EQ(parsed->layers, 3U);
  EXPECT_EQ(parsed->kv_heads, 2U);
  EXPECT_EQ(parsed->head_dim, 32U);
  EXPECT_EQ(parsed->max_positions, 4096U);
  EXPECT_FLOAT_EQ(parsed->rms_norm_epsilon, 1e-5F);
  EXPECT_TRUE(parsed->tied_embeddings);
  EXPECT_TRUE(parsed->query_key_norm);
  EXPECT_FALSE(parsed->qkv_bias);
  EXPECT_EQ(parsed->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(parsed->rope.theta, 500000.0);
  EXPECT_EQ(parsed->rope.factor, 2.0);
  EXPECT_THAT(parsed->sliding_window, ElementsAre(0, 0, 0));
}

TEST(ModelConfig, FillsInDefaults) {
  const auto parsed = parse_model_config(config());

  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->kv_heads, 4U);
  EXPECT_EQ(parsed->head_dim, 16U);
  EXPECT_FALSE(parsed->tied_embeddings);
  EXPECT_EQ(parsed->rope.theta, 10000.0);
  EXPECT_EQ(parsed->rope.scaling, RopeScaling::kNone);
}

TEST(ModelConfig, ReadsNewStyleRopeParameters) {
  const auto parsed = parse_model_config(config(
      R"(,"rope_parameters":{"rope_type":"llama3","rope_theta":5e5,"factor":8,"low_freq_factor":1,)"
      R"("high_freq_factor":4,"original_max_position_embeddings":8192})"));

  ASSERT_TRUE(parsed.has_value()) << parsed.error().to_string();
  EXPECT_EQ(parsed->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(parsed->rope.theta, 5e5);
  EXPECT_EQ(parsed->rope.original_positions, 8192U);
}

TEST(ModelConfig, BiasFollowsTheArchitecture) {
  const auto qwen2 = parse_model_config(config("", "Qwen2ForCausalLM"));
  const auto llama = parse_model_config(config(R"(,"attention_bias":true,"mlp_bias":true)"));

  ASSERT_TRUE(qwen2.has_value());
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->output_bias);
  ASSERT_TRUE(llama.has_value());
  EXPECT_TRUE(llama->qkv_bias);
  EXPECT_TRUE(llama->output_bias);
  EXPECT_TRUE(llama->mlp_bias);
}

TEST(ModelConfig, SlidingWindowsFollowLayerTypesOrMaxWindowLayers) {
  const auto mistral = parse_model_config(config(R"(,"sliding_window":8)", "MistralForCausalLM"));
  const auto unused = parse_model_config(
      config(R"(,"sliding_window":8,"use_sliding_window":false)", "Qwen2ForCausalLM"));
  const auto last_layers = parse_model_config(
      config(R"(,"sliding_window":8,"use_sliding_window":true,"max_window_layers":2)",
             "Qwen2ForCausalLM"));
  const auto by_type = parse_model_config(
      config(R"(,"sliding_window":8,"use_sliding_window":true,)"
             R"("layer_types":["full_attention","sliding_attention","full_attention"])",
             "Qwen3ForCausalLM"));

  EXPECT_THAT(mistral->sliding_window, ElementsAre(8, 8, 8));
  EXPECT_THAT(unused->sliding_window, ElementsAre(0, 0, 0));
  EXPECT_THAT(last_layers->sliding_window, ElementsAre(0, 0, 8));
  EXPECT_THAT(by_type->sliding_window, ElementsAre(0, 8, 0));
}

struct BadConfig {
  std::string json;
  std::string_view message;
  Code code;
};

class BadConfigs : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedWithTheirField) {
  const auto parsed = parse_model_config(GetParam().json);

  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code(), GetParam().code);
  EXPECT_THAT(parsed.error().message(), HasSubstr("config.json"));
  EXPECT_THAT(parsed.error().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Unsupported, BadConfigs,
    testing::Values(
        BadConfig{config("", "StableLmForCausalLM"), "'StableLmForCausalLM'", Code::kUnsupported},
        BadConfig{config(R"(,"quantization_config":{"quant_method":"fp8"})"), "quantization_config",
                  Code::kUnsupported},
        BadConfig{config(R"(,"hidden_act":"gelu")"), "hidden_act 'gelu'", Code::kUnsupported},
        BadConfig{config(R"(,"partial_rotary_factor":1.5)"), "partial_rotary_factor",
                  Code::kCorrupt},
        BadConfig{config(R"(,"rope_scaling":{"rope_type":"mrope","factor":4})"), "'mrope'",
                  Code::kUnsupported},
        BadConfig{config(R"(,"rope_parameters":{"full_attention":{"factor":0}})"), "RoPE factors",
                  Code::kCorrupt},
        BadConfig{config(R"(,"head_dim":15)"), "head_dim = 15", Code::kUnsupported},
        BadConfig{
            config(
                R"(,"use_sliding_window":true,"sliding_window":8,"layer_types":["full_attention","chunked_attention","full_attention"])"),
            "'chunked_attention'", Code::kUnsupported}));

INSTANTIATE_TEST_SUITE_P(
    Corrupt, BadConfigs,
    testing::Values(
        BadConfig{"", "not a JSON object", Code::kCorrupt},
        BadConfig{"[]", "not a JSON object", Code::kCorrupt},
        BadConfig{"{}", "architectures[0]", Code::kCorrupt},
        BadConfig{R"({"architectures":["LlamaForCausalLM"]})", "vocab_size is missing",
                  Code::kCorrupt},
        BadConfig{config(R"(,"num_key_value_heads":3)"), "no multiple", Code::kCorrupt},
        BadConfig{config(R"(,"num_key_value_heads":0)"), "num_key_value_heads", Code::kCorrupt},
        BadConfig{config(R"(,"head_dim":99999999999)"), "head_dim", Code::kCorrupt},
        BadConfig{config(R"(,"head_dim":1048576)"), "head_dim", Code::kCorrupt},
        BadConfig{config(R"(,"rms_norm_eps":"x")"), "rms_norm_eps", Code::kCorrupt},
        BadConfig{config(R"(,"tie_word_embeddings":1)"), "tie_word_embeddings", Code::kCorrupt},
        BadConfig{config(R"(,"rope_theta":0)"), "rope_theta", Code::kCorrupt},
        BadConfig{config(R"(,"rope_scaling":"linear")"), "rope_scaling", Code::kCorrupt},
        BadConfig{config(R"(,"rope_scaling":{"rope_type":"llama3"})"), "'llama3' has no factor",
                  Code::kCorrupt},
        BadConfig{config(R"(,"layer_types":["full_attention"])"), "layer_types", Code::kCorrupt},
        BadConfig{config(R"(,"rope_scaling":{"type":"linear","factor":0})"), "factors",
                  Code::kCorrupt},
        BadConfig{config(R"(,"use_sliding_window":true,"sliding_window":8,"layer_types":[])"),
                  "layer_types", Code::kCorrupt}));

TEST(GenerationDefaults, PrefersTheGenerationFile) {
  const auto defaults = parse_generation_defaults(
      R"({"eos_token_id":2,"bos_token_id":1})",
      R"({"eos_token_id":[7,9],"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0.1,)"
      R"("repetition_penalty":1.05})");

  ASSERT_TRUE(defaults.has_value()) << defaults.error().to_string();
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(7, 9));
  EXPECT_EQ(defaults->bos_token_id, 1U);
  EXPECT_EQ(defaults->temperature, 0.6F);
  EXPECT_EQ(defaults->top_p, 0.95F);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->min_p, 0.1F);
  EXPECT_EQ(defaults->repetition_penalty, 1.05F);
}

TEST(GenerationDefaults, FallsBackToTheModelsEos) {
  const auto defaults = parse_generation_defaults(R"({"eos_token_id":2,"bos_token_id":null})", "");

  ASSERT_TRUE(defaults.has_value());
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(defaults->bos_token_id.has_value());
  EXPECT_FALSE(defaults->temperature.has_value());
}

TEST(GenerationDefaults, RefusesWhatIsNoTokenOrNumber) {
  for (const std::string_view text : {"{", R"({"eos_token_id":"x"})", R"({"eos_token_id":[-1]})",
                                      R"({"temperature":"hot"})", R"({"top_k":1e300})"}) {
    const auto defaults = parse_generation_defaults("{}", text);
    ASSERT_FALSE(defaults.has_value()) << text;
    EXPECT_EQ(defaults.error().code(), Code::kCorrupt);
    EXPECT_THAT(defaults.error().message(), HasSubstr("generation_config.json"));
  }
}

}  // namespace
}  // namespace stator::engine::cpu
