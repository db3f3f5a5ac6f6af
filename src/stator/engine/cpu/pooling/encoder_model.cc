// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/encoder_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

namespace stator::engine::cpu {
namespace {

constexpr size_t kNamedProblemsMax = 5;
constexpr std::array<std::string_view, 3> kPrefixes = {"", "bert.", "roberta."};

bool is_weight(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBf16;
}

Status check_tensor(const TensorView& tensor, const ExpectedTensor& expected) {
  if (!is_weight(tensor.dtype)) {
    return Error(Code::kUnsupported,
                 fmt::format("tensor '{}' has dtype {}; the CPU engine computes with F32, F16 and "
                             "BF16 weights",
                             expected.name, to_string(tensor.dtype)));
  }
  if (tensor.shape != expected.shape) {
    return Error(Code::kCorrupt,
                 fmt::format("tensor '{}' has shape [{}], config.json says [{}]", expected.name,
                             fmt::join(tensor.shape, ", "), fmt::join(expected.shape, ", ")));
  }
  return {};
}

/// Finds tensors whatever their prefix; checked before anything is built.
class Source {
 public:
  explicit Source(const TensorMap& tensors) : tensors_(tensors) {
    for (const std::string_view prefix : kPrefixes) {
      if (tensors.contains(std::string(prefix) + "embeddings.word_embeddings.weight")) {
        prefix_ = prefix;
        return;
      }
    }
  }

  Status check(const EncoderConfig& config) const {
    std::vector<std::string> missing;
    const auto look = [&](const std::vector<ExpectedTensor>& all,
                          std::string_view prefix) -> Status {
      for (const ExpectedTensor& expected : all) {
        const TensorView* tensor = find(std::string(prefix) + expected.name);
        if (tensor == nullptr) {
          missing.push_back(expected.name);
          continue;
        }
        STATOR_CHECK(check_tensor(*tensor, expected));
      }
      return {};
    };
    STATOR_CHECK(look(expected_encoder_tensors(config), prefix_));
    STATOR_CHECK(look(expected_head_tensors(config), ""));
    if (missing.empty()) {
      return {};
    }
    const size_t total = missing.size();
    missing.resize(std::min(total, kNamedProblemsMax));
    return Error(Code::kCorrupt,
                 fmt::format("the checkpoint lacks {} tensor(s) that config.json asks for: {}{}",
                             total, fmt::join(missing, ", "), total > missing.size() ? ", …" : ""));
  }

  Result<PackedMatrix> matrix(std::initializer_list<std::string> names) const {
    std::vector<TensorView> parts;
    for (const std::string& name : names) {
      parts.push_back(*find(prefix_ + name));
    }
    return PackedMatrix::pack(parts);
  }

  std::vector<float> floats(std::initializer_list<std::string> names) const {
    std::vector<float> all;
    for (const std::string& name : names) {
      const std::vector<float> part = to_floats(*find(prefix_ + name));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  EncoderNorm norm(const std::string& name) const {
    return {.weight = floats({name + ".weight"}), .bias = floats({name + ".bias"})};
  }

  Result<EncoderLinear> linear(const std::string& name) const {
    EncoderLinear made;
    STATOR_TRY(made.weight, matrix({name + ".weight"}));
    made.bias = floats({name + ".bias"});
    made.bias.resize(static_cast<size_t>(made.weight.padded_outputs()));
    return made;
  }

  /// Of the classification head, whose names have no prefix.
  Result<EncoderLinear> head(const std::string& name) const {
    const Source bare(tensors_, "");
    return bare.linear(name);
  }

 private:
  Source(const TensorMap& tensors, std::string prefix)
      : tensors_(tensors), prefix_(std::move(prefix)) {}

  /// Old checkpoints call a norm's weight gamma and its bias beta.
  const TensorView* find(const std::string& name) const {
    auto found = tensors_.find(name);
    if (found == tensors_.end() && name.contains("LayerNorm.")) {
      const bool weight = name.ends_with("weight");
      found = tensors_.find(name.substr(0, name.rfind('.') + 1) + (weight ? "gamma" : "beta"));
    }
    return found == tensors_.end() ? nullptr : &found->second;
  }

  const TensorMap& tensors_;
  std::string prefix_;
};

Result<EncoderLayer> build_layer(const Source& source, uint32_t index) {
  const auto in = [index](std::string_view rest) {
    return fmt::format("encoder.layer.{}.{}", index, rest);
  };
  EncoderLayer layer;
  STATOR_TRY(layer.query_key_value.weight,
             source.matrix({in("attention.self.query.weight"), in("attention.self.key.weight"),
                            in("attention.self.value.weight")}));
  layer.query_key_value.bias =
      source.floats({in("attention.self.query.bias"), in("attention.self.key.bias"),
                     in("attention.self.value.bias")});
  STATOR_TRY(layer.attention_output, source.linear(in("attention.output.dense")));
  layer.attention_norm = source.norm(in("attention.output.LayerNorm"));
  STATOR_TRY(layer.intermediate, source.linear(in("intermediate.dense")));
  STATOR_TRY(layer.output, source.linear(in("output.dense")));
  layer.output_norm = source.norm(in("output.LayerNorm"));
  return layer;
}

}  // namespace

Result<std::shared_ptr<const EncoderModel>> make_encoder(EncoderConfig config, PoolingSpec spec,
                                                         const TensorMap& tensors) {
  const Source source(tensors);
  STATOR_CHECK(source.check(config));
  auto model = std::make_shared<EncoderModel>();
  STATOR_TRY(model->words, source.matrix({"embeddings.word_embeddings.weight"}));
  STATOR_TRY(model->positions, source.matrix({"embeddings.position_embeddings.weight"}));
  STATOR_TRY(model->types, source.matrix({"embeddings.token_type_embeddings.weight"}));
  model->embedding_norm = source.norm("embeddings.LayerNorm");
  for (uint32_t i = 0; i < config.layers; ++i) {
    STATOR_TRY(EncoderLayer layer, build_layer(source, i));
    model->layers.push_back(std::move(layer));
  }
  if (config.labels > 0) {
    const bool roberta = config.is_roberta;
    STATOR_TRY(model->head_dense, source.head(roberta ? "classifier.dense" : "bert.pooler.dense"));
    STATOR_TRY(model->head_output, source.head(roberta ? "classifier.out_proj" : "classifier"));
  }
  model->config = config;
  model->spec = std::move(spec);
  return std::shared_ptr<const EncoderModel>(std::move(model));
}

}  // namespace stator::engine::cpu
