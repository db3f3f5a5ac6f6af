// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/model_config.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <cmath>
#include <limits>

#include "stator/engine/cpu/kernels.h"

namespace stator::engine::cpu {
namespace {

namespace dom = simdjson::dom;

// Far above any published model; they keep products of sizes within 64 bits.
constexpr uint64_t kDimensionMax = 1U << 20U;
constexpr uint64_t kVocabMax = 1U << 24U;
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kPositionsMax = 1U << 28U;

Error unsupported(std::string_view what) {
  return Error(Code::kUnsupported, fmt::format("config.json: {}", what));
}

bool present(dom::object object, std::string_view key) {
  dom::element value;
  return object.at_key(key).get(value) == simdjson::SUCCESS && !value.is_null();
}

/// A number of the file, `fallback` if absent or null; kCorrupt if it is not one.
Result<double> number_or(dom::object object, std::string_view key, double fallback) {
  if (!present(object, key)) {
    return fallback;
  }
  double value = 0;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || !std::isfinite(value)) {
    return Error(Code::kCorrupt, fmt::format("config.json: {} is not a number", key));
  }
  return value;
}

Result<bool> bool_or(dom::object object, std::string_view key, bool fallback) {
  if (!present(object, key)) {
    return fallback;
  }
  bool value = false;
  if (object.at_key(key).get(value) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("config.json: {} is neither true nor false", key));
  }
  return value;
}

struct CountLimits {
  uint64_t fallback = 0;  ///< when absent; 0 = required
  uint64_t max = 0;
};

/// A positive integer within `limits`.
Result<uint32_t> count_of(dom::object object, std::string_view key, CountLimits limits) {
  if (!present(object, key)) {
    if (limits.fallback != 0) {
      return static_cast<uint32_t>(limits.fallback);
    }
    return Error(Code::kCorrupt, fmt::format("config.json: {} is missing", key));
  }
  uint64_t value = 0;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value == 0 || value > limits.max) {
    return Error(Code::kCorrupt,
                 fmt::format("config.json: {} is not an integer within 1 and {}", key, limits.max));
  }
  return static_cast<uint32_t>(value);
}

std::string_view string_or(dom::object object, std::string_view key, std::string_view fallback) {
  std::string_view value;
  return object.at_key(key).get(value) == simdjson::SUCCESS ? value : fallback;
}

struct Architecture {
  std::string_view name;
  bool query_key_norm;
  bool qkv_bias_always;    ///< whatever attention_bias says; the output projection then has none
  bool window_needs_flag;  ///< sliding_window counts only with use_sliding_window
};
constexpr std::array<Architecture, 4> kArchitectures = {{
    {"LlamaForCausalLM", false, false, true},
    {"MistralForCausalLM", false, false, false},
    {"Qwen2ForCausalLM", false, true, true},
    {"Qwen3ForCausalLM", true, false, true},
}};

Result<const Architecture*> find_architecture(dom::object root) {
  std::string_view name;
  if (root.at_key("architectures").at(0).get(name) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, "config.json: architectures[0] is missing");
  }
  for (const Architecture& row : kArchitectures) {
    if (row.name == name) {
      return &row;
    }
  }
  return unsupported(
      fmt::format("architecture '{}' is not supported by the CPU engine; supported are "
                  "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM",
                  name.substr(0, 100)));
}

Result<RopeScaling> parse_rope_type(std::string_view name) {
  if (name == "default") {
    return RopeScaling::kNone;
  }
  if (name == "linear") {
    return RopeScaling::kLinear;
  }
  if (name == "llama3") {
    return RopeScaling::kLlama3;
  }
  return unsupported(fmt::format(
      "RoPE type '{}' is not supported by the CPU engine; supported are default, linear and llama3",
      name.substr(0, 100)));
}

/// Old files have rope_theta and rope_scaling, new ones rope_parameters with everything.
Result<RopeConfig> parse_rope(dom::object root, uint32_t max_positions) {
  RopeConfig rope;
  STATOR_TRY(rope.theta, number_or(root, "rope_theta", 10000.0));
  const bool new_style = present(root, "rope_parameters");
  if (!new_style && !present(root, "rope_scaling")) {
    if (!(rope.theta > 0)) {
      return Error(Code::kCorrupt, "config.json: rope_theta is not positive");
    }
    return rope;
  }
  const std::string_view key = new_style ? "rope_parameters" : "rope_scaling";
  dom::object scaling;
  if (root.at_key(key).get(scaling) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("config.json: {} is not an object", key));
  }
  STATOR_TRY(rope.theta, number_or(scaling, "rope_theta", rope.theta));
  if (present(scaling, "full_attention") || present(scaling, "sliding_attention")) {
    return unsupported("RoPE parameters per layer type are not supported by the CPU engine");
  }
  const std::string_view type = string_or(scaling, "rope_type", string_or(scaling, "type", ""));
  STATOR_TRY(rope.scaling, parse_rope_type(type.empty() ? "default" : type));
  STATOR_TRY(rope.factor, number_or(scaling, "factor", 1.0));
  STATOR_TRY(rope.low_freq_factor, number_or(scaling, "low_freq_factor", 1.0));
  STATOR_TRY(rope.high_freq_factor, number_or(scaling, "high_freq_factor", 4.0));
  STATOR_TRY(rope.original_positions, count_of(scaling, "original_max_position_embeddings",
                                               {.fallback = max_positions, .max = kPositionsMax}));
  if (!(rope.theta > 0) || !(rope.factor > 0) || !(rope.low_freq_factor > 0) ||
      !(rope.high_freq_factor > rope.low_freq_factor)) {
    return Error(
        Code::kCorrupt,
        "config.json: rope_theta and RoPE factors must be positive and high_freq_factor above "
        "low_freq_factor");
  }
  return rope;
}

/// Which layers see only a window. layer_types decides where present; older files use
/// max_window_layers: the first that many layers see everything.
Result<std::vector<uint32_t>> parse_windows(dom::object root, const Architecture& architecture,
                                            uint32_t layers) {
  std::vector<uint32_t> windows(layers, 0);
  STATOR_TRY(const bool flag, bool_or(root, "use_sliding_window", !architecture.window_needs_flag));
  if (!flag || !present(root, "sliding_window")) {
    return windows;
  }
  STATOR_TRY(const uint32_t window, count_of(root, "sliding_window", {.max = kPositionsMax}));
  dom::array types;
  if (root.at_key("layer_types").get(types) == simdjson::SUCCESS) {
    if (types.size() != layers) {
      return Error(Code::kCorrupt, "config.json: layer_types does not list every layer");
    }
    size_t layer = 0;
    for (const dom::element type : types) {
      std::string_view name;
      if (type.get(name) != simdjson::SUCCESS ||
          (name != "full_attention" && name != "sliding_attention")) {
        return unsupported(
            fmt::format("layer type '{}' is not supported by the CPU engine", name.substr(0, 100)));
      }
      windows[layer++] = name == "sliding_attention" ? window : 0;
    }
    return windows;
  }
  STATOR_TRY(const double first, number_or(root, "max_window_layers", 0));
  for (uint32_t layer = 0; layer < layers; ++layer) {
    windows[layer] = layer >= first ? window : 0;
  }
  return windows;
}

/// Sizes and how they fit together.
Status parse_sizes(dom::object root, ModelConfig& config) {
  STATOR_TRY(config.vocab_size, count_of(root, "vocab_size", {.max = kVocabMax}));
  STATOR_TRY(config.layers, count_of(root, "num_hidden_layers", {.max = kLayersMax}));
  STATOR_TRY(config.hidden_size, count_of(root, "hidden_size", {.max = kDimensionMax}));
  STATOR_TRY(config.intermediate_size, count_of(root, "intermediate_size", {.max = kDimensionMax}));
  STATOR_TRY(config.heads, count_of(root, "num_attention_heads", {.max = kDimensionMax}));
  STATOR_TRY(config.kv_heads, count_of(root, "num_key_value_heads",
                                       {.fallback = config.heads, .max = kDimensionMax}));
  const uint64_t usual_dim = std::max(config.hidden_size / config.heads, 1U);
  STATOR_TRY(config.head_dim,
             count_of(root, "head_dim", {.fallback = usual_dim, .max = kDimensionMax}));
  STATOR_TRY(config.max_positions,
             count_of(root, "max_position_embeddings", {.fallback = 2048, .max = kPositionsMax}));
  if (config.heads % config.kv_heads != 0) {
    return Error(Code::kCorrupt,
                 "config.json: num_attention_heads is no multiple of num_key_value_heads");
  }
  if (uint64_t{config.heads} * config.head_dim > kDimensionMax) {
    return Error(Code::kCorrupt, "config.json: num_attention_heads × head_dim is out of range");
  }
  const std::array<std::pair<std::string_view, uint32_t>, 3> aligned = {{
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"head_dim", config.head_dim},
  }};
  for (const auto& [name, value] : aligned) {
    if (value % kLanes != 0) {
      return unsupported(fmt::format("{} = {} is no multiple of {}, which the CPU engine needs",
                                     name, value, kLanes));
    }
  }
  return {};
}

Status refuse_what_changes_results(dom::object root) {
  if (present(root, "quantization_config")) {
    return unsupported(
        "quantization_config is present: the CPU engine reads F32, F16 and BF16 weights only; use "
        "an "
        "unquantised checkpoint");
  }
  const std::string_view activation = string_or(root, "hidden_act", "silu");
  if (activation != "silu") {
    return unsupported(fmt::format("hidden_act '{}' is not supported by the CPU engine, only silu",
                                   activation.substr(0, 100)));
  }
  STATOR_TRY(const double partial, number_or(root, "partial_rotary_factor", 1.0));
  if (partial != 1.0) {
    return unsupported("partial_rotary_factor is not supported by the CPU engine");
  }
  return {};
}

Result<dom::object> parse_object(dom::parser& parser, std::string_view json,
                                 std::string_view file) {
  dom::object object;
  if (json.empty() || parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("{}: not a JSON object", file));
  }
  return object;
}

/// One id or a list of ids. Absent or null: none.
Result<std::vector<TokenId>> token_ids(dom::object object, std::string_view key) {
  std::vector<TokenId> ids;
  if (!present(object, key)) {
    return ids;
  }
  const auto add = [&ids](dom::element value) {
    uint64_t id = 0;
    const bool good = value.get(id) == simdjson::SUCCESS && id <= kVocabMax;
    ids.push_back(static_cast<TokenId>(id));
    return good;
  };
  const dom::element value = object.at_key(key).value_unsafe();
  dom::array list;
  bool good = true;
  if (value.get(list) == simdjson::SUCCESS) {
    for (const dom::element item : list) {
      good = add(item) && good;
    }
  } else {
    good = add(value);
  }
  if (!good) {
    return Error(Code::kCorrupt, fmt::format("{} is neither a token id nor a list of them", key));
  }
  return ids;
}

template <typename T>
Status read_optional(dom::object object, std::string_view key, std::optional<T>& target) {
  if (!present(object, key)) {
    return {};
  }
  double value = 0;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || !(std::abs(value) < 1e9)) {
    return Error(Code::kCorrupt, fmt::format("generation_config.json: {} is not a number", key));
  }
  target = static_cast<T>(value);
  return {};
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view json) {
  dom::parser parser;
  STATOR_TRY(const dom::object root, parse_object(parser, json, "config.json"));
  STATOR_TRY(const Architecture* architecture, find_architecture(root));
  STATOR_CHECK(refuse_what_changes_results(root));
  ModelConfig config;
  config.architecture = architecture->name;
  config.query_key_norm = architecture->query_key_norm;
  STATOR_CHECK(parse_sizes(root, config));
  STATOR_TRY(const double epsilon, number_or(root, "rms_norm_eps", 1e-6));
  config.rms_norm_epsilon = static_cast<float>(epsilon);
  STATOR_TRY(config.tied_embeddings, bool_or(root, "tie_word_embeddings", false));
  STATOR_TRY(const bool attention_bias, bool_or(root, "attention_bias", false));
  config.qkv_bias = attention_bias || architecture->qkv_bias_always;
  config.output_bias = attention_bias && !architecture->qkv_bias_always;
  STATOR_TRY(config.mlp_bias, bool_or(root, "mlp_bias", false));
  STATOR_TRY(config.rope, parse_rope(root, config.max_positions));
  STATOR_TRY(config.sliding_window, parse_windows(root, *architecture, config.layers));
  return config;
}

Result<GenerationDefaults> parse_generation_defaults(std::string_view config_json,
                                                     std::string_view generation_json) {
  GenerationDefaults defaults;
  dom::parser config_parser;
  STATOR_TRY(const dom::object config, parse_object(config_parser, config_json, "config.json"));
  STATOR_TRY(defaults.eos_token_ids, token_ids(config, "eos_token_id"), "config.json");
  STATOR_TRY(std::vector<TokenId> bos, token_ids(config, "bos_token_id"), "config.json");
  if (!generation_json.empty()) {
    constexpr std::string_view kFile = "generation_config.json";
    dom::parser parser;
    STATOR_TRY(const dom::object root, parse_object(parser, generation_json, kFile));
    if (present(root, "eos_token_id")) {
      STATOR_TRY(defaults.eos_token_ids, token_ids(root, "eos_token_id"), kFile);
    }
    if (present(root, "bos_token_id")) {
      STATOR_TRY(bos, token_ids(root, "bos_token_id"), kFile);
    }
    STATOR_CHECK(read_optional(root, "temperature", defaults.temperature));
    STATOR_CHECK(read_optional(root, "top_p", defaults.top_p));
    STATOR_CHECK(read_optional(root, "top_k", defaults.top_k));
    STATOR_CHECK(read_optional(root, "min_p", defaults.min_p));
    STATOR_CHECK(read_optional(root, "repetition_penalty", defaults.repetition_penalty));
  }
  if (!bos.empty()) {
    defaults.bos_token_id = bos.front();
  }
  return defaults;
}

}  // namespace stator::engine::cpu
