// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/cpu/model_config.h"
#include "stator/engine/cpu/packed_matrix.h"
#include "stator/engine/cpu/safetensors.h"

namespace stator::engine::cpu {

/// One expert of a mixture.
struct ExpertWeights {
  PackedMatrix gate_up;  ///< gate over up
  std::vector<float> gate_up_bias;
  PackedMatrix down;
  std::vector<float> down_bias;
};

/// Vectors are f32 and empty where the model has none.
struct LayerWeights {
  std::vector<float> attention_norm;
  std::vector<float> query_norm;
  std::vector<float> key_norm;
  PackedMatrix query_key_value;  ///< q over k over v
  std::vector<float> query_key_value_bias;
  PackedMatrix attention_output;
  std::vector<float> attention_output_bias;
  std::vector<float> mlp_norm;
  PackedMatrix gate_up;  ///< gate over up
  std::vector<float> gate_up_bias;
  PackedMatrix down;
  std::vector<float> down_bias;
  std::vector<float> attention_output_norm;  ///< of what attention adds, before it is added
  std::vector<float> mlp_output_norm;
  std::vector<float> sinks;  ///< per head
  PackedMatrix router;       ///< [experts, hidden]; empty: the MLP above
  std::vector<float> router_bias;
  std::vector<ExpertWeights> experts;
};

struct ModelWeights {
  PackedMatrix embedding;    ///< [vocab, hidden]
  PackedMatrix output_head;  ///< empty when tied to the embedding
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;

  const PackedMatrix& head() const { return output_head.outputs() > 0 ? output_head : embedding; }
};

/// A loaded model. Immutable, so it is handed around as `shared_ptr<const Model>`: several runners
/// of one process (`stator serve` with two workers) must not hold the weights twice, and none of
/// them is the natural owner.
struct Model {
  ModelConfig config;
  GenerationDefaults defaults;
  ModelWeights weights;
};

/// Loads a .gguf file (gguf_model.h), or of a folder config.json, generation_config.json (if any)
/// and the safetensors files. The weights are copied into the kernels' layout; no file stays
/// mapped. Errors name file and field or tensor: kNotFound (file), kCorrupt, kUnsupported, as the
/// parsers say; kCorrupt lists missing tensors and wrong shapes.
Result<std::shared_ptr<const Model>> load_model(const std::string& folder);

/// The same from tensors in memory; they are not referenced afterwards.
Result<std::shared_ptr<const Model>> make_model(ModelConfig config, GenerationDefaults defaults,
                                                const TensorMap& tensors);

/// A tensor a model of this shape must have.
struct ExpectedTensor {
  std::string name;
  std::vector<uint64_t> shape;
};
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

}  // namespace stator::engine::cpu
