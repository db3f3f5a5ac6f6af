// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/encoder_config.h"

#include <fmt/format.h>

#include <utility>

#include "stator/engine/cpu/kernels.h"

namespace stator::engine::cpu {
namespace {

// As model_config.cc: far above any published model.
constexpr uint64_t kDimensionMax = 1U << 20U;
constexpr uint64_t kVocabMax = 1U << 24U;
constexpr uint64_t kLayersMax = 1024;

Error unsupported(std::string text) {
  return {Code::kUnsupported, "config.json: " + std::move(text)};
}

Result<uint32_t> count_of(const json::Value& config, std::string_view key, uint64_t most) {
  const json::Value* value = config.find(key);
  const uint64_t number = value == nullptr ? 0 : value->as_uint64().value_or(0);
  if (number == 0 || number > most) {
    return Error(Code::kCorrupt,
                 fmt::format("config.json: {} is not an integer within 1 and {}", key, most));
  }
  return static_cast<uint32_t>(number);
}

Status check_multiple(std::string_view what, uint64_t value) {
  return value % kLanes == 0
             ? Status()
             : unsupported(fmt::format("{} is {}; the CPU engine needs a multiple of {}", what,
                                       value, kLanes));
}

Result<EncoderActivation> read_activation(std::string_view name) {
  if (name.empty() || name == "gelu") {
    return EncoderActivation::kGelu;
  }
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
    return EncoderActivation::kGeluTanh;
  }
  if (name == "relu") {
    return EncoderActivation::kRelu;
  }
  return unsupported(
      fmt::format("hidden_act '{}' is not supported by the CPU engine; supported "
                  "are gelu, gelu_new, gelu_pytorch_tanh and relu",
                  name.substr(0, 100)));
}

std::string in_layer(uint32_t layer, std::string_view rest) {
  return fmt::format("encoder.layer.{}.{}", layer, rest);
}

}  // namespace

Result<EncoderConfig> parse_encoder_config(std::string_view config_json, const PoolingSpec& spec) {
  STATOR_TRY(const json::Value file, parse_file(config_json, "config.json"));
  EncoderConfig config;
  config.is_roberta = spec.family == PoolingSpec::Family::kRoberta;
  STATOR_TRY(config.vocab_size, count_of(file, "vocab_size", kVocabMax));
  STATOR_TRY(config.layers, count_of(file, "num_hidden_layers", kLayersMax));
  STATOR_TRY(config.hidden_size, count_of(file, "hidden_size", kDimensionMax));
  STATOR_TRY(config.intermediate_size, count_of(file, "intermediate_size", kDimensionMax));
  STATOR_TRY(config.heads, count_of(file, "num_attention_heads", kDimensionMax));
  STATOR_TRY(config.position_rows, count_of(file, "max_position_embeddings", kVocabMax));
  STATOR_TRY(config.types, count_of(file, "type_vocab_size", kDimensionMax));
  STATOR_TRY(config.activation, read_activation(file.text_at({"hidden_act"})));
  if (const std::string_view kind = file.text_at({"position_embedding_type"});
      !kind.empty() && kind != "absolute") {
    return unsupported(
        fmt::format("position_embedding_type '{}' is not supported by the CPU "
                    "engine; absolute is",
                    kind.substr(0, 100)));
  }
  if (file.find("quantization_config") != nullptr && !file.find("quantization_config")->is_null()) {
    return unsupported("quantization_config: quantised weights are not supported here");
  }
  if (const json::Value* epsilon = file.find("layer_norm_eps")) {
    config.epsilon = static_cast<float>(epsilon->as_double().value_or(1e-12));
  }
  if (config.is_roberta) {
    const json::Value* padding = file.find("pad_token_id");
    config.position_offset =
        1 + static_cast<uint32_t>(padding == nullptr ? 1 : padding->as_uint64().value_or(1));
  }
  if (config.position_rows <= config.position_offset) {
    return Error(Code::kCorrupt, "config.json: max_position_embeddings leaves no position");
  }
  if (config.hidden_size % config.heads != 0) {
    return Error(Code::kCorrupt,
                 fmt::format("config.json: hidden_size {} is no multiple of num_attention_heads {}",
                             config.hidden_size, config.heads));
  }
  STATOR_CHECK(check_multiple("hidden_size", config.hidden_size));
  STATOR_CHECK(check_multiple("intermediate_size", config.intermediate_size));
  STATOR_CHECK(check_multiple("hidden_size / num_attention_heads", config.head_dim()));
  config.labels = spec.classifies ? static_cast<uint32_t>(spec.labels.size()) : 0;
  return config;
}

std::vector<ExpectedTensor> expected_encoder_tensors(const EncoderConfig& config) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t inner = config.intermediate_size;
  std::vector<ExpectedTensor> all = {
      {"embeddings.word_embeddings.weight", {config.vocab_size, hidden}},
      {"embeddings.position_embeddings.weight", {config.position_rows, hidden}},
      {"embeddings.token_type_embeddings.weight", {config.types, hidden}},
      {"embeddings.LayerNorm.weight", {hidden}},
      {"embeddings.LayerNorm.bias", {hidden}}};
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](std::string_view name, uint64_t outputs, uint64_t inputs) {
      all.push_back({in_layer(layer, fmt::format("{}.weight", name)), {outputs, inputs}});
      all.push_back({in_layer(layer, fmt::format("{}.bias", name)), {outputs}});
    };
    const auto add_norm = [&](std::string_view name) {
      all.push_back({in_layer(layer, fmt::format("{}.weight", name)), {hidden}});
      all.push_back({in_layer(layer, fmt::format("{}.bias", name)), {hidden}});
    };
    add("attention.self.query", hidden, hidden);
    add("attention.self.key", hidden, hidden);
    add("attention.self.value", hidden, hidden);
    add("attention.output.dense", hidden, hidden);
    add_norm("attention.output.LayerNorm");
    add("intermediate.dense", inner, hidden);
    add("output.dense", hidden, inner);
    add_norm("output.LayerNorm");
  }
  return all;
}

std::vector<ExpectedTensor> expected_head_tensors(const EncoderConfig& config) {
  if (config.labels == 0) {
    return {};
  }
  const uint64_t hidden = config.hidden_size;
  const uint64_t labels = config.labels;
  if (config.is_roberta) {
    return {{"classifier.dense.weight", {hidden, hidden}},
            {"classifier.dense.bias", {hidden}},
            {"classifier.out_proj.weight", {labels, hidden}},
            {"classifier.out_proj.bias", {labels}}};
  }
  return {{"bert.pooler.dense.weight", {hidden, hidden}},
          {"bert.pooler.dense.bias", {hidden}},
          {"classifier.weight", {labels, hidden}},
          {"classifier.bias", {labels}}};
}

}  // namespace stator::engine::cpu
