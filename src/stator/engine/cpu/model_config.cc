// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/model_config.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <cmath>
#include <limits>

namespace stator::engine::cpu {
namespace {

namespace dom = simdjson::dom;

// Far above any published model; they keep products of sizes within 64 bits.
constexpr uint64_t kDimensionMax = 1U << 20U;
constexpr uint64_t kVocabMax = 1U << 24U;
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kPositionsMax = 1U << 28U;
constexpr uint64_t kExpertsMax = 4096;

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
  bool query_key_norm = false;
  bool qkv_bias_always = false;  ///< whatever attention_bias says; the output has none then
  bool output_never_biased = false;
  bool window_needs_flag = false;  ///< sliding_window counts only with use_sliding_window
  bool tied_by_default = false;
  bool gemma = false;  ///< norms less 1, scaled embeddings, gelu, normed outputs
  bool glm = false;    ///< interleaved rotation of a part of the head
  bool output_norms = false;
  bool fused_qkv = false;
  bool fused_gate_up = false;
  bool gpt_oss = false;
  bool own_output_bias = false;  ///< attention_out_bias
  bool one_bias = false;         ///< use_bias, of all
  bool granite = false;          ///< multipliers
  bool skips_rotation = false;   ///< no_rope_layers
  bool joint_norms = false;      ///< q and k are normed before they become heads
  bool output_norms_only = false;
  bool pairs_rotate = false;   ///< neighbours, in the whole head
  bool plain_experts = false;  ///< all layers are mixtures, of experts of intermediate_size
  /// Without layer_types every n-th layer sees everything, the others a window; 0: all alike.
  uint32_t full_every = 0;
};
constexpr auto kArchitectures = std::to_array<Architecture>({
    {.name = "LlamaForCausalLM", .window_needs_flag = true},
    {.name = "MistralForCausalLM"},
    {.name = "Qwen2ForCausalLM", .qkv_bias_always = true, .window_needs_flag = true},
    {.name = "Qwen3ForCausalLM", .query_key_norm = true, .window_needs_flag = true},
    {.name = "Qwen3MoeForCausalLM", .query_key_norm = true, .window_needs_flag = true},
    {.name = "Gemma2ForCausalLM",
     .tied_by_default = true,
     .gemma = true,
     .output_norms = true,
     .full_every = 2},
    {.name = "Gemma3ForCausalLM",
     .query_key_norm = true,
     .tied_by_default = true,
     .gemma = true,
     .output_norms = true,
     .full_every = 6},
    {.name = "Phi3ForCausalLM", .fused_qkv = true, .fused_gate_up = true},
    {.name = "GlmForCausalLM",
     .output_never_biased = true,
     .window_needs_flag = true,
     .glm = true,
     .fused_gate_up = true},
    {.name = "Glm4ForCausalLM",
     .output_never_biased = true,
     .window_needs_flag = true,
     .glm = true,
     .output_norms = true,
     .fused_gate_up = true},
    {.name = "GptOssForCausalLM", .gpt_oss = true, .full_every = 2},
    {.name = "MixtralForCausalLM", .plain_experts = true},
    {.name = "OlmoeForCausalLM",
     .query_key_norm = true,
     .joint_norms = true,
     .plain_experts = true},
    {.name = "GemmaForCausalLM", .tied_by_default = true, .gemma = true},
    {.name = "GraniteForCausalLM", .granite = true},
    {.name = "SmolLM3ForCausalLM",
     .window_needs_flag = true,
     .tied_by_default = true,
     .skips_rotation = true},
    {.name = "Olmo2ForCausalLM",
     .query_key_norm = true,
     .output_norms = true,
     .joint_norms = true,
     .output_norms_only = true},
    {.name = "Olmo3ForCausalLM",
     .query_key_norm = true,
     .output_norms = true,
     .joint_norms = true,
     .output_norms_only = true,
     .full_every = 4},
    {.name = "SeedOssForCausalLM", .own_output_bias = true},
    {.name = "Ernie4_5ForCausalLM",
     .tied_by_default = true,
     .one_bias = true,
     .pairs_rotate = true},
});

Result<const Architecture*> find_architecture(dom::object root) {
  std::string_view name;
  if (root.at_key("architectures").at(0).get(name) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, "config.json: architectures[0] is missing");
  }
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.name == name) {
      return &row;
    }
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  return unsupported(
      fmt::format("architecture '{}' is not supported by the CPU engine; supported are {}",
                  name.substr(0, 100), known));
}

Result<RopeScaling> parse_rope_type(std::string_view name) {
  constexpr auto kTypes = std::to_array<std::pair<std::string_view, RopeScaling>>({
      {"default", RopeScaling::kNone},
      {"linear", RopeScaling::kLinear},
      {"dynamic", RopeScaling::kDynamic},
      {"llama3", RopeScaling::kLlama3},
      {"yarn", RopeScaling::kYarn},
      {"longrope", RopeScaling::kLongRope},
      {"su", RopeScaling::kLongRope},
  });
  for (const auto& [known, scaling] : kTypes) {
    if (known == name) {
      return scaling;
    }
  }
  return unsupported(fmt::format(
      "RoPE type '{}' is not supported by the CPU engine; supported are default, linear, dynamic, "
      "llama3, yarn and longrope",
      name.substr(0, 100)));
}

Status parse_factors(dom::object scaling, std::string_view key, std::vector<float>& out) {
  dom::array list;
  if (scaling.at_key(key).get(list) != simdjson::SUCCESS || list.size() > kDimensionMax) {
    return Error(Code::kCorrupt, fmt::format("config.json: {} is not a list of numbers", key));
  }
  for (const dom::element item : list) {
    double factor = 0;
    if (item.get(factor) != simdjson::SUCCESS || !(factor > 0)) {
      return Error(Code::kCorrupt,
                   fmt::format("config.json: {} has what is no positive number", key));
    }
    out.push_back(static_cast<float>(factor));
  }
  return {};
}

/// YaRN's "mscale".
double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Status parse_yarn(dom::object scaling, RopeConfig& rope) {
  STATOR_TRY(rope.beta_fast, number_or(scaling, "beta_fast", 32.0));
  STATOR_TRY(rope.beta_slow, number_or(scaling, "beta_slow", 1.0));
  STATOR_TRY(rope.truncate, bool_or(scaling, "truncate", true));
  STATOR_TRY(const double mscale, number_or(scaling, "mscale", 0.0));
  STATOR_TRY(const double mscale_all, number_or(scaling, "mscale_all_dim", 0.0));
  const double usual = mscale != 0 && mscale_all != 0
                           ? yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, mscale_all)
                           : yarn_scale(rope.factor, 1.0);
  STATOR_TRY(const double amplitude, number_or(scaling, "attention_factor", usual));
  rope.amplitude = static_cast<float>(amplitude);
  if (!(rope.beta_fast > 0) || !(rope.beta_slow > 0) || !(rope.theta > 1)) {
    return Error(Code::kCorrupt, "config.json: yarn needs positive betas and a rope_theta above 1");
  }
  return {};
}

Status parse_longrope(dom::object scaling, uint32_t max_positions, RopeConfig& rope) {
  STATOR_CHECK(parse_factors(scaling, "short_factor", rope.near_factors));
  STATOR_CHECK(parse_factors(scaling, "long_factor", rope.far_factors));
  double factor = static_cast<double>(max_positions) / rope.original_positions;
  if (present(scaling, "factor")) {
    factor = rope.factor;
  }
  const double usual =
      factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(rope.original_positions));
  STATOR_TRY(const double amplitude, number_or(scaling, "attention_factor", usual));
  rope.amplitude = static_cast<float>(amplitude);
  return {};
}

/// One object of RoPE parameters over what the root says.
Status parse_scaling(dom::object root, dom::object scaling, uint32_t max_positions,
                     RopeConfig& rope) {
  STATOR_TRY(rope.theta, number_or(scaling, "rope_theta", rope.theta));
  const std::string_view type = string_or(scaling, "rope_type", string_or(scaling, "type", ""));
  STATOR_TRY(rope.scaling, parse_rope_type(type.empty() ? "default" : type));
  const bool stretched = rope.scaling == RopeScaling::kLinear ||
                         rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn;
  if (stretched && !present(scaling, "factor")) {
    return Error(Code::kCorrupt,
                 fmt::format("config.json: RoPE of the kind '{}' has no factor", type));
  }
  STATOR_TRY(rope.factor, number_or(scaling, "factor", 1.0));
  STATOR_TRY(rope.low_freq_factor, number_or(scaling, "low_freq_factor", 1.0));
  STATOR_TRY(rope.high_freq_factor, number_or(scaling, "high_freq_factor", 4.0));
  STATOR_TRY(const uint32_t of_root, count_of(root, "original_max_position_embeddings",
                                              {.fallback = max_positions, .max = kPositionsMax}));
  STATOR_TRY(rope.original_positions, count_of(scaling, "original_max_position_embeddings",
                                               {.fallback = of_root, .max = kPositionsMax}));
  if (!(rope.theta > 0) || !(rope.factor > 0) || !(rope.low_freq_factor > 0) ||
      !(rope.high_freq_factor > rope.low_freq_factor)) {
    return Error(
        Code::kCorrupt,
        "config.json: rope_theta and RoPE factors must be positive and high_freq_factor above "
        "low_freq_factor");
  }
  if (rope.scaling == RopeScaling::kYarn) {
    return parse_yarn(scaling, rope);
  }
  if (rope.scaling == RopeScaling::kDynamic) {
    rope.original_positions = max_positions;
  }
  return rope.scaling == RopeScaling::kLongRope ? parse_longrope(scaling, max_positions, rope)
                                                : Status();
}

/// Old files have rope_theta and rope_scaling, new ones rope_parameters with everything, by kind of
/// layer if kinds differ.
Status parse_rope(dom::object root, const Architecture& architecture, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  STATOR_TRY(rope.theta, number_or(root, "rope_theta", 10000.0));
  const std::string_view key =
      present(root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  dom::object scaling;
  if (present(root, key) && root.at_key(key).get(scaling) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("config.json: {} is not an object", key));
  }
  double partial = architecture.glm ? 0.5 : 1.0;
  STATOR_TRY(partial, number_or(root, "partial_rotary_factor", partial));
  const bool by_layer = present(root, key) && (present(scaling, "full_attention") ||
                                               present(scaling, "sliding_attention"));
  if (by_layer) {
    dom::object part;
    config.window_rope = rope;
    if (scaling.at_key("full_attention").get(part) == simdjson::SUCCESS) {
      STATOR_CHECK(parse_scaling(root, part, config.max_positions, rope));
    }
    if (scaling.at_key("sliding_attention").get(part) == simdjson::SUCCESS) {
      STATOR_CHECK(parse_scaling(root, part, config.max_positions, *config.window_rope));
    }
  } else if (present(root, key)) {
    STATOR_TRY(partial, number_or(scaling, "partial_rotary_factor", partial));
    STATOR_CHECK(parse_scaling(root, scaling, config.max_positions, rope));
  } else if (!(rope.theta > 0)) {
    return Error(Code::kCorrupt, "config.json: rope_theta is not positive");
  }
  if (!by_layer && architecture.output_norms_only && architecture.full_every > 0) {
    config.window_rope = RopeConfig{.theta = rope.theta};  // OLMo-3: windows are not stretched
  }
  if (!by_layer && architecture.gemma && architecture.query_key_norm) {
    STATOR_TRY(const double local, number_or(root, "rope_local_base_freq", 10000.0));
    config.window_rope = RopeConfig{.theta = local};
  }
  const auto dimensions = static_cast<uint32_t>(config.head_dim * partial);
  if (!(partial > 0 && partial <= 1) || dimensions % 2 != 0) {
    return Error(Code::kCorrupt, fmt::format("config.json: partial_rotary_factor {} does not give "
                                             "an even number of dimensions",
                                             partial));
  }
  for (RopeConfig* one : {&rope, config.window_rope ? &*config.window_rope : nullptr}) {
    if (one == nullptr) {
      continue;
    }
    one->dimensions = dimensions;
    one->interleaved = architecture.glm || architecture.pairs_rotate;
    const bool factors =
        one->scaling != RopeScaling::kLongRope ||
        (one->near_factors.size() == dimensions / 2 && one->far_factors.size() == dimensions / 2);
    if (!factors) {
      return Error(Code::kCorrupt,
                   fmt::format("config.json: short_factor and long_factor need {} numbers each",
                               dimensions / 2));
    }
  }
  return {};
}

/// Per layer whether layer_types says that it sees only a window; empty without layer_types.
Result<std::vector<bool>> parse_layer_types(dom::object root, uint32_t layers) {
  std::vector<bool> out;
  dom::array types;
  if (root.at_key("layer_types").get(types) != simdjson::SUCCESS) {
    return out;
  }
  if (types.size() != layers) {
    return Error(Code::kCorrupt, "config.json: layer_types does not list every layer");
  }
  for (const dom::element type : types) {
    std::string_view name;
    if (type.get(name) != simdjson::SUCCESS ||
        (name != "full_attention" && name != "sliding_attention")) {
      return unsupported(
          fmt::format("layer type '{}' is not supported by the CPU engine", name.substr(0, 100)));
    }
    out.push_back(name == "sliding_attention");
  }
  return out;
}

/// Which layers see only a window. layer_types decides where present; older files use
/// max_window_layers (the first that many layers see everything) or a pattern of the architecture.
Result<std::vector<uint32_t>> parse_windows(dom::object root, const Architecture& architecture,
                                            uint32_t layers) {
  std::vector<uint32_t> windows(layers, 0);
  STATOR_TRY(const std::vector<bool> types, parse_layer_types(root, layers));
  STATOR_TRY(const bool flag, bool_or(root, "use_sliding_window", !architecture.window_needs_flag));
  if (!flag || !present(root, "sliding_window")) {
    return windows;
  }
  STATOR_TRY(const uint32_t window, count_of(root, "sliding_window", {.max = kPositionsMax}));
  if (!types.empty()) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
      windows[layer] = types[layer] ? window : 0;
    }
    return windows;
  }
  if (architecture.full_every > 0) {
    STATOR_TRY(const uint32_t every,
               count_of(root, "sliding_window_pattern",
                        {.fallback = architecture.full_every, .max = kLayersMax}));
    for (uint32_t layer = 0; layer < layers; ++layer) {
      windows[layer] = (layer + 1) % every == 0 ? 0 : window;
    }
    return windows;
  }
  STATOR_TRY(const double first, number_or(root, "max_window_layers", 0));
  for (uint32_t layer = 0; layer < layers; ++layer) {
    windows[layer] = layer >= first ? window : 0;
  }
  return windows;
}

/// Layers whose queries and keys say nothing of positions (SmolLM3).
Result<std::vector<bool>> parse_unrotated(dom::object root, uint32_t layers) {
  std::vector<bool> out(layers, false);
  dom::array list;
  if (root.at_key("no_rope_layers").get(list) == simdjson::SUCCESS) {
    if (list.size() != layers) {
      return Error(Code::kCorrupt, "config.json: no_rope_layers does not list every layer");
    }
    size_t layer = 0;
    for (const dom::element item : list) {
      uint64_t rotated = 0;
      if (item.get(rotated) != simdjson::SUCCESS || rotated > 1) {
        return Error(Code::kCorrupt, "config.json: no_rope_layers has what is neither 0 nor 1");
      }
      out[layer++] = rotated == 0;
    }
    return out;
  }
  STATOR_TRY(const uint32_t every,
             count_of(root, "no_rope_layer_interval", {.fallback = 4, .max = kLayersMax}));
  for (uint32_t layer = 0; layer < layers; ++layer) {
    out[layer] = (layer + 1) % every == 0;
  }
  return out;
}

/// Mixtures of experts of Qwen3-MoE, Mixtral, OLMoE and gpt-oss.
Status parse_experts(dom::object root, const Architecture& architecture, ModelConfig& config) {
  const bool qwen = architecture.name == "Qwen3MoeForCausalLM" || architecture.plain_experts;
  if (!qwen && !architecture.gpt_oss) {
    return {};
  }
  ExpertConfig& experts = config.experts;
  const std::string_view count_key =
      present(root, "num_local_experts") ? "num_local_experts" : "num_experts";
  const bool inner_is_plain = architecture.gpt_oss || architecture.plain_experts;
  STATOR_TRY(experts.count, count_of(root, count_key, {.max = kExpertsMax}));
  STATOR_TRY(experts.per_token, count_of(root, "num_experts_per_tok", {.max = experts.count}));
  STATOR_TRY(
      experts.inner_size,
      count_of(root, "moe_intermediate_size",
               {.fallback = inner_is_plain ? config.intermediate_size : 0, .max = kDimensionMax}));
  experts.softmax_first = qwen;
  experts.dense_layers.assign(config.layers, false);
  if (!qwen) {
    return {};
  }
  const bool mixtral = architecture.name == "MixtralForCausalLM";
  STATOR_TRY(experts.normalize, bool_or(root, "norm_topk_prob", mixtral));
  STATOR_TRY(const uint32_t step,
             count_of(root, "decoder_sparse_step", {.fallback = 1, .max = kLayersMax}));
  dom::array plain;
  const bool listed = root.at_key("mlp_only_layers").get(plain) == simdjson::SUCCESS;
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    experts.dense_layers[layer] = (layer + 1) % step != 0;
  }
  if (listed) {
    for (const dom::element item : plain) {
      uint64_t layer = 0;
      if (item.get(layer) != simdjson::SUCCESS || layer >= config.layers) {
        return Error(Code::kCorrupt, "config.json: mlp_only_layers names what is no layer");
      }
      experts.dense_layers[layer] = true;
    }
  }
  return {};
}

Status parse_activation(dom::object root, const Architecture& architecture, ModelConfig& config) {
  if (architecture.gpt_oss) {
    config.activation = Activation::kClampedSwiglu;
    STATOR_TRY(const double limit, number_or(root, "swiglu_limit", 7.0));
    config.swiglu_limit = static_cast<float>(limit);
    return {};
  }
  const std::string_view usual = architecture.gemma ? "gelu_pytorch_tanh" : "silu";
  const std::string_view name =
      string_or(root, "hidden_activation", string_or(root, "hidden_act", usual));
  if (name == "silu" || name == "gelu_pytorch_tanh") {
    config.activation = name == "silu" ? Activation::kSilu : Activation::kGelu;
    return {};
  }
  return unsupported(fmt::format(
      "hidden_act '{}' is not supported by the CPU engine, only silu and gelu_pytorch_tanh",
      name.substr(0, 100)));
}

/// Granite's.
Status parse_multipliers(dom::object root, ModelConfig& config) {
  STATOR_TRY(const double embedding, number_or(root, "embedding_multiplier", 1.0));
  STATOR_TRY(const double attention, number_or(root, "attention_multiplier", 1.0));
  STATOR_TRY(const double residual, number_or(root, "residual_multiplier", 1.0));
  STATOR_TRY(const double logits, number_or(root, "logits_scaling", 1.0));
  if (!(embedding > 0) || !(attention > 0) || !(residual > 0) || !(logits > 0)) {
    return Error(Code::kCorrupt, "config.json: multipliers must be positive");
  }
  config.embedding_scale = static_cast<float>(embedding);
  config.attention_scale = static_cast<float>(attention);
  config.residual_scale = static_cast<float>(residual);
  config.logit_scale = static_cast<float>(1.0 / logits);
  return {};
}

Status parse_scales(dom::object root, const Architecture& architecture, ModelConfig& config) {
  if (architecture.granite) {
    return parse_multipliers(root, config);
  }
  if (!architecture.gemma) {
    return {};
  }
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  STATOR_TRY(const double query, number_or(root, "query_pre_attn_scalar", config.head_dim));
  STATOR_TRY(const double attention, number_or(root, "attn_logit_softcapping", 0.0));
  STATOR_TRY(const double logits, number_or(root, "final_logit_softcapping", 0.0));
  if (!(query > 0) || attention < 0 || logits < 0) {
    return Error(Code::kCorrupt,
                 "config.json: query_pre_attn_scalar and softcaps must be positive");
  }
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(query));
  config.attention_softcap = static_cast<float>(attention);
  config.logit_softcap = static_cast<float>(logits);
  return {};
}

Status parse_biases(dom::object root, const Architecture& architecture, ModelConfig& config) {
  if (architecture.one_bias) {
    STATOR_TRY(config.qkv_bias, bool_or(root, "use_bias", false));
    config.output_bias = config.mlp_bias = config.qkv_bias;
    return {};
  }
  const bool usual = architecture.gpt_oss || architecture.glm || architecture.own_output_bias;
  STATOR_TRY(const bool attention_bias, bool_or(root, "attention_bias", usual));
  config.qkv_bias = attention_bias || architecture.qkv_bias_always;
  config.output_bias =
      attention_bias && !architecture.qkv_bias_always && !architecture.output_never_biased;
  if (architecture.own_output_bias) {
    STATOR_TRY(config.output_bias, bool_or(root, "attention_out_bias", false));
  }
  STATOR_TRY(config.mlp_bias, bool_or(root, "mlp_bias", false));
  return {};
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
  if (config.head_dim % 2 != 0) {
    return unsupported(
        fmt::format("head_dim = {} is odd: positions rotate pairs", config.head_dim));
  }
  return {};
}

Status refuse_what_changes_results(dom::object root) {
  if (present(root, "quantization_config")) {
    return unsupported(
        "quantization_config is present: of safetensors the CPU engine reads F32, F16 and BF16 "
        "weights only; use an unquantised checkpoint, or a GGUF file");
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
  config.unit_norms = architecture->gemma;
  config.output_norms = architecture->output_norms;
  config.input_norms = !architecture->output_norms_only;
  config.joint_query_key_norm = architecture->joint_norms;
  config.query_key_value_fused = architecture->fused_qkv;
  config.gate_up_fused = architecture->fused_gate_up;
  config.attention_sinks = architecture->gpt_oss;
  STATOR_CHECK(parse_sizes(root, config));
  STATOR_CHECK(parse_activation(root, *architecture, config));
  STATOR_CHECK(parse_scales(root, *architecture, config));
  STATOR_CHECK(parse_experts(root, *architecture, config));
  STATOR_TRY(const double epsilon, number_or(root, "rms_norm_eps", 1e-6));
  config.rms_norm_epsilon = static_cast<float>(epsilon);
  STATOR_TRY(config.tied_embeddings,
             bool_or(root, "tie_word_embeddings", architecture->tied_by_default));
  STATOR_CHECK(parse_biases(root, *architecture, config));
  if (architecture->skips_rotation) {
    STATOR_TRY(config.unrotated, parse_unrotated(root, config.layers));
  }
  STATOR_CHECK(parse_rope(root, *architecture, config));
  if (config.rope.scaling == RopeScaling::kDynamic) {  // stretches as far as that
    const double stretched = config.max_positions * std::max(1.0, config.rope.factor);
    config.max_positions = static_cast<uint32_t>(std::min<double>(kPositionsMax, stretched));
  }
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
