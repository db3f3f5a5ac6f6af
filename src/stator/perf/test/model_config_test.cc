// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/model_config.h"

#include <gtest/gtest.h>

#include "stator/perf/engine_memory.h"
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

struct ModelFile {
  std::string_view name;
  double billions;
  std::string_view config;
};
constexpr ModelFile kFiles[] = {
    {"windows with heads of their own", 309,
     R"({"model_type":"mimo_v2_flash","num_hidden_layers":6,"hidden_size":4096,"num_attention_heads":64,
         "num_key_value_heads":4,"head_dim":192,"v_head_dim":128,"intermediate_size":16384,"vocab_size":152576,
         "sliding_window":128,"swa_num_key_value_heads":8,"swa_head_dim":192,"swa_v_head_dim":128,
         "hybrid_layer_pattern":[0,1,1,1,1,1],"moe_layer_freq":[0,1,1,1,1,1],"moe_intermediate_size":2048,
         "n_routed_experts":256,"n_shared_experts":null,"num_experts_per_tok":8})"},
    {"compressed keys", 284,
     R"({"model_type":"deepseek_v4","num_hidden_layers":4,"hidden_size":4096,"num_attention_heads":64,
         "num_key_value_heads":1,"head_dim":512,"vocab_size":129280,"sliding_window":128,"q_lora_rank":1024,
         "o_lora_rank":1024,"o_groups":8,"index_head_dim":128,"index_n_heads":64,"index_topk":512,
         "moe_intermediate_size":2048,"n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":6,
         "compress_ratios":[0,0,4,128]})"},
    {"a state per channel", 51.6,
     R"({"model_type":"jamba","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
         "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":65536,"num_experts":16,
         "num_experts_per_tok":2,"attn_layer_period":8,"attn_layer_offset":4,"expert_layer_period":2,
         "expert_layer_offset":1,"mamba_d_state":16,"mamba_expand":2})"},
    {"other names of sizes", 131.6,
     R"({"model_type":"dbrx","d_model":6144,"n_layers":40,"n_heads":48,"max_seq_len":32768,"vocab_size":100352,
         "attn_config":{"kv_n_heads":8},
         "ffn_config":{"ffn_hidden_size":10752,"moe_num_experts":16,"moe_top_k":4}})"},
    {"two products", 41.3,
     R"({"model_type":"falcon","hidden_size":8192,"num_hidden_layers":60,"num_attention_heads":128,
         "num_kv_heads":8,"multi_query":true,"new_decoder_architecture":true,"vocab_size":65024})"},
    {"experts beside dense networks", 560,
     R"({"model_type":"longcat_flash","hidden_size":6144,"num_layers":28,"ffn_hidden_size":12288,
         "expert_ffn_hidden_size":2048,"n_routed_experts":512,"moe_topk":12,"q_lora_rank":1536,
         "kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
         "num_attention_heads":64,"vocab_size":131072})"},
};

EngineSpec spec_of(const ModelConfig& model) {
  EngineSpec spec;
  spec.model = model;
  spec.system = *find_system("gb300");
  spec.weights = spec.experts = {"int8_wo", 1, QuantMode::Lane::kBfloat16};
  spec.kv = *find_quant("bfloat16");
  return spec;
}

TEST(ModelConfig, FilesOfManyKindsAddUpToWhatTheirNamesSay) {
  for (const ModelFile& file : kFiles) {
    const auto model = parse_model_config(file.config, file.name);
    ASSERT_TRUE(model) << file.name << ": " << model.error().message();
    const auto engine = EngineModel::create(spec_of(*model));
    ASSERT_TRUE(engine) << file.name << ": " << engine.error().message();
    // The first two are cut to a few layers: 6 of 48, 4 of 43.
    const double whole = model->type == "mimo_v2_flash" ? 47.0 / 5
                         : model->type == "deepseek_v4" ? 43.0 / 4
                                                        : 1;
    EXPECT_NEAR(engine->weight_bytes() * whole / 1e9 / file.billions, 1, 0.08) << file.name;
    EXPECT_GT(engine->step_ms({.decode_requests = 8, .decode_context = 4000}), 0) << file.name;
  }
}

TEST(ModelConfig, LayersDifferAsTheirFileSays) {
  const auto windows = parse_model_config(kFiles[0].config, "mimo");
  ASSERT_TRUE(windows);
  ASSERT_EQ(windows->groups.size(), 2U);
  EXPECT_EQ(windows->groups[1].kv_heads, 8U);
  EXPECT_EQ(windows->groups[1].window, 128U);
  const auto compressed = parse_model_config(kFiles[1].config, "v4");
  ASSERT_TRUE(compressed);
  ASSERT_EQ(compressed->groups.size(), 3U);
  EXPECT_EQ(compressed->groups[1].keys_max, 512U);
  EXPECT_EQ(compressed->groups[2].stride, 128U);

  const auto cut = parse_model_config(
      R"({"model_type":"nemotron-nas","num_hidden_layers":2,"hidden_size":8192,"num_attention_heads":64,
          "num_key_value_heads":null,"intermediate_size":null,"vocab_size":128256,"block_configs":[
          {"attention":{"n_heads_in_group":8,"no_op":false},"ffn":{"ffn_mult":5.25,"no_op":false}},
          {"attention":{"no_op":true},"ffn":{"ffn_mult":1.3125,"no_op":false}}]})",
      "nas");
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_EQ(cut->groups[0].intermediate, 28672U);
  EXPECT_EQ(cut->groups[0].kv_heads, 8U);
  EXPECT_EQ(cut->groups[1].attention, AttentionKind::kNone);

  const auto linear = parse_model_config(
      R"({"model_type":"kimi_k3","text_config":{"model_type":"kimi_linear","num_hidden_layers":4,
          "hidden_size":7168,"num_attention_heads":96,"vocab_size":163840,"kv_lora_rank":512,
          "q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
          "intermediate_size":33792,"num_experts":896,"num_experts_per_token":16,"num_shared_experts":2,
          "moe_intermediate_size":3072,"routed_expert_hidden_size":3584,"first_k_dense_replace":1,
          "linear_attn_config":{"full_attn_layers":[4],"kda_layers":[1,2,3],"head_dim":128,"num_heads":96}}})",
      "k3");
  ASSERT_TRUE(linear) << linear.error().message();
  EXPECT_EQ(linear->groups.back().attention, AttentionKind::kMla);
  EXPECT_EQ(linear->groups.front().attention, AttentionKind::kLinear);
  EXPECT_EQ(linear->expert_width(), 3584);
}

TEST(ModelConfig, NumbersThatOnlyPythonWritesAreNothing) {
  const auto model = parse_model_config(
      R"({"model_type":"nemotron_h","hidden_size":64,"num_attention_heads":4,"head_dim":16,
          "intermediate_size":128,"vocab_size":99,"mamba_num_heads":8,"n_groups":1,"ssm_state_size":16,
          "mamba_head_dim":16,"time_step_limit":[0.0,Infinity],"x":NaN,"name":"Infinity",
          "layers_block_type":["mamba","mlp","attention","mlp"]})",
      "h.json");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->layers, 4U);
  EXPECT_EQ(model->groups.size(), 3U);
}

TEST(EngineModel, WindowsAndStatesTakeRoomPerSequence) {
  const auto hybrid = EngineModel::create(spec_of(*find_model("Qwen/Qwen3.5-27B")));
  const auto windows = EngineModel::create(spec_of(*find_model("openai/gpt-oss-20b")));
  const auto dense = EngineModel::create(spec_of(*find_model("Qwen/Qwen3-8B")));
  ASSERT_TRUE(hybrid && windows && dense);

  EXPECT_LT(kv_tokens_max(*hybrid, 8192, 100), 0.5 * kv_tokens_max(*hybrid, 8192, 100'000));
  EXPECT_LT(kv_tokens_max(*windows, 8192, 100), 0.7 * kv_tokens_max(*windows, 8192, 100'000));
  EXPECT_NEAR(kv_tokens_max(*dense, 8192, 100), kv_tokens_max(*dense, 8192, 100'000), 1);
}

TEST(EngineModel, NothingIsFasterThanLightWhateverFactorsMeet) {
  for (const Backend backend : {Backend::kVllm, Backend::kSglang, Backend::kTrtllm}) {
    for (const SystemSpec& system : systems()) {
      EngineSpec spec = spec_of(*find_model("Qwen/Qwen3-32B"));
      spec.system = system;
      spec.backend = backend;
      spec.weights = spec.experts = *find_quant("bfloat16");
      const auto engine = EngineModel::create(spec);
      const EnginePass prompt{.context_requests = 1, .context_tokens = 8192};
      const double math = 2 * 30e9 * 8192 / system.bfloat16_flops * 1e3;
      EXPECT_GT(engine->step_ms(prompt), math) << name_of(backend) << " " << system.name;
    }
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
  EXPECT_EQ(kv_tokens_max(*EngineModel::create(spec), 8192, 4000), 0);
  spec.parallel.tp = 4;
  EXPECT_GT(kv_tokens_max(*EngineModel::create(spec), 8192, 4000), 100'000);
  spec.parallel.tp = 512;
  EXPECT_FALSE(EngineModel::create(spec));
}

TEST(SystemSpec, EveryGpuOfTheReferenceIsThere) {
  for (const std::string_view name :
       {"a100", "h100_sxm", "h200_sxm", "l40s", "l4", "a30", "b200_sxm", "b300_sxm", "gb200",
        "gb300", "rtx_pro_6000_server", "b60", "GB200_NVL72", "rtx-pro-6000", "h200"}) {
    EXPECT_TRUE(find_system(name)) << name;
  }
  const auto unknown = find_system("tpu");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("h200_sxm"), std::string::npos);
}

}  // namespace
}  // namespace stator::perf
