// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/perf/model_catalogue.h"

namespace stator::perf {
namespace {

constexpr uint64_t kSizeMax = 1ULL << 26;
constexpr uint32_t kLayersMax = 4096;

constexpr std::array<std::string_view, 47> kTypes = {"llama",        "mistral",
                                                     "qwen2",        "qwen3",
                                                     "phi3",         "mimo",
                                                     "gemma",        "gemma2",
                                                     "gemma3",       "gemma3_text",
                                                     "granite",      "olmo2",
                                                     "qwen3_vl",     "qwen3_vl_text",
                                                     "qwen2_vl",     "qwen2_5_vl",
                                                     "internlm2",    "yi",
                                                     "glm4",         "mixtral",
                                                     "qwen2_moe",    "qwen3_moe",
                                                     "qwen3_vl_moe", "qwen3_vl_moe_text",
                                                     "minimax_m2",   "gpt_oss",
                                                     "llama4",       "llama4_text",
                                                     "glm4_moe",     "ernie4_5_moe",
                                                     "dots1",        "step3p7",
                                                     "granitemoe",   "deepseek_v2",
                                                     "deepseek_v3",  "deepseek_v32",
                                                     "kimi_k2",      "kimi_k25",
                                                     "glm_moe_dsa",  "qwen3_next",
                                                     "qwen3_5",      "qwen3_5_text",
                                                     "qwen3_5_moe",  "qwen3_5_moe_text",
                                                     "nemotron_h",   "cohere",
                                                     "cohere2"};

/// Reads fields of one object, by any of several names.
class Fields {
 public:
  Fields(const json::Value& object, std::string_view name) : object_(object), name_(name) {}

  const json::Value* find(std::initializer_list<std::string_view> names) const {
    for (const std::string_view field : names) {
      const json::Value* value = object_.find(field);
      if (value != nullptr && !value->is_null()) {
        return value;
      }
    }
    return nullptr;
  }
  Result<uint32_t> need(std::initializer_list<std::string_view> names) const {
    const json::Value* value = find(names);
    const auto number = value == nullptr ? std::nullopt : value->as_uint64();
    if (!number || *number == 0 || *number > kSizeMax) {
      return fail(*names.begin(), fmt::format("must be a whole number from 1 to {}", kSizeMax));
    }
    return static_cast<uint32_t>(*number);
  }
  /// `fallback` where it is absent; a list of numbers (one per layer) counts as its largest.
  Result<uint32_t> size(std::initializer_list<std::string_view> names, uint32_t fallback) const {
    const json::Value* value = find(names);
    if (value == nullptr) {
      return fallback;
    }
    std::optional<uint64_t> number = value->as_uint64();
    if (value->is_array()) {
      for (const json::Value& element : value->elements()) {
        number = std::max(number.value_or(0), element.as_uint64().value_or(0));
      }
    }
    if (!number || *number > kSizeMax) {
      return fail(*names.begin(), fmt::format("must be a whole number up to {}", kSizeMax));
    }
    return static_cast<uint32_t>(*number);
  }
  Error fail(std::string_view field, std::string_view what) const {
    return Error(Code::kInvalidArgument, fmt::format("'{}': {} {}", name_, field, what));
  }

 private:
  const json::Value& object_;
  std::string_view name_;
};

Status read_attention(const Fields& config, ModelConfig& model) {
  STATOR_TRY(model.heads, config.need({"num_attention_heads"}));
  STATOR_TRY(model.kv_heads, config.size({"num_key_value_heads"}, model.heads));
  model.kv_heads = std::max(model.kv_heads, 1U);
  STATOR_TRY(model.head_dim, config.size({"head_dim", "attention_head_dim"},
                                         std::max(1U, model.hidden / model.heads)));
  STATOR_TRY(model.kv_lora, config.size({"kv_lora_rank"}, 0));
  if (model.kv_lora > 0) {
    STATOR_TRY(model.q_lora, config.size({"q_lora_rank"}, 0));
    STATOR_TRY(model.qk_nope, config.need({"qk_nope_head_dim"}));
    STATOR_TRY(model.qk_rope, config.need({"qk_rope_head_dim"}));
    STATOR_TRY(model.v_dim, config.need({"v_head_dim"}));
  }
  STATOR_TRY(model.index_topk, config.size({"index_topk"}, 0));
  if (model.index_topk > 0) {
    STATOR_TRY(model.index_heads, config.need({"index_n_heads"}));
    STATOR_TRY(model.index_dim, config.need({"index_head_dim"}));
  }
  const json::Value* gate = config.find({"attn_output_gate"});
  model.output_gate = gate != nullptr && gate->as_bool().value_or(false);
  return {};
}

Status read_experts(const Fields& config, ModelConfig& model) {
  STATOR_TRY(model.experts,
             config.size({"n_routed_experts", "num_experts", "num_local_experts"}, 0));
  if (model.experts == 0) {
    STATOR_TRY(model.intermediate, config.need({"intermediate_size"}));
    return {};
  }
  STATOR_TRY(model.experts_per_token,
             config.need({"num_experts_per_tok", "experts_per_token", "top_k_experts"}));
  STATOR_TRY(model.expert_intermediate,
             config.need({"moe_intermediate_size", "intermediate_size"}));
  STATOR_TRY(model.intermediate,
             config.size({"dense_intermediate_size", "intermediate_size_mlp", "intermediate_size"},
                         model.expert_intermediate));
  STATOR_TRY(const uint32_t shared, config.size({"n_shared_experts", "num_shared_experts"}, 0));
  STATOR_TRY(model.shared_intermediate,
             config.size({"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                          "share_expert_dim"},
                         shared * model.expert_intermediate));
  return {};
}

Status read_linear(const Fields& config, ModelConfig& model) {
  if (config.find({"linear_num_value_heads"}) != nullptr) {
    STATOR_TRY(model.linear_value_heads, config.need({"linear_num_value_heads"}));
    STATOR_TRY(model.linear_key_heads, config.need({"linear_num_key_heads"}));
    STATOR_TRY(model.linear_key_dim, config.need({"linear_key_head_dim"}));
    STATOR_TRY(model.linear_value_dim, config.need({"linear_value_head_dim"}));
  } else if (config.find({"mamba_num_heads"}) != nullptr) {
    STATOR_TRY(model.linear_value_heads, config.need({"mamba_num_heads"}));
    STATOR_TRY(model.linear_key_heads, config.need({"n_groups"}));
    STATOR_TRY(model.linear_key_dim, config.need({"ssm_state_size"}));
    STATOR_TRY(model.linear_value_dim, config.need({"mamba_head_dim"}));
  }
  return {};
}

void append(std::vector<LayerGroup>& groups, const LayerGroup& layer) {
  for (LayerGroup& group : groups) {
    if (group.attention == layer.attention && group.ffn == layer.ffn &&
        group.window == layer.window) {
      ++group.count;
      return;
    }
  }
  groups.push_back(layer);
  groups.back().count = 1;
}

/// One block of nemotron_h is either a mixer or a feed-forward network.
Status read_pattern(const Fields& config, std::string_view pattern, ModelConfig& model) {
  for (const char block : pattern) {
    LayerGroup layer{.attention = AttentionKind::kNone, .ffn = FfnKind::kNone};
    switch (block) {
      case 'M':
        layer.attention = AttentionKind::kLinear;
        break;
      case '*':
        layer.attention = AttentionKind::kFull;
        break;
      case '-':
        layer.ffn = FfnKind::kDense;
        break;
      case 'E':
        layer.ffn = FfnKind::kMoe;
        break;
      case '|':
        continue;
      default:
        return config.fail("hybrid_override_pattern",
                           fmt::format("has a block '{}' that is not modelled", block));
    }
    append(model.groups, layer);
  }
  model.gemms_per_ffn = 2;
  return {};
}

/// Which attention layer `index` has.
Result<AttentionKind> attention_of_layer(const Fields& config, const ModelConfig& model,
                                         const json::Value* types, uint32_t index) {
  if (model.is_mla()) {
    return AttentionKind::kMla;
  }
  if (types != nullptr && types->is_array() && index < types->size()) {
    const std::string_view type = types->elements()[index].text();
    if (type == "full_attention" || type == "attention" || type == "global_attention") {
      return AttentionKind::kFull;
    }
    if (type == "sliding_attention" || type == "chunked_attention" || type == "local_attention") {
      return AttentionKind::kWindow;
    }
    if (type == "linear_attention" && model.is_hybrid()) {
      return AttentionKind::kLinear;
    }
    return config.fail("layer_types", fmt::format("has '{}', which is not modelled", type));
  }
  STATOR_TRY(const uint32_t interval, config.size({"full_attention_interval"}, 0));
  if (model.is_hybrid() && interval > 0) {
    return (index + 1) % interval == 0 ? AttentionKind::kFull : AttentionKind::kLinear;
  }
  if (model.type == "gpt_oss") {
    return index % 2 == 0 ? AttentionKind::kWindow : AttentionKind::kFull;
  }
  STATOR_TRY(const uint32_t pattern, config.size({"sliding_window_pattern"}, 0));
  if (pattern > 1) {
    return (index + 1) % pattern == 0 ? AttentionKind::kFull : AttentionKind::kWindow;
  }
  const bool windowed = model.type == "mistral" && config.find({"sliding_window"}) != nullptr;
  return windowed ? AttentionKind::kWindow : AttentionKind::kFull;
}

Result<FfnKind> ffn_of_layer(const Fields& config, const ModelConfig& model, uint32_t index) {
  if (!model.is_moe()) {
    return FfnKind::kDense;
  }
  STATOR_TRY(const uint32_t dense, config.size({"first_k_dense_replace"}, 0));
  if (index < dense) {
    return FfnKind::kDense;
  }
  const json::Value* frequency = config.find({"moe_layer_freq"});
  if (frequency != nullptr && frequency->is_array() && index < frequency->size()) {
    return frequency->elements()[index].as_uint64() == 0U ? FfnKind::kDense : FfnKind::kMoe;
  }
  STATOR_TRY(const uint32_t step,
             config.size({"interleave_moe_layer_step", "decoder_sparse_step"}, 1));
  return step < 2 || (index + 1) % step == 0 ? FfnKind::kMoe : FfnKind::kDense;
}

Status read_layers(const Fields& config, ModelConfig& model) {
  if (const json::Value* pattern = config.find({"hybrid_override_pattern"})) {
    return read_pattern(config, pattern->text(), model);
  }
  STATOR_TRY(const uint32_t window, config.size({"sliding_window", "attention_chunk_size"}, 0));
  const json::Value* types = config.find({"layer_types"});
  for (uint32_t i = 0; i < model.layers; ++i) {
    LayerGroup layer;
    STATOR_TRY(layer.attention, attention_of_layer(config, model, types, i));
    STATOR_TRY(layer.ffn, ffn_of_layer(config, model, i));
    if (layer.attention == AttentionKind::kWindow) {
      if (window == 0) {
        return config.fail("sliding_window", "is missing, but layers use one");
      }
      layer.window = window;
    }
    append(model.groups, layer);
  }
  return {};
}

Result<ModelConfig> read_fields(const json::Value& object, std::string_view name) {
  const Fields config(object, name);
  ModelConfig model;
  model.name = name;
  const json::Value* type = config.find({"model_type"});
  if (type == nullptr) {
    return config.fail("model_type", "is missing");
  }
  model.type = type->text();
  if (std::ranges::find(kTypes, std::string_view(model.type)) == kTypes.end()) {
    return config.fail("model_type", fmt::format("'{}' is not modelled; known: {}", model.type,
                                                 fmt::join(kTypes, ", ")));
  }
  STATOR_TRY(model.layers, config.need({"num_hidden_layers"}));
  if (model.layers > kLayersMax) {
    return config.fail("num_hidden_layers", fmt::format("must be at most {}", kLayersMax));
  }
  STATOR_TRY(model.hidden, config.need({"hidden_size"}));
  STATOR_TRY(model.vocabulary, config.need({"vocab_size"}));
  STATOR_TRY(model.context_max, config.size({"max_position_embeddings"}, 0));
  STATOR_CHECK(read_attention(config, model));
  STATOR_CHECK(read_experts(config, model));
  STATOR_CHECK(read_linear(config, model));
  STATOR_CHECK(read_layers(config, model));
  return model;
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
  constexpr std::array<std::string_view, 16> kSuffixes = {"-fp8-static-per-tensor",
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
                                                          "-thinking"};
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

double ModelConfig::kv_bytes_per_token(uint32_t tp, double element_bytes) const {
  double bytes = 0;
  for (const LayerGroup& group : groups) {
    if (group.attention == AttentionKind::kMla) {
      bytes += group.count * (static_cast<double>(kv_lora + qk_rope) * element_bytes +
                              (index_topk > 0 ? 1.0 * index_dim : 0));
    } else if (group.attention == AttentionKind::kFull) {
      const uint32_t of_rank = (kv_heads + tp - 1) / tp;
      bytes += group.count * 2.0 * of_rank * head_dim * element_bytes;
    }
  }
  return bytes;
}

Result<ModelConfig> parse_model_config(std::string_view text, std::string_view name) {
  STATOR_TRY(const json::Value root, json::parse(text), name);
  if (!root.is_object()) {
    return Error(Code::kInvalidArgument, fmt::format("'{}': expected a JSON object", name));
  }
  const json::Value* nested = root.find("text_config");
  const bool is_nested = nested != nullptr && nested->is_object();
  json::Value object = is_nested ? *nested : root;
  if (is_nested && object.find("model_type") == nullptr) {
    object["model_type"] = std::string(root.text_at({"model_type"}));
  }
  STATOR_TRY(ModelConfig model, read_fields(object, name));
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
