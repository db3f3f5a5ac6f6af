// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>

#include "stator/core/assert.h"
#include "stator/engine/cpu/gguf_model.h"
#include "stator/engine/cpu/quantized.h"
#include "stator/io/mapped_file.h"

namespace stator::engine::cpu {
namespace {

constexpr size_t kConfigBytesMax = 16U << 20U;
constexpr size_t kNamedProblemsMax = 5;

std::string layer_name(uint32_t layer, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

/// Norms as the architecture calls them.
struct NormNames {
  std::string_view attention = "input_layernorm.weight";
  std::string_view attention_output;  // empty: none
  std::string_view mlp = "post_attention_layernorm.weight";
  std::string_view mlp_output;
};

NormNames norm_names(const ModelConfig& config) {
  NormNames names;
  if (config.architecture.starts_with("Gemma")) {
    names.attention_output = "post_attention_layernorm.weight";
    names.mlp = "pre_feedforward_layernorm.weight";
    names.mlp_output = "post_feedforward_layernorm.weight";
    if (!config.output_norms) {  // the first Gemma
      names = NormNames();
    }
  } else if (!config.input_norms) {
    names = {.attention = {},
             .attention_output = "post_attention_layernorm.weight",
             .mlp = {},
             .mlp_output = "post_feedforward_layernorm.weight"};
  } else if (config.output_norms) {
    names.attention_output = "post_self_attn_layernorm.weight";
    names.mlp_output = "post_mlp_layernorm.weight";
  }
  return names;
}

/// Parts of a mixture as the architecture calls them.
struct ExpertNames {
  std::string_view mixture = "mlp";
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";
};
ExpertNames expert_names(const ModelConfig& config) {
  return config.architecture == "MixtralForCausalLM"
             ? ExpertNames{.mixture = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"}
             : ExpertNames();
}

/// Adds tensors of one layer to a list.
class LayerTensors {
 public:
  LayerTensors(const ModelConfig& config, uint32_t layer, std::vector<ExpectedTensor>& expected)
      : config_(config), layer_(layer), expected_(expected) {}

  void add(std::string_view rest, std::vector<uint64_t> shape) {
    expected_.push_back({layer_name(layer_, rest), std::move(shape)});
  }

  void attention() {
    const uint64_t hidden = config_.hidden_size;
    const uint64_t query = uint64_t{config_.heads} * config_.head_dim;
    const uint64_t key = uint64_t{config_.kv_heads} * config_.head_dim;
    const NormNames norms = norm_names(config_);
    for (const std::string_view norm :
         {norms.attention, norms.attention_output, norms.mlp, norms.mlp_output}) {
      if (!norm.empty()) {
        add(norm, {hidden});
      }
    }
    if (config_.query_key_value_fused) {
      add("self_attn.qkv_proj.weight", {query + 2 * key, hidden});
    } else {
      add("self_attn.q_proj.weight", {query, hidden});
      add("self_attn.k_proj.weight", {key, hidden});
      add("self_attn.v_proj.weight", {key, hidden});
    }
    add("self_attn.o_proj.weight", {hidden, query});
    if (config_.qkv_bias) {
      add("self_attn.q_proj.bias", {query});
      add("self_attn.k_proj.bias", {key});
      add("self_attn.v_proj.bias", {key});
    }
    if (config_.output_bias) {
      add("self_attn.o_proj.bias", {hidden});
    }
    if (config_.query_key_norm) {
      const bool joint = config_.joint_query_key_norm;
      add("self_attn.q_norm.weight", {joint ? query : config_.head_dim});
      add("self_attn.k_norm.weight", {joint ? key : config_.head_dim});
    }
    if (config_.attention_sinks) {
      add("self_attn.sinks", {config_.heads});
    }
  }

  void mlp() {
    const uint64_t hidden = config_.hidden_size;
    const uint64_t inner = config_.intermediate_size;
    if (config_.gate_up_fused) {
      add("mlp.gate_up_proj.weight", {2 * inner, hidden});
    } else {
      add("mlp.gate_proj.weight", {inner, hidden});
      add("mlp.up_proj.weight", {inner, hidden});
    }
    add("mlp.down_proj.weight", {hidden, inner});
    if (config_.mlp_bias) {
      add("mlp.gate_proj.bias", {inner});
      add("mlp.up_proj.bias", {inner});
      add("mlp.down_proj.bias", {hidden});
    }
  }

  void experts() {
    const uint64_t hidden = config_.hidden_size;
    const uint64_t count = config_.experts.count;
    const uint64_t inner = config_.experts.inner_size;
    if (config_.activation == Activation::kClampedSwiglu) {  // gpt-oss: all experts in one
      add("mlp.router.weight", {count, hidden});
      add("mlp.router.bias", {count});
      add("mlp.experts.gate_up_proj", {count, hidden, 2 * inner});
      add("mlp.experts.gate_up_proj_bias", {count, 2 * inner});
      add("mlp.experts.down_proj", {count, inner, hidden});
      add("mlp.experts.down_proj_bias", {count, hidden});
      return;
    }
    const ExpertNames names = expert_names(config_);
    add(fmt::format("{}.gate.weight", names.mixture), {count, hidden});
    for (uint64_t expert = 0; expert < count; ++expert) {
      const auto named = [&](std::string_view part) {
        return fmt::format("{}.experts.{}.{}.weight", names.mixture, expert, part);
      };
      add(named(names.gate), {inner, hidden});
      add(named(names.up), {inner, hidden});
      add(named(names.down), {hidden, inner});
    }
  }

 private:
  const ModelConfig& config_;
  uint32_t layer_;
  std::vector<ExpectedTensor>& expected_;
};

bool has_experts(const ModelConfig& config, uint32_t layer) {
  return config.experts.count > 0 && !config.experts.dense_layers[layer];
}

bool is_weight(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBf16 ||
         is_quantized(dtype);
}

/// Every expected tensor is there, with the right shape and a dtype we compute with.
Status check_tensors(const ModelConfig& config, const TensorMap& tensors) {
  std::vector<std::string> missing;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    const auto found = tensors.find(expected.name);
    if (found == tensors.end()) {
      missing.push_back(expected.name);
      continue;
    }
    const TensorView& tensor = found->second;
    if (!is_weight(tensor.dtype)) {
      return Error(
          Code::kUnsupported,
          fmt::format("tensor '{}' has dtype {}; the CPU engine computes with F32, F16 and "
                      "BF16 weights",
                      expected.name, to_string(tensor.dtype)));
    }
    if (tensor.shape != expected.shape) {
      return Error(Code::kCorrupt,
                   fmt::format("tensor '{}' has shape [{}], config.json says [{}]", expected.name,
                               fmt::join(tensor.shape, ", "), fmt::join(expected.shape, ", ")));
    }
  }
  if (missing.empty()) {
    return {};
  }
  const size_t total = missing.size();
  missing.resize(std::min(total, kNamedProblemsMax));
  return Error(Code::kCorrupt,
               fmt::format("the checkpoint lacks {} tensor(s) that config.json asks for: {}{}",
                           total, fmt::join(missing, ", "), total > missing.size() ? ", …" : ""));
}

/// Access to checked tensors while building.
class Builder {
 public:
  Builder(const ModelConfig& config, const TensorMap& tensors)
      : config_(config), tensors_(tensors) {}

  Result<LayerWeights> layer(uint32_t index) const {
    const auto named = [index](std::string_view rest) { return layer_name(index, rest); };
    LayerWeights layer;
    const NormNames norms = norm_names(config_);
    const auto norm_of = [&](std::string_view name) {
      return name.empty() ? std::vector<float>() : norm(named(name));
    };
    layer.attention_norm = norm_of(norms.attention);
    layer.attention_output_norm = norm_of(norms.attention_output);
    layer.mlp_norm = norm_of(norms.mlp);
    layer.mlp_output_norm = norm_of(norms.mlp_output);
    if (config_.query_key_norm) {
      layer.query_norm = norm(named("self_attn.q_norm.weight"));
      layer.key_norm = norm(named("self_attn.k_norm.weight"));
    }
    if (config_.qkv_bias) {
      layer.query_key_value_bias =
          floats({named("self_attn.q_proj.bias"), named("self_attn.k_proj.bias"),
                  named("self_attn.v_proj.bias")});
    }
    if (config_.output_bias) {
      layer.attention_output_bias = floats({named("self_attn.o_proj.bias")});
    }
    if (config_.attention_sinks) {
      layer.sinks = floats({named("self_attn.sinks")});
    }
    if (config_.query_key_value_fused) {
      const uint64_t query = uint64_t{config_.heads} * config_.head_dim;
      const uint64_t key = uint64_t{config_.kv_heads} * config_.head_dim;
      STATOR_TRY(layer.query_key_value,
                 divided(named("self_attn.qkv_proj.weight"), {query, key, key}));
    } else {
      STATOR_TRY(layer.query_key_value,
                 matrix({named("self_attn.q_proj.weight"), named("self_attn.k_proj.weight"),
                         named("self_attn.v_proj.weight")}));
    }
    STATOR_TRY(layer.attention_output, matrix({named("self_attn.o_proj.weight")}));
    if (has_experts(config_, index)) {
      STATOR_CHECK(config_.activation == Activation::kClampedSwiglu ? joined_experts(index, layer)
                                                                    : experts(index, layer));
    } else {
      STATOR_CHECK(mlp(index, layer));
    }
    return layer;
  }

  Status mlp(uint32_t index, LayerWeights& layer) const {
    const auto named = [index](std::string_view rest) { return layer_name(index, rest); };
    if (config_.mlp_bias) {
      layer.gate_up_bias = floats({named("mlp.gate_proj.bias"), named("mlp.up_proj.bias")});
      layer.down_bias = floats({named("mlp.down_proj.bias")});
    }
    if (config_.gate_up_fused) {
      STATOR_TRY(layer.gate_up, divided(named("mlp.gate_up_proj.weight"),
                                        {config_.intermediate_size, config_.intermediate_size}));
    } else {
      STATOR_TRY(layer.gate_up,
                 matrix({named("mlp.gate_proj.weight"), named("mlp.up_proj.weight")}));
    }
    STATOR_TRY(layer.down, matrix({named("mlp.down_proj.weight")}));
    return {};
  }

  Status experts(uint32_t index, LayerWeights& layer) const {
    const ExpertNames names = expert_names(config_);
    STATOR_TRY(layer.router,
               matrix({layer_name(index, fmt::format("{}.gate.weight", names.mixture))}));
    for (uint32_t i = 0; i < config_.experts.count; ++i) {
      const auto named = [&](std::string_view part) {
        return layer_name(index, fmt::format("{}.experts.{}.{}.weight", names.mixture, i, part));
      };
      ExpertWeights expert;
      STATOR_TRY(expert.gate_up, matrix({named(names.gate), named(names.up)}));
      STATOR_TRY(expert.down, matrix({named(names.down)}));
      layer.experts.push_back(std::move(expert));
    }
    return {};
  }

  /// gpt-oss: [expert, input, output], gates and ups taking turns.
  Status joined_experts(uint32_t index, LayerWeights& layer) const {
    const auto named = [index](std::string_view rest) { return layer_name(index, rest); };
    STATOR_TRY(layer.router, matrix({named("mlp.router.weight")}));
    layer.router_bias = floats({named("mlp.router.bias")});
    const std::vector<float> gate_up_bias = floats({named("mlp.experts.gate_up_proj_bias")});
    const std::vector<float> down_bias = floats({named("mlp.experts.down_proj_bias")});
    const size_t hidden = config_.hidden_size;
    const size_t inner = config_.experts.inner_size;
    for (size_t i = 0; i < config_.experts.count; ++i) {
      ExpertWeights expert;
      STATOR_TRY(expert.gate_up,
                 transposed(tensors_.at(named("mlp.experts.gate_up_proj")), i, true));
      STATOR_TRY(expert.down, transposed(tensors_.at(named("mlp.experts.down_proj")), i, false));
      for (const size_t half : {size_t{0}, size_t{1}}) {
        for (size_t k = 0; k < inner; ++k) {
          expert.gate_up_bias.push_back(gate_up_bias[i * 2 * inner + 2 * k + half]);
        }
        pad(expert.gate_up_bias);
      }
      const auto* bias = down_bias.data() + i * hidden;
      expert.down_bias.assign(bias, bias + hidden);
      pad(expert.down_bias);
      layer.experts.push_back(std::move(expert));
    }
    return {};
  }

  /// Matrix `index` of [count, inputs, outputs] as [outputs, inputs]; `pairs`: outputs that take
  /// turns are put one half after the other.
  static Result<PackedMatrix> transposed(const TensorView& tensor, size_t index, bool pairs) {
    const size_t inputs = tensor.shape[1];
    const size_t outputs = tensor.shape[2];
    const size_t bytes = dtype_bytes(tensor.dtype);
    std::vector<std::byte> turned(inputs * outputs * bytes);
    const std::byte* from = tensor.bytes.data() + index * turned.size();
    for (size_t output = 0; output < outputs; ++output) {
      const size_t to = pairs ? output / 2 + output % 2 * (outputs / 2) : output;
      for (size_t input = 0; input < inputs; ++input) {
        std::memcpy(turned.data() + (to * inputs + input) * bytes,
                    from + (input * outputs + output) * bytes, bytes);
      }
    }
    const TensorView view{.dtype = tensor.dtype, .shape = {outputs, inputs}, .bytes = turned};
    if (!pairs) {
      return PackedMatrix::pack({&view, 1});
    }
    return PackedMatrix::pack(
        std::vector{rows_of(view, 0, outputs / 2), rows_of(view, outputs / 2, outputs / 2)});
  }

  std::vector<float> norm(const std::string& name) const {
    std::vector<float> weights = to_floats(tensors_.at(name));
    if (config_.unit_norms) {
      for (float& weight : weights) {
        weight += 1.0F;
      }
    }
    pad(weights);
    return weights;
  }

  /// Zeros up to whole vectors.
  static void pad(std::vector<float>& values) {
    values.resize(static_cast<size_t>(round_up_lanes(static_cast<int64_t>(values.size()))));
  }

  static TensorView rows_of(const TensorView& matrix, uint64_t first, uint64_t count) {
    const size_t row = row_bytes(matrix.dtype, matrix.shape[1]);
    return {.dtype = matrix.dtype,
            .shape = {count, matrix.shape[1]},
            .bytes = matrix.bytes.subspan(first * row, count * row),
            .mapped = matrix.mapped};
  }

  /// A tensor that holds several matrices on top of each other.
  Result<PackedMatrix> divided(const std::string& name,
                               std::initializer_list<uint64_t> rows) const {
    std::vector<TensorView> parts;
    uint64_t first = 0;
    for (const uint64_t count : rows) {
      parts.push_back(rows_of(tensors_.at(name), first, count));
      first += count;
    }
    return PackedMatrix::pack(parts);
  }

  Result<PackedMatrix> matrix(std::initializer_list<std::string> names) const {
    std::vector<TensorView> parts;
    for (const std::string& name : names) {
      parts.push_back(tensors_.at(name));
    }
    return PackedMatrix::pack(parts);
  }

  /// Each tensor padded to whole vectors, as the outputs of stacked matrices are.
  std::vector<float> floats(std::initializer_list<std::string> names) const {
    std::vector<float> all;
    for (const std::string& name : names) {
      std::vector<float> part = to_floats(tensors_.at(name));
      pad(part);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

 private:
  const ModelConfig& config_;
  const TensorMap& tensors_;
};

Result<ModelWeights> build_weights(const ModelConfig& config, const TensorMap& tensors) {
  const Builder builder(config, tensors);
  ModelWeights weights;
  STATOR_TRY(weights.embedding, builder.matrix({"model.embed_tokens.weight"}));
  if (!config.tied_embeddings) {
    STATOR_TRY(weights.output_head, builder.matrix({"lm_head.weight"}));
  }
  weights.final_norm = builder.norm("model.norm.weight");
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    STATOR_TRY(LayerWeights built, builder.layer(layer));
    weights.layers.push_back(std::move(built));
  }
  return weights;
}

Result<std::string> read_text(const std::string& path) {
  STATOR_TRY(const io::MappedFile file, io::MappedFile::open(path));
  if (file.bytes().size() > kConfigBytesMax) {
    return Error(Code::kCorrupt, fmt::format("{} is larger than {} bytes", path, kConfigBytesMax));
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config) {
  const uint64_t hidden = config.hidden_size;
  std::vector<ExpectedTensor> expected;
  expected.push_back({"model.embed_tokens.weight", {config.vocab_size, hidden}});
  expected.push_back({"model.norm.weight", {hidden}});
  if (!config.tied_embeddings) {
    expected.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    LayerTensors tensors(config, layer, expected);
    tensors.attention();
    if (has_experts(config, layer)) {
      tensors.experts();
    } else {
      tensors.mlp();
    }
  }
  return expected;
}

Result<std::shared_ptr<const Model>> make_model(ModelConfig config, GenerationDefaults defaults,
                                                const TensorMap& tensors) {
  STATOR_CHECK(check_tensors(config, tensors));
  STATOR_TRY(ModelWeights weights, build_weights(config, tensors));
  return std::make_shared<const Model>(Model{
      .config = std::move(config), .defaults = std::move(defaults), .weights = std::move(weights)});
}

Result<std::shared_ptr<const Model>> load_model(const std::string& folder) {
  const std::string context = fmt::format("loading model {}", folder);
  std::error_code ignored;
  if (const auto file = find_gguf(folder)) {
    STATOR_TRY(std::shared_ptr<const Model> model, load_gguf_model(*file), context);
    return model;
  }
  STATOR_TRY(const std::string config_json, read_text(folder + "/config.json"), context);
  STATOR_TRY(ModelConfig config, parse_model_config(config_json), context);
  std::string generation_json;
  const std::string generation_path = folder + "/generation_config.json";
  if (std::filesystem::exists(generation_path, ignored)) {
    STATOR_TRY(generation_json, read_text(generation_path), context);
  }
  STATOR_TRY(GenerationDefaults defaults, parse_generation_defaults(config_json, generation_json),
             context);
  STATOR_TRY(const Checkpoint checkpoint, Checkpoint::open(folder), context);
  STATOR_TRY(std::shared_ptr<const Model> model,
             make_model(std::move(config), std::move(defaults), checkpoint.tensors()), context);
  return model;
}

}  // namespace stator::engine::cpu
