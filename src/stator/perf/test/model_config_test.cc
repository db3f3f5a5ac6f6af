// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/model_config.h"

#include <gtest/gtest.h>

#include "stator/perf/engine_model.h"
#include "stator/perf/model_catalogue.h"

namespace stator::perf {
namespace {

TEST(ModelConfig, EveryModelOfTheCatalogueIsRead) {
  for (const CatalogueEntry& entry : model_catalogue()) {
    const auto model = parse_model_config(entry.config, entry.name);
    ASSERT_TRUE(model) << model.error().message();
    uint32_t layers = 0;
    for (const LayerGroup& group : model->groups) {
      layers += group.count;
    }
    EXPECT_EQ(layers, model->layers) << entry.name;
  }
}

TEST(ModelConfig, ParametersAddUpToWhatTheNamesSay) {
  struct Case {
    std::string_view name;
    double billions;
  };
  for (const Case& each : {Case{"Qwen/Qwen3-32B", 32.8}, Case{"meta-llama/Llama-3.1-70B", 70.6},
                           Case{"deepseek-ai/DeepSeek-R1", 671}, Case{"openai/gpt-oss-120b", 117},
                           Case{"Qwen/Qwen3-235B-A22B-FP8", 235},
                           Case{"Qwen/Qwen3.5-397B-A17B", 397}, Case{"zhipuai/GLM-5", 744}}) {
    EngineSpec spec;
    spec.model = *find_model(each.name);
    spec.system = *find_system("gb300");
    spec.weights = spec.experts = {"int8_wo", 1, QuantMode::Lane::kBfloat16};
    spec.kv = *find_quant("bfloat16");
    const auto engine = EngineModel::create(spec);
    ASSERT_TRUE(engine) << engine.error().message();
    EXPECT_NEAR(engine->weight_bytes() / 1e9 / each.billions, 1, 0.06) << each.name;
  }
}

TEST(ModelConfig, KindsAreTold) {
  EXPECT_TRUE(find_model("deepseek-ai/DeepSeek-V3")->is_mla());
  EXPECT_TRUE(find_model("Qwen/Qwen3.5-27B")->is_hybrid());
  const auto gpt = find_model("openai/gpt-oss-20b");
  ASSERT_EQ(gpt->groups.size(), 2U);
  EXPECT_EQ(gpt->groups[0].window + gpt->groups[1].window, 128U);
}

TEST(ModelConfig, WhatIsNotModelledIsRefusedByField) {
  const auto unknown = parse_model_config(R"({"model_type":"abacus"})", "c.json");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("model_type"), std::string::npos);
  const auto missing =
      parse_model_config(R"({"model_type":"llama","num_hidden_layers":2})", "c.json");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("hidden_size"), std::string::npos);
  const auto layers = parse_model_config(
      R"({"model_type":"qwen3","num_hidden_layers":1,"hidden_size":64,"num_attention_heads":4,
          "vocab_size":99,"intermediate_size":128,"layer_types":["wavelet"]})",
      "c.json");
  ASSERT_FALSE(layers);
  EXPECT_NE(layers.error().message().find("layer_types"), std::string::npos);
}

TEST(ModelConfig, QuantizationIsNamedByItsWidth) {
  const auto named = [](std::string_view said) {
    const auto model = parse_model_config(
        R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,)"
        R"("intermediate_size":128,"vocab_size":100,"quantization_config":)" +
            std::string(said) + "}",
        "test");
    return model ? model->quantization : model.error().message();
  };
  EXPECT_EQ(named(R"({"quant_method":"fp8"})"), "fp8");
  EXPECT_EQ(named(R"({"quant_method":"awq","bits":4})"), "int4_wo");
  EXPECT_EQ(named(R"({"quant_method":"gptq","bits":8})"), "int8_wo");
  EXPECT_EQ(named(R"({"quant_method":"modelopt","quant_algo":"NVFP4"})"), "nvfp4");
  EXPECT_EQ(named(R"({"quant_method":"compressed-tensors","config_groups":{"group_0":
      {"weights":{"num_bits":8,"type":"float"},"input_activations":{"num_bits":8}}}})"),
            "fp8");
  EXPECT_EQ(named(R"({"quant_method":"quip#"})"), "quip#");  // find_quant() knows no such
}

TEST(EngineModel, TimeGrowsWithWork) {
  EngineSpec spec;
  spec.model = *find_model("Qwen/Qwen3-32B");
  spec.system = *find_system("h200");
  spec.weights = spec.experts = *find_quant("fp8");
  spec.kv = *find_quant("bfloat16");
  spec.parallel.tp = 2;
  const auto engine = EngineModel::create(spec);
  ASSERT_TRUE(engine);

  EXPECT_EQ(engine->step_ms({}), 0);
  double last = 0;
  for (const double batch : {1.0, 8.0, 64.0, 256.0}) {
    const double ms = engine->step_ms({.decode_requests = batch, .decode_context = 2000});
    EXPECT_GT(ms, last);
    last = ms;
  }
  const EnginePass mixed{
      .context_requests = 1, .context_tokens = 2048, .decode_requests = 8, .decode_context = 2000};
  EXPECT_GT(engine->step_ms(mixed),
            engine->step_ms({.decode_requests = 8, .decode_context = 2000}));
}

TEST(EngineModel, MemoryLimitsWhatFits) {
  EngineSpec spec;
  spec.model = *find_model("meta-llama/Llama-3.1-70B");
  spec.system = *find_system("h100_sxm");
  spec.weights = spec.experts = *find_quant("bfloat16");
  spec.kv = *find_quant("bfloat16");
  EXPECT_EQ(EngineModel::create(spec)->kv_tokens_max(8192), 0);
  spec.parallel.tp = 4;
  EXPECT_GT(EngineModel::create(spec)->kv_tokens_max(8192), 100'000);
  spec.parallel.tp = 512;
  EXPECT_FALSE(EngineModel::create(spec));
}

TEST(SystemSpec, EveryGpuOfTheReferenceIsThere) {
  for (const std::string_view name :
       {"a100", "h100_sxm", "h200_sxm", "l40s", "l4", "a30", "b200_sxm", "b300_sxm", "gb200",
        "gb300", "rtx_pro_6000_server", "b60"}) {
    EXPECT_TRUE(find_system(name)) << name;
  }
  const auto unknown = find_system("tpu");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("h200_sxm"), std::string::npos);
}

}  // namespace
}  // namespace stator::perf
