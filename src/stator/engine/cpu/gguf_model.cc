// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "stator/engine/cpu/quantized.h"
#include "stator/io/mapped_file.h"

namespace stator::engine::cpu {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSizeMax = 1U << 20U;
constexpr uint64_t kPositionsMax = 1U << 28U;

struct Architecture {
  std::string_view name;        ///< general.architecture
  std::string_view equivalent;  ///< in config.json
  bool interleaved = false;     ///< pairs of the rotation are neighbours
  bool query_key_norm = false;
  bool gemma = false;
  bool output_norms = false;
  bool fused_qkv = false;
  bool fused_gate_up = false;
  bool paired = false;             ///< rows of q and k as ModelConfig::query_key_paired
  bool joint_norms = false;        ///< q and k are normed before they become heads
  bool output_norms_only = false;  ///< OLMo-2
  bool granite = false;            ///< multipliers
  bool plain_shares = false;       ///< the weights of chosen experts do not add up to 1
  uint32_t rotation_pause = 0;     ///< every n-th layer is without positions
  uint32_t full_every = 0;         ///< with a window: every n-th layer sees everything
};
constexpr auto kArchitectures = std::to_array<Architecture>({
    {.name = "llama", .equivalent = "LlamaForCausalLM", .interleaved = true, .paired = true},
    {.name = "granite",
     .equivalent = "GraniteForCausalLM",
     .interleaved = true,
     .paired = true,
     .granite = true},
    {.name = "smollm3",
     .equivalent = "SmolLM3ForCausalLM",
     .interleaved = true,
     .paired = true,
     .rotation_pause = 4},
    {.name = "ernie4_5", .equivalent = "Ernie4_5ForCausalLM", .interleaved = true},
    {.name = "olmo2",
     .equivalent = "Olmo2ForCausalLM",
     .query_key_norm = true,
     .output_norms = true,
     .joint_norms = true,
     .output_norms_only = true,
     .full_every = 4},
    {.name = "olmoe",
     .equivalent = "OlmoeForCausalLM",
     .query_key_norm = true,
     .joint_norms = true,
     .plain_shares = true},
    {.name = "gemma", .equivalent = "GemmaForCausalLM", .gemma = true},
    {.name = "qwen2", .equivalent = "Qwen2ForCausalLM"},
    {.name = "qwen3", .equivalent = "Qwen3ForCausalLM", .query_key_norm = true},
    {.name = "qwen3moe", .equivalent = "Qwen3MoeForCausalLM", .query_key_norm = true},
    {.name = "gemma2",
     .equivalent = "Gemma2ForCausalLM",
     .gemma = true,
     .output_norms = true,
     .full_every = 2},
    {.name = "gemma3",
     .equivalent = "Gemma3ForCausalLM",
     .query_key_norm = true,
     .gemma = true,
     .output_norms = true,
     .full_every = 6},
    {.name = "phi3", .equivalent = "Phi3ForCausalLM", .fused_qkv = true, .fused_gate_up = true},
    {.name = "glm4",
     .equivalent = "Glm4ForCausalLM",
     .interleaved = true,
     .output_norms = true,
     .fused_gate_up = true},
});

Result<Dtype> to_dtype(gguf::Type type) {
  switch (type) {
    case gguf::Type::kF32:
      return Dtype::kF32;
    case gguf::Type::kF16:
      return Dtype::kF16;
    case gguf::Type::kBf16:
      return Dtype::kBf16;
    case gguf::Type::kQ8_0:
      return Dtype::kQ8_0;
    case gguf::Type::kQ4_0:
      return Dtype::kQ4_0;
    case gguf::Type::kQ4K:
      return Dtype::kQ4K;
    case gguf::Type::kQ6K:
      return Dtype::kQ6K;
  }
  return Error(Code::kUnsupported, "GGUF: unknown tensor type");
}

/// Reads the keys of one architecture: "qwen3.block_count".
class Keys {
 public:
  Keys(const gguf::Metadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }

  Result<uint32_t> size(std::string_view key, uint64_t max, uint64_t fallback = 0) const {
    STATOR_TRY(const auto value, metadata_.find_unsigned(name(key)));
    if (!value && fallback == 0) {
      return Error(Code::kCorrupt, fmt::format("GGUF: {} is missing", name(key)));
    }
    const uint64_t out = value.value_or(fallback);
    if (out == 0 || out > max) {
      return Error(Code::kCorrupt,
                   fmt::format("GGUF: {} = {} is not within 1 and {}", name(key), out, max));
    }
    return static_cast<uint32_t>(out);
  }
  /// 0 if there is none.
  Result<uint32_t> size_or_none(std::string_view key, uint64_t max) const {
    STATOR_TRY(const auto value, metadata_.find_unsigned(name(key)));
    if (value.value_or(0) > max) {
      return Error(Code::kCorrupt,
                   fmt::format("GGUF: {} = {} is above {}", name(key), *value, max));
    }
    return static_cast<uint32_t>(value.value_or(0));
  }
  Result<double> number(std::string_view key, double fallback) const {
    STATOR_TRY(const auto value, metadata_.find_float(name(key)));
    if (value && !std::isfinite(*value)) {
      return Error(Code::kCorrupt, fmt::format("GGUF: {} is no finite number", name(key)));
    }
    return value.value_or(fallback);
  }
  Result<std::string_view> text(std::string_view key) const {
    STATOR_TRY(const auto value, metadata_.find_string(name(key)));
    return value.value_or("");
  }

 private:
  const gguf::Metadata& metadata_;
  std::string prefix_;
};

Status read_sizes(const Keys& keys, ModelConfig& config) {
  STATOR_TRY(config.layers, keys.size("block_count", 1024));
  STATOR_TRY(config.hidden_size, keys.size("embedding_length", kSizeMax));
  STATOR_TRY(config.intermediate_size,
             keys.size("feed_forward_length", kSizeMax, config.hidden_size));
  STATOR_TRY(config.heads, keys.size("attention.head_count", kSizeMax));
  STATOR_TRY(config.kv_heads, keys.size("attention.head_count_kv", kSizeMax, config.heads));
  STATOR_TRY(config.head_dim, keys.size("attention.key_length", kSizeMax,
                                        std::max(config.hidden_size / config.heads, 1U)));
  STATOR_TRY(const uint32_t value_dim,
             keys.size("attention.value_length", kSizeMax, config.head_dim));
  STATOR_TRY(config.max_positions, keys.size("context_length", kPositionsMax));
  STATOR_TRY(const double epsilon, keys.number("attention.layer_norm_rms_epsilon", 1e-6));
  config.rms_norm_epsilon = static_cast<float>(epsilon);
  if (value_dim != config.head_dim) {
    return Error(Code::kUnsupported,
                 fmt::format("GGUF: {} differs from {}", keys.name("attention.value_length"),
                             keys.name("attention.key_length")));
  }
  if (config.heads % config.kv_heads != 0 || uint64_t{config.heads} * config.head_dim > kSizeMax) {
    return Error(Code::kCorrupt, fmt::format("GGUF: {} and {} do not fit together",
                                             keys.name("attention.head_count"),
                                             keys.name("attention.head_count_kv")));
  }
  return {};
}

Status read_rope(const Keys& keys, const Architecture& architecture, const TensorMap& tensors,
                 ModelConfig& config) {
  RopeConfig& rope = config.rope;
  STATOR_TRY(rope.theta, keys.number("rope.freq_base", 10000.0));
  STATOR_TRY(rope.dimensions, keys.size("rope.dimension_count", config.head_dim, config.head_dim));
  rope.interleaved = architecture.interleaved;
  STATOR_TRY(const std::string_view scaling, keys.text("rope.scaling.type"));
  STATOR_TRY(rope.factor, keys.number("rope.scaling.factor", 1.0));
  STATOR_TRY(rope.original_positions, keys.size("rope.scaling.original_context_length",
                                                kPositionsMax, config.max_positions));
  if (!(rope.theta > 1) || !(rope.factor > 0) || rope.dimensions % 2 != 0) {
    return Error(Code::kCorrupt,
                 fmt::format("GGUF: {} or {} is out of range", keys.name("rope.freq_base"),
                             keys.name("rope.scaling.factor")));
  }
  const auto factors = [&](std::string_view name) -> std::vector<float> {
    const auto found = tensors.find(name);
    return found == tensors.end() ? std::vector<float>() : to_floats(found->second);
  };
  rope.near_factors = factors("rope_factors_short.weight");
  rope.far_factors = factors("rope_factors_long.weight");
  if (!rope.far_factors.empty()) {
    rope.scaling = RopeScaling::kLongRope;
    const double factor = static_cast<double>(config.max_positions) / rope.original_positions;
    const double usual =
        factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(rope.original_positions));
    STATOR_TRY(const double amplitude, keys.number("rope.scaling.attn_factor", usual));
    rope.amplitude = static_cast<float>(amplitude);
  } else if (rope.near_factors = factors("rope_freqs.weight"); !rope.near_factors.empty()) {
    rope.scaling = RopeScaling::kFactors;
  } else if (scaling == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (scaling == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.amplitude = static_cast<float>(0.1 * std::log(rope.factor) + 1.0);
  } else if (!scaling.empty() && scaling != "none") {
    return Error(
        Code::kUnsupported,
        fmt::format("GGUF: {} '{}' is not supported by the CPU engine; supported are none, "
                    "linear, yarn and longrope",
                    keys.name("rope.scaling.type"), scaling.substr(0, 64)));
  }
  for (const std::vector<float>* list : {&rope.near_factors, &rope.far_factors}) {
    const bool good = std::ranges::all_of(*list, [](float factor) { return factor > 0; });
    if (!good || (!list->empty() && list->size() != rope.dimensions / 2)) {
      return Error(Code::kCorrupt, "GGUF: the tensors of RoPE factors do not fit the heads");
    }
  }
  return {};
}

Status read_windows(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
  config.sliding_window.assign(config.layers, 0);
  STATOR_TRY(const uint32_t window, keys.size_or_none("attention.sliding_window", kPositionsMax));
  if (window == 0) {
    return {};
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const bool full = architecture.full_every > 0 && (layer + 1) % architecture.full_every == 0;
    config.sliding_window[layer] = full ? 0 : window;
  }
  return {};
}

Status read_gemma(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
  config.activation = Activation::kGelu;
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  // The 27B models scale by the width of a head as it would be, not as it is.
  const bool large = config.layers == (architecture.query_key_norm ? 62U : 46U);
  const double query = large ? static_cast<double>(config.hidden_size) / config.heads
                             : static_cast<double>(config.head_dim);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(query));
  STATOR_TRY(const double attention, keys.number("attn_logit_softcapping", 0.0));
  STATOR_TRY(const double logits, keys.number("final_logit_softcapping", 0.0));
  config.attention_softcap = static_cast<float>(attention);
  config.logit_softcap = static_cast<float>(logits);
  if (architecture.query_key_norm) {
    config.window_rope = RopeConfig{.theta = 10000.0};
  }
  return {};
}

/// Granite's multipliers.
Status read_multipliers(const Keys& keys, ModelConfig& config) {
  STATOR_TRY(const double embedding, keys.number("embedding_scale", 1.0));
  STATOR_TRY(const double attention, keys.number("attention.scale", 0.0));
  STATOR_TRY(const double residual, keys.number("residual_scale", 1.0));
  STATOR_TRY(const double logits, keys.number("logit_scale", 1.0));
  if (!(embedding > 0) || attention < 0 || !(residual > 0) || !(logits > 0)) {
    return Error(Code::kCorrupt, fmt::format("GGUF: {} and the scales beside it must be positive",
                                             keys.name("embedding_scale")));
  }
  config.embedding_scale = static_cast<float>(embedding);
  config.attention_scale = static_cast<float>(attention);
  config.residual_scale = static_cast<float>(residual);
  config.logit_scale = static_cast<float>(1.0 / logits);
  return {};
}

Status read_experts(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
  STATOR_TRY(config.experts.count, keys.size_or_none("expert_count", 4096));
  if (config.experts.count == 0) {
    return {};
  }
  STATOR_TRY(config.experts.per_token, keys.size("expert_used_count", config.experts.count));
  STATOR_TRY(config.experts.inner_size,
             keys.size("expert_feed_forward_length", kSizeMax, config.intermediate_size));
  config.experts.normalize = !architecture.plain_shares;
  config.experts.dense_layers.assign(config.layers, false);
  return {};
}

struct Rename {
  std::string_view from;
  std::string_view to;
};
/// Of a layer: GGUF's name behind "blk.N." and the other formats' behind "model.layers.N.".
constexpr auto kLayerNames = std::to_array<Rename>({
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
});

std::string layer_tensor(const Architecture& architecture, std::string_view rest) {
  if (architecture.output_norms_only && rest == "post_attention_norm.weight") {
    return "post_attention_layernorm.weight";
  }
  if (architecture.output_norms_only && rest == "post_ffw_norm.weight") {
    return "post_feedforward_layernorm.weight";
  }
  if (rest == "ffn_norm.weight") {
    return architecture.gemma && architecture.output_norms ? "pre_feedforward_layernorm.weight"
                                                           : "post_attention_layernorm.weight";
  }
  if (rest == "post_attention_norm.weight") {
    return architecture.gemma ? "post_attention_layernorm.weight"
                              : "post_self_attn_layernorm.weight";
  }
  if (rest == "post_ffw_norm.weight") {
    return architecture.gemma ? "post_feedforward_layernorm.weight" : "post_mlp_layernorm.weight";
  }
  if (rest == "ffn_up.weight" && architecture.fused_gate_up) {
    return "mlp.gate_up_proj.weight";
  }
  const auto* found = std::ranges::find(kLayerNames, rest, &Rename::from);
  return std::string(found == kLayerNames.end() ? rest : found->to);
}

/// The experts of one tensor [count, outputs, inputs] as a matrix each.
void add_experts(const TensorView& tensor, const std::string& layer, std::string_view projection,
                 TensorMap& out) {
  const uint64_t count = tensor.shape.front();
  const size_t bytes = tensor.bytes.size() / count;
  for (uint64_t expert = 0; expert < count; ++expert) {
    out.emplace(fmt::format("{}mlp.experts.{}.{}_proj.weight", layer, expert, projection),
                TensorView{.dtype = tensor.dtype,
                           .shape = {tensor.shape[1], tensor.shape[2]},
                           .bytes = tensor.bytes.subspan(expert * bytes, bytes),
                           .mapped = tensor.mapped});
  }
}

Result<TensorMap> rename_tensors(const gguf::File& file, const Architecture& architecture,
                                 Storage storage) {
  TensorMap out;
  for (const gguf::Tensor& tensor : file.tensors) {
    TensorView view{
        .shape = tensor.shape, .bytes = tensor.bytes, .mapped = storage == Storage::kMapped};
    STATOR_TRY(view.dtype, to_dtype(tensor.type));
    const std::string_view name = tensor.name;
    if (name == "token_embd.weight") {
      out.emplace("model.embed_tokens.weight", std::move(view));
    } else if (name == "output_norm.weight") {
      out.emplace("model.norm.weight", std::move(view));
    } else if (name == "output.weight") {
      out.emplace("lm_head.weight", std::move(view));
    } else if (name.starts_with("blk.") && name.find('.', 4) != std::string_view::npos) {
      const size_t dot = name.find('.', 4);
      const std::string layer = fmt::format("model.layers.{}.", name.substr(4, dot - 4));
      const std::string_view rest = name.substr(dot + 1);
      const bool three = view.shape.size() == 3;
      if (three && rest == "ffn_gate_exps.weight") {
        add_experts(view, layer, "gate", out);
      } else if (three && rest == "ffn_up_exps.weight") {
        add_experts(view, layer, "up", out);
      } else if (three && rest == "ffn_down_exps.weight") {
        add_experts(view, layer, "down", out);
      } else {
        out.emplace(layer + layer_tensor(architecture, rest), std::move(view));
      }
    } else {
      out.emplace(tensor.name, std::move(view));
    }
  }
  return out;
}

Result<GenerationDefaults> read_defaults(const gguf::Metadata& metadata) {
  GenerationDefaults defaults;
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    STATOR_TRY(const auto id, metadata.find_unsigned(key));
    if (id) {
      defaults.eos_token_ids.push_back(static_cast<TokenId>(*id));
    }
  }
  STATOR_TRY(const auto bos, metadata.find_unsigned("tokenizer.ggml.bos_token_id"));
  if (bos) {
    defaults.bos_token_id = static_cast<TokenId>(*bos);
  }
  return defaults;
}

Result<const Architecture*> find_architecture(const gguf::Metadata& metadata) {
  STATOR_TRY(const auto name, metadata.find_string("general.architecture"));
  const auto* found = std::ranges::find(kArchitectures, name.value_or(""), &Architecture::name);
  if (found != kArchitectures.end()) {
    return found;
  }
  std::string known;
  for (const Architecture& row : kArchitectures) {
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  return Error(
      Code::kUnsupported,
      fmt::format("GGUF: general.architecture '{}' is not supported by the CPU engine; "
                  "supported are {}; for others run llama-server and stator with --engine llamacpp",
                  name.value_or("").substr(0, 64), known));
}

}  // namespace

std::optional<std::string> find_gguf(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    return path;
  }
  std::string first;
  if (fs::exists(fs::path(path) / "config.json", ignored)) {
    return std::nullopt;
  }
  for (fs::directory_iterator at(path, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    const std::string name = at->path().string();
    if (at->path().extension() == ".gguf" && (first.empty() || name < first)) {
      first = name;
    }
  }
  return first.empty() ? std::nullopt : std::optional(first);
}

Result<std::shared_ptr<const Model>> make_gguf_model(const gguf::File& file, Storage storage) {
  STATOR_TRY(const Architecture* architecture, find_architecture(file.metadata));
  const Keys keys(file.metadata, architecture->name);
  STATOR_TRY(const TensorMap tensors, rename_tensors(file, *architecture, storage));
  ModelConfig config;
  config.architecture = architecture->equivalent;
  config.query_key_norm = architecture->query_key_norm;
  config.joint_query_key_norm = architecture->joint_norms;
  config.query_key_paired = architecture->paired;
  config.output_norms = architecture->output_norms;
  config.input_norms = !architecture->output_norms_only;
  config.query_key_value_fused = architecture->fused_qkv;
  config.gate_up_fused = architecture->fused_gate_up;
  STATOR_CHECK(read_sizes(keys, config));
  const auto embedding = tensors.find("model.embed_tokens.weight");
  if (embedding == tensors.end() || embedding->second.shape.size() != 2) {
    return Error(Code::kCorrupt, "GGUF: there is no matrix token_embd.weight");
  }
  config.vocab_size = static_cast<uint32_t>(embedding->second.shape.front());
  const uint64_t tokens = file.metadata.array_size("tokenizer.ggml.tokens");
  if (tokens > 0 && tokens != config.vocab_size) {
    return Error(Code::kCorrupt,
                 fmt::format("GGUF: tokenizer.ggml.tokens has {} tokens, token_embd.weight {} rows",
                             tokens, config.vocab_size));
  }
  config.tied_embeddings = !tensors.contains("lm_head.weight");
  config.qkv_bias = tensors.contains("model.layers.0.self_attn.q_proj.bias");
  config.output_bias = tensors.contains("model.layers.0.self_attn.o_proj.bias");
  STATOR_CHECK(read_windows(keys, *architecture, config));
  if (architecture->gemma) {
    STATOR_CHECK(read_gemma(keys, *architecture, config));
  }
  STATOR_CHECK(read_experts(keys, *architecture, config));
  if (architecture->granite) {
    STATOR_CHECK(read_multipliers(keys, config));
  }
  for (uint32_t layer = 0; layer < config.layers && architecture->rotation_pause > 0; ++layer) {
    config.unrotated.push_back((layer + 1) % architecture->rotation_pause == 0);
  }
  STATOR_CHECK(read_rope(keys, *architecture, tensors, config));
  STATOR_TRY(GenerationDefaults defaults, read_defaults(file.metadata));
  return make_model(std::move(config), std::move(defaults), tensors);
}

Result<std::shared_ptr<const Model>> load_gguf_model(const std::string& path) {
  STATOR_TRY(const io::MappedFile mapped, io::MappedFile::open(path));
  STATOR_TRY(const gguf::File file, gguf::File::parse(mapped.bytes()));
  return make_gguf_model(file, Storage::kMapped);
}

}  // namespace stator::engine::cpu
