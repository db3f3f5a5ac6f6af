// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/pooling_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::engine::cpu {
namespace {

constexpr std::string_view kHead = "score.weight";

/// "Qwen2ForSequenceClassification" and "Qwen2Model" have the decoder of "Qwen2ForCausalLM".
std::string causal_name(std::string_view architecture) {
  for (const std::string_view suffix : {"ForSequenceClassification", "Model"}) {
    if (architecture.ends_with(suffix)) {
      return std::string(architecture.substr(0, architecture.size() - suffix.size())) +
             "ForCausalLM";
    }
  }
  return std::string(architecture);
}

/// The reader of generating models reads these, too, once they look like one: without an output
/// head, with tensors under "model.".
Result<std::shared_ptr<const Model>> make_decoder(std::string_view config_json,
                                                  const PoolingSpec& spec,
                                                  const TensorMap& tensors) {
  STATOR_TRY(json::Value config, parse_file(config_json, "config.json"));
  json::Value names = json::Value::array();
  names.push_back(causal_name(spec.architecture));
  config["architectures"] = std::move(names);
  config["tie_word_embeddings"] = true;
  STATOR_TRY(ModelConfig parsed, parse_model_config(json::to_text(config)));
  TensorMap renamed;
  for (const auto& [name, tensor] : tensors) {
    const bool bare = !name.starts_with("model.") && name != kHead && name != "lm_head.weight";
    renamed.emplace(bare ? "model." + name : name, tensor);
  }
  return make_model(std::move(parsed), {}, renamed);
}

Result<std::vector<float>> read_decoder_head(const PoolingModel& model, const TensorMap& tensors) {
  const auto found = tensors.find(std::string(kHead));
  if (found == tensors.end()) {
    return Error(Code::kCorrupt, fmt::format("the checkpoint lacks the tensor {}", kHead));
  }
  const std::vector<uint64_t> shape = {model.spec.labels.size(), model.hidden_size()};
  if (found->second.shape != shape) {
    return Error(Code::kCorrupt, fmt::format("tensor '{}' is not [{}, {}], as config.json says",
                                             kHead, shape[0], shape[1]));
  }
  return to_floats(found->second);
}

}  // namespace

uint32_t PoolingModel::vocab_size() const {
  return encoder != nullptr ? encoder->config.vocab_size : decoder->config.vocab_size;
}

uint32_t PoolingModel::hidden_size() const {
  return encoder != nullptr ? encoder->config.hidden_size : decoder->config.hidden_size;
}

uint32_t PoolingModel::tokens_max() const {
  const uint32_t most =
      encoder != nullptr ? encoder->config.tokens_max() : decoder->config.max_positions;
  return spec.tokens_max == 0 ? most : std::min(most, spec.tokens_max);
}

Result<std::shared_ptr<const PoolingModel>> load_pooling_model(const std::string& folder,
                                                               std::string_view wanted) {
  STATOR_TRY(const PoolingFiles files, read_pooling_files(folder));
  STATOR_TRY(auto spec, parse_pooling_spec(files, wanted));
  if (!spec) {
    return std::shared_ptr<const PoolingModel>();
  }
  STATOR_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  auto model = std::make_shared<PoolingModel>();
  model->spec = std::move(*spec);
  if (model->spec.family == PoolingSpec::Family::kDecoder) {
    STATOR_TRY(model->decoder, make_decoder(files.config, model->spec, checkpoint.tensors()));
    if (model->spec.classifies) {
      STATOR_TRY(model->decoder_head, read_decoder_head(*model, checkpoint.tensors()));
    }
  } else {
    STATOR_TRY(EncoderConfig config, parse_encoder_config(files.config, model->spec));
    STATOR_TRY(model->encoder, make_encoder(config, model->spec, checkpoint.tensors()));
  }
  return std::shared_ptr<const PoolingModel>(std::move(model));
}

}  // namespace stator::engine::cpu
