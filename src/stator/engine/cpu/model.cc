// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "stator/core/assert.h"
#include "stator/io/mapped_file.h"

namespace stator::engine::cpu {
namespace {

constexpr size_t kConfigBytesMax = 16U << 20U;
constexpr size_t kNamedProblemsMax = 5;

std::string layer_name(uint32_t layer, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

void expect_attention(const ModelConfig& config, uint32_t layer,
                      std::vector<ExpectedTensor>& expected) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t query = uint64_t{config.heads} * config.head_dim;
  const uint64_t key = uint64_t{config.kv_heads} * config.head_dim;
  const auto add = [&](std::string_view rest, std::vector<uint64_t> shape) {
    expected.push_back({layer_name(layer, rest), std::move(shape)});
  };
  add("input_layernorm.weight", {hidden});
  add("self_attn.q_proj.weight", {query, hidden});
  add("self_attn.k_proj.weight", {key, hidden});
  add("self_attn.v_proj.weight", {key, hidden});
  add("self_attn.o_proj.weight", {hidden, query});
  if (config.qkv_bias) {
    add("self_attn.q_proj.bias", {query});
    add("self_attn.k_proj.bias", {key});
    add("self_attn.v_proj.bias", {key});
  }
  if (config.output_bias) {
    add("self_attn.o_proj.bias", {hidden});
  }
  if (config.query_key_norm) {
    add("self_attn.q_norm.weight", {config.head_dim});
    add("self_attn.k_norm.weight", {config.head_dim});
  }
}

void expect_mlp(const ModelConfig& config, uint32_t layer, std::vector<ExpectedTensor>& expected) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t inner = config.intermediate_size;
  const auto add = [&](std::string_view rest, std::vector<uint64_t> shape) {
    expected.push_back({layer_name(layer, rest), std::move(shape)});
  };
  add("post_attention_layernorm.weight", {hidden});
  add("mlp.gate_proj.weight", {inner, hidden});
  add("mlp.up_proj.weight", {inner, hidden});
  add("mlp.down_proj.weight", {hidden, inner});
  if (config.mlp_bias) {
    add("mlp.gate_proj.bias", {inner});
    add("mlp.up_proj.bias", {inner});
    add("mlp.down_proj.bias", {hidden});
  }
}

bool is_weight(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBf16;
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
    layer.attention_norm = floats({named("input_layernorm.weight")});
    layer.mlp_norm = floats({named("post_attention_layernorm.weight")});
    if (config_.query_key_norm) {
      layer.query_norm = floats({named("self_attn.q_norm.weight")});
      layer.key_norm = floats({named("self_attn.k_norm.weight")});
    }
    if (config_.qkv_bias) {
      layer.query_key_value_bias =
          floats({named("self_attn.q_proj.bias"), named("self_attn.k_proj.bias"),
                  named("self_attn.v_proj.bias")});
    }
    if (config_.output_bias) {
      layer.attention_output_bias = floats({named("self_attn.o_proj.bias")});
    }
    if (config_.mlp_bias) {
      layer.gate_up_bias = floats({named("mlp.gate_proj.bias"), named("mlp.up_proj.bias")});
      layer.down_bias = floats({named("mlp.down_proj.bias")});
    }
    STATOR_TRY(layer.query_key_value,
               matrix({named("self_attn.q_proj.weight"), named("self_attn.k_proj.weight"),
                       named("self_attn.v_proj.weight")}));
    STATOR_TRY(layer.attention_output, matrix({named("self_attn.o_proj.weight")}));
    STATOR_TRY(layer.gate_up, matrix({named("mlp.gate_proj.weight"), named("mlp.up_proj.weight")}));
    STATOR_TRY(layer.down, matrix({named("mlp.down_proj.weight")}));
    return layer;
  }

  Result<PackedMatrix> matrix(std::initializer_list<std::string> names) const {
    std::vector<TensorView> parts;
    for (const std::string& name : names) {
      parts.push_back(tensors_.at(name));
    }
    return PackedMatrix::pack(parts);
  }

  std::vector<float> floats(std::initializer_list<std::string> names) const {
    std::vector<float> all;
    for (const std::string& name : names) {
      const std::vector<float> part = to_floats(tensors_.at(name));
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
  weights.final_norm = builder.floats({"model.norm.weight"});
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
    expect_attention(config, layer, expected);
    expect_mlp(config, layer, expected);
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
  if (std::filesystem::is_regular_file(folder, ignored)) {
    return Error(Code::kUnsupported,
                 context +
                     ": the cpu engine reads folders with safetensors weights; serve a GGUF "
                     "file with llama-server and --engine llamacpp");
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
