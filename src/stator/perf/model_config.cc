// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/perf/detail/config_fields.h"
#include "stator/perf/detail/model_layers.h"
#include "stator/perf/model_catalogue.h"

namespace stator::perf {
namespace {

using detail::ConfigFields;

constexpr uint32_t kLayersMax = 4096;

/// A model_type: products of a feed-forward network (3: gated), what its configuration class has
/// where the file says nothing, and which of several readings of its fields holds.
struct ModelType {
  std::string_view name;
  uint32_t gemms = 3;
  std::string_view defaults = "{}";
};

constexpr std::string_view kLlama =
    R"({"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":11008,"vocab_size":32000})";
constexpr std::string_view kMistral =
    R"({"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000})";
constexpr std::string_view kGemma3 =
    R"({"hidden_size":2304,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"intermediate_size":9216,"vocab_size":262208,"sliding_window":4096})";
constexpr std::string_view kGemma =
    R"({"num_attention_heads":16,"head_dim":256,"vocab_size":256000})";

constexpr ModelType kTypes[] = {
    {"llama", 3, kLlama},
    {"mistral", 3, kMistral},
    {"ministral", 3, kMistral},
    {"ministral3", 3, kMistral},
    {"qwen2"},
    {"qwen3"},
    {"qwen2_vl"},
    {"qwen2_vl_text"},
    {"qwen2_5_vl"},
    {"qwen2_5_vl_text"},
    {"qwen3_vl"},
    {"qwen3_vl_text"},
    {"phi3"},
    {"phi3_v"},
    {"phi4mm"},
    {"phi4_multimodal"},
    {"mimo"},
    {"gemma", 3, kGemma},
    {"gemma2", 3, kGemma},
    {"gemma3", 3, kGemma3},
    {"gemma3_text", 3, kGemma3},
    {"gemma4", 3, kGemma3},
    {"gemma4_text", 3, kGemma3},
    {"granite"},
    {"olmo"},
    {"olmo2"},
    {"olmo3"},
    {"internlm2"},
    {"internlm3"},
    {"yi"},
    {"glm"},
    {"glm4"},
    {"glm4v_text"},
    {"chatglm"},
    {"baichuan"},
    {"cohere"},
    {"cohere2"},
    {"seed_oss"},
    {"smollm3"},
    {"exaone"},
    {"exaone4"},
    {"stablelm"},
    {"minicpm"},
    {"minicpm3"},
    {"helium"},
    {"ernie4_5"},
    {"hunyuan_v1_dense"},
    {"mllama_text_model"},
    {"nemotron-nas"},
    {"xverse"},
    {"aquila"},
    {"orion"},
    {"gpt2", 2},
    {"gpt_bigcode", 2},
    {"gpt_neo", 2},
    {"gpt_neox", 2},
    {"gptj", 2},
    {"bloom", 2},
    {"opt", 2},
    {"mpt", 2},
    {"falcon", 2},
    {"phi", 2},
    {"starcoder2", 2},
    {"nemotron", 2},
    {"arcee", 2},
    {"apertus", 2},
    {"mixtral"},
    {"phimoe"},
    {"olmoe"},
    {"dbrx"},
    {"qwen2_moe"},
    {"qwen3_moe"},
    {"qwen3_vl_moe"},
    {"qwen3_vl_moe_text"},
    {"qwen3_omni_moe_text"},
    {"minimax_m2"},
    {"minimax_m3"},
    {"minimax_m3_vl"},
    {"mimo_v2_flash"},
    {"gpt_oss"},
    {"llama4"},
    {"llama4_text"},
    {"glm4_moe"},
    {"glm4v_moe_text"},
    {"ernie4_5_moe"},
    {"hunyuan_v1_moe"},
    {"bailing_moe"},
    {"bailing_moe_v2"},
    {"dots1"},
    {"step3p7"},
    {"granitemoe"},
    {"afmoe"},
    {"solar_open"},
    {"deepseek"},
    {"deepseek_v2"},
    {"deepseek_v3"},
    {"deepseek_v32"},
    {"deepseek_v4"},
    {"deepseek_ref"},
    {"kimi_k2"},
    {"kimi_k25"},
    {"kimi_linear"},
    {"glm_moe_dsa"},
    {"glm4_moe_lite"},
    {"longcat_flash"},
    {"qwen3_next"},
    {"qwen3_5"},
    {"qwen3_5_text"},
    {"qwen3_5_moe"},
    {"qwen3_5_moe_text"},
    {"minimax"},
    {"minimax_m1"},
    {"minimax_text_01"},
    {"nemotron_h", 2},
    {"jamba"},
    {"bamba"},
    {"granitemoehybrid"},
};

/// Heads of keys and values: told by a number, or by a flag that there is one, or a few.
Status read_kv_heads(const ConfigFields& config, ModelConfig& model) {
  const bool many = config.flag("new_decoder_architecture");
  uint32_t usual = model.heads;
  if ((config.flag("multi_query") && !many)) {
    usual = 1;
  } else if (config.flag("multi_query_attention")) {
    STATOR_TRY(usual, config.need({"multi_query_group_num"}));
  }
  STATOR_TRY(model.kv_heads, config.size({"num_key_value_heads"}, 0));
  if (model.kv_heads == 0) {
    STATOR_TRY(model.kv_heads, config.object("attn_config").size({"kv_n_heads"}, 0));
  }
  if (model.kv_heads == 0 && (many || config.find({"multi_query"}) == nullptr)) {
    STATOR_TRY(model.kv_heads, config.size({"num_kv_heads", "n_head_kv"}, 0));
  }
  model.kv_heads = model.kv_heads > 0 ? model.kv_heads : std::max(usual, 1U);
  return {};
}

Status read_attention(const ConfigFields& config, ModelConfig& model) {
  STATOR_TRY(model.heads, config.need({"num_attention_heads", "n_head", "n_heads", "num_heads"}));
  STATOR_CHECK(read_kv_heads(config, model));
  STATOR_TRY(model.head_dim, config.size({"head_dim", "attention_head_dim", "kv_channels"},
                                         std::max(1U, model.hidden / model.heads)));
  STATOR_TRY(model.kv_lora, config.size({"kv_lora_rank"}, 0));
  STATOR_TRY(model.q_lora, config.size({"q_lora_rank"}, 0));
  if (model.kv_lora > 0) {
    STATOR_TRY(model.qk_nope, config.need({"qk_nope_head_dim"}));
    STATOR_TRY(model.qk_rope, config.need({"qk_rope_head_dim"}));
    STATOR_TRY(model.v_dim, config.size({"v_head_dim"}, model.qk_nope));
  } else {
    STATOR_TRY(model.v_dim, config.size({"v_head_dim"}, 0));
  }
  STATOR_TRY(model.o_lora, config.size({"o_lora_rank"}, 0));
  STATOR_TRY(model.o_groups, config.size({"o_groups"}, 1));
  STATOR_TRY(model.index_topk, config.size({"index_topk"}, 0));
  if (model.index_topk > 0) {
    STATOR_TRY(model.index_heads, config.need({"index_n_heads"}));
    STATOR_TRY(model.index_dim, config.need({"index_head_dim"}));
  } else {
    const ConfigFields sparse = config.object("sparse_attention_config");
    STATOR_TRY(model.index_heads, sparse.size({"sparse_num_index_heads"}, 0));
    STATOR_TRY(model.index_dim, sparse.size({"sparse_index_dim"}, 0));
  }
  model.output_gate = config.flag("attn_output_gate");
  return {};
}

/// Width of the dense feed-forward network.
Result<uint32_t> read_width(const ConfigFields& config, const ModelConfig& model) {
  STATOR_TRY(const uint32_t times, config.size({"expansion_ratio"}, 4));
  STATOR_TRY(const uint32_t said,
             config.size({"intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"}, 0));
  if (said > 0 || config.find({"block_configs"}) != nullptr) {
    return said;
  }
  return model.gemms_per_ffn == 2 ? Result<uint32_t>(times * model.hidden)
                                  : config.need({"intermediate_size"});
}

Status read_experts(const ConfigFields& config, ModelConfig& model) {
  const ConfigFields ffn = config.object("ffn_config");
  STATOR_TRY(
      model.experts,
      config.size({"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}, 0));
  if (model.experts == 0) {
    STATOR_TRY(model.experts, ffn.size({"moe_num_experts"}, 0));
  }
  const json::Value* block = config.find({"enable_moe_block"});
  if (model.experts < 2 || (block != nullptr && !config.flag("enable_moe_block"))) {
    model.experts = 0;
    STATOR_TRY(model.intermediate, read_width(config, model));
    return {};
  }
  STATOR_TRY(model.experts_per_token,
             config.size({"num_experts_per_tok", "num_experts_per_token", "experts_per_token",
                          "top_k_experts", "moe_topk", "moe_k"},
                         0));
  STATOR_TRY(const uint32_t top, ffn.size({"moe_top_k"}, 0));
  model.experts_per_token = std::max(model.experts_per_token, top);
  if (model.experts_per_token == 0 || model.experts_per_token > model.experts) {
    return config.fail("num_experts_per_tok", "must be from 1 to the number of experts");
  }
  STATOR_TRY(const uint32_t inner, ffn.size({"ffn_hidden_size"}, 0));
  STATOR_TRY(
      model.expert_intermediate,
      config.size({"moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"}, inner));
  if (model.expert_intermediate == 0) {
    return config.fail("moe_intermediate_size", "is missing");
  }
  STATOR_TRY(model.expert_hidden, config.size({"routed_expert_hidden_size", "moe_latent_size"}, 0));
  STATOR_TRY(model.intermediate, config.size({"dense_intermediate_size", "intermediate_size_mlp",
                                              "ffn_hidden_size", "intermediate_size"},
                                             model.expert_intermediate));
  STATOR_TRY(const uint32_t shared, config.size({"n_shared_experts", "num_shared_experts",
                                                 "num_shared_expert", "moe_num_shared_experts"},
                                                0));
  STATOR_TRY(model.shared_intermediate,
             config.size({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                          "share_expert_dim", "shared_intermediate_size"},
                         shared * model.expert_intermediate));
  if (block != nullptr || model.type.starts_with("llama4")) {  // a dense one beside the experts
    model.shared_intermediate = block != nullptr ? model.intermediate : model.expert_intermediate;
  }
  return {};
}

Status read_linear(const ConfigFields& config, ModelConfig& model) {
  if (config.find({"linear_num_value_heads"}) != nullptr) {
    STATOR_TRY(model.linear_value_heads, config.need({"linear_num_value_heads"}));
    STATOR_TRY(model.linear_key_heads, config.need({"linear_num_key_heads"}));
    STATOR_TRY(model.linear_key_dim, config.need({"linear_key_head_dim"}));
    STATOR_TRY(model.linear_value_dim, config.need({"linear_value_head_dim"}));
  } else if (config.find({"mamba_num_heads", "mamba_n_heads"}) != nullptr) {
    STATOR_TRY(model.linear_value_heads, config.need({"mamba_num_heads", "mamba_n_heads"}));
    STATOR_TRY(model.linear_key_heads, config.need({"n_groups", "mamba_n_groups"}));
    STATOR_TRY(model.linear_key_dim, config.need({"ssm_state_size", "mamba_d_state"}));
    STATOR_TRY(model.linear_value_dim, config.need({"mamba_head_dim", "mamba_d_head"}));
  } else if (config.find({"mamba_d_state"}) != nullptr) {  // one state per channel
    constexpr uint32_t kChannels = 64;
    STATOR_TRY(const uint32_t times, config.size({"mamba_expand"}, 2));
    STATOR_TRY(model.linear_key_dim, config.need({"mamba_d_state"}));
    model.linear_key_heads = 1;
    model.linear_value_dim = kChannels;
    model.linear_value_heads = std::max(1U, times * model.hidden / kChannels);
  } else if (config.find({"linear_attn_config"}) != nullptr) {
    const ConfigFields linear = config.object("linear_attn_config");
    STATOR_TRY(model.linear_value_heads, linear.need({"num_heads"}));
    STATOR_TRY(model.linear_value_dim, linear.need({"head_dim"}));
    model.linear_key_heads = model.linear_value_heads;
    model.linear_key_dim = model.linear_value_dim;
  } else if (config.find({"attn_type_list"}) != nullptr ||
             (model.type.starts_with("minimax") && config.find({"layer_types"}) != nullptr)) {
    model.linear_value_heads = model.linear_key_heads = model.heads;
    model.linear_value_dim = model.linear_key_dim = model.head_dim;
  }
  return {};
}

Result<const ModelType*> find_type(const ConfigFields& config) {
  const json::Value* type = config.find({"model_type"});
  if (type == nullptr) {
    return config.fail("model_type", "is missing");
  }
  const auto* const known = std::ranges::find(kTypes, type->text(), &ModelType::name);
  if (known == std::end(kTypes)) {
    std::string names;
    for (const ModelType& each : kTypes) {
      names += names.empty() ? "" : ", ";
      names += each.name;
    }
    return config.fail("model_type",
                       fmt::format("'{}' is not modelled; known: {}", type->text(), names));
  }
  return known;
}

Result<ModelConfig> read_fields(json::Value object, std::string_view name, bool is_nested) {
  STATOR_TRY(const ModelType* type, find_type(ConfigFields(object, name)));
  // Models within others leave out what their class has anyhow; a file of its own says all.
  const json::Value defaults = *json::parse(is_nested ? type->defaults : "{}");
  for (const auto& [key, value] : defaults.members()) {
    if (object.find(key) == nullptr) {
      object[key] = value;
    }
  }
  const ConfigFields config(object, name);
  ModelConfig model;
  model.name = name;
  model.type = type->name;
  model.gemms_per_ffn = type->gemms;
  const json::Value* blocks = config.find({"layers_block_type"});
  STATOR_TRY(model.layers, config.size({"num_hidden_layers", "n_layer", "num_layers", "n_layers"},
                                       blocks != nullptr && blocks->is_array()
                                           ? static_cast<uint32_t>(blocks->size())
                                           : 0));
  if (model.layers == 0 || model.layers > kLayersMax) {
    return config.fail("num_hidden_layers",
                       fmt::format("must be a whole number from 1 to {}", kLayersMax));
  }
  STATOR_TRY(model.hidden, config.need({"hidden_size", "n_embd", "d_model", "n_embed"}));
  STATOR_TRY(model.vocabulary, config.need({"vocab_size", "padded_vocab_size"}));
  STATOR_TRY(model.context_max, config.size({"max_position_embeddings", "n_positions", "seq_length",
                                             "max_seq_len", "model_max_length"},
                                            0));
  STATOR_CHECK(read_attention(config, model));
  STATOR_CHECK(read_experts(config, model));
  STATOR_CHECK(read_linear(config, model));
  STATOR_CHECK(read_layers(config, model));
  return model;
}

/// Python writes numbers that JSON has not: NaN, Infinity. They become null.
std::string without_python_numbers(std::string_view text) {
  std::string out;
  bool quoted = false;
  while (!text.empty()) {
    size_t used = 1;
    if (quoted && text.front() == '\\' && text.size() > 1) {
      used = 2;
    } else if (text.front() == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        used = text.starts_with(word) ? word.size() : used;
      }
    }
    out += used > 2 ? std::string_view("null") : text.substr(0, used);
    text.remove_prefix(used);
  }
  return out;
}

/// Where the language model of a file stands: in it, or one or two levels down.
const json::Value& language_model(const json::Value& root) {
  const json::Value* at = &root;
  for (const std::string_view field :
       {"thinker_config", "text_config", "llm_config", "language_config"}) {
    const json::Value* nested = at->find(field);
    at = nested != nullptr && nested->is_object() ? nested : at;
  }
  return *at;
}

std::string normalize(std::string_view name) {
  std::string out(name.substr(
      name.find_last_of('/') == std::string_view::npos ? 0 : name.find_last_of('/') + 1));
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : (c == '_' ? '.' : c);
  });
  if (out.starts_with("meta-")) {
    out.erase(0, 5);
  }
  constexpr std::array<std::string_view, 19> kSuffixes = {"-fp8-static-per-tensor",
                                                          "-fp8-dynamic",
                                                          "-fp8-block",
                                                          "-fp8",
                                                          "-nvfp4",
                                                          "-fp4",
                                                          "-mxfp4",
                                                          "-int4",
                                                          "-int8",
                                                          "-awq",
                                                          "-gptq",
                                                          "-bf16",
                                                          "-instruct",
                                                          "-it",
                                                          "-hf",
                                                          "-thinking",
                                                          "-base",
                                                          "-v0.1",
                                                          "-chat"};
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view suffix : kSuffixes) {
      if (out.ends_with(suffix)) {
        out.erase(out.size() - suffix.size());
        cut = true;
      }
    }
  }
  return out;
}

/// How wide the weights of a `quantization_config` are, as find_quant() names it where it can; else
/// the method's own name.
std::string read_quantization(const json::Value& said) {
  const std::string method(said.text_at({"quant_method"}));
  const auto bits_at = [&](const json::Value& place, std::string_view key) {
    return place.at(key).as_uint64().value_or(4);
  };
  if (method == "awq" || method == "gptq" || method == "auto-round") {
    const auto bits = bits_at(said, said.find("w_bit") != nullptr ? "w_bit" : "bits");
    return bits == 4 ? "int4_wo" : bits == 8 ? "int8_wo" : method;
  }
  if (method == "bitsandbytes") {
    return said.at("load_in_8bit").as_bool().value_or(false) ? "int8_wo" : "int4_wo";
  }
  if (method == "fbgemm_fp8" || method == "modelopt_fp8") {
    return "fp8";
  }
  if (method == "modelopt" || method == "modelopt_fp4") {
    const std::string_view algorithm = said.text_at({"quant_algo"});
    return algorithm == "FP8"                          ? "fp8"
           : algorithm == "NVFP4" || algorithm.empty() ? "nvfp4"
                                                       : method;
  }
  const json::Value* groups = said.find("config_groups");
  if (method == "compressed-tensors" && groups == nullptr) {
    return "int4_wo";  // the catalogue leaves the groups out
  }
  if (method == "compressed-tensors" && groups != nullptr && groups->is_object()) {
    for (const auto& [name, group] : groups->members()) {
      const json::Value& weights = group.at("weights");
      const bool wide =
          group.find("input_activations") == nullptr || group.at("input_activations").is_null();
      const auto bits = bits_at(weights, "num_bits");
      if (weights.text_at({"type"}) == "float") {
        return bits == 8 ? "fp8" : bits == 4 ? (wide ? "nvfp4_wo" : "nvfp4") : method;
      }
      return bits == 4 ? "int4_wo" : bits == 8 ? (wide ? "int8_wo" : "int8") : method;
    }
  }
  return method;
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text, std::string_view name) {
  STATOR_TRY(const json::Value root, json::parse(without_python_numbers(text)), name);
  if (!root.is_object()) {
    return Error(Code::kInvalidArgument, fmt::format("'{}': expected a JSON object", name));
  }
  const json::Value& nested = language_model(root);
  json::Value object = nested;
  if (object.find("model_type") == nullptr) {
    object["model_type"] = std::string(root.text_at({"model_type"}));
  }
  STATOR_TRY(ModelConfig model, read_fields(object, name, &nested != &root));
  for (const json::Value* place : {&root, static_cast<const json::Value*>(&object)}) {
    const json::Value* said = place->find("quantization_config");
    if (model.quantization.empty() && said != nullptr && said->is_object()) {
      model.quantization = read_quantization(*said);
    }
  }
  return model;
}

Result<ModelConfig> read_model_config(const std::string& path) {
  std::filesystem::path file = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    file /= "config.json";
  }
  if (!std::filesystem::exists(file, ignored)) {
    auto known = find_model(path);
    if (known) {
      return known;
    }
    return Error(
        Code::kNotFound,
        fmt::format("'{}' is no config.json, no folder with one and no model of the catalogue",
                    path));
  }
  STATOR_TRY(const std::string text, io::read_file(file));
  return parse_model_config(text, file.string());
}

Result<ModelConfig> find_model(std::string_view name) {
  const std::string wanted = normalize(name);
  for (const CatalogueEntry& entry : model_catalogue()) {
    if (normalize(entry.name) == wanted) {
      return parse_model_config(entry.config, entry.name);
    }
  }
  return Error(Code::kNotFound, fmt::format("the catalogue has no model '{}'", name));
}

}  // namespace stator::perf
