// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/api/adapter.h"
#include "stator/engine/cpu/model_config.h"
#include "stator/engine/cpu/packed_matrix.h"
#include "stator/engine/cpu/safetensors.h"

namespace stator::engine::cpu {

/// Projections of a layer that an adapter may change: kRouter chooses a token's experts.
enum class LoraTarget : uint8_t { kQuery, kKey, kValue, kOutput, kRouter, kGate, kUp, kDown };
inline constexpr size_t kLoraTargets = 8;

/// What one projection gets: out += scale · B (A x). Empty where the adapter leaves it alone.
struct LoraPair {
  PackedMatrix a;  ///< [rank, inputs]
  PackedMatrix b;  ///< [outputs, rank]
  float scale = 0;
};

using LoraPairs = std::array<LoraPair, kLoraTargets>;

/// What the embedding of a token gets: scale · B · (column `token` of A).
struct LoraEmbedding {
  std::vector<float> a;  ///< [vocabulary, rank padded to whole vectors]; empty: nothing
  PackedMatrix b;        ///< [hidden, rank]
  float scale = 0;
};

/// A LoRA adapter for one model. Immutable; shared by the sequences that use it.
struct LoraAdapter final : Adapter {
  std::string_view identity() const override { return digest; }

  std::string digest;  ///< of configuration and tensors, in hexadecimal
  uint32_t rank = 0;   ///< the largest
  uint64_t bytes = 0;  ///< of its matrices
  std::vector<LoraPairs> layers;
  std::vector<std::vector<LoraPairs>> experts;  ///< by layer; empty where none is adapted
  LoraEmbedding embedding;
  LoraPair head;  ///< of the logits
};

/// Reads a PEFT folder: adapter_config.json and adapter_model.safetensors. Understood are r,
/// lora_alpha, use_rslora, target_modules, rank_pattern and alpha_pattern; projections of layers
/// and of experts, routers, the embedding and the head. Refused by name:
/// kNotFound (file), kCorrupt (a matrix whose rank or sizes do not fit, one half without the
/// other), kUnsupported (DoRA, biases, whole modules, other ones, a rank above `rank_max`).
Result<std::shared_ptr<const LoraAdapter>> load_lora(const std::string& folder,
                                                     const ModelConfig& model, uint32_t rank_max);
/// The same from the text of the configuration and tensors in memory.
Result<std::shared_ptr<const LoraAdapter>> make_lora(std::string_view config_json,
                                                     const TensorMap& tensors,
                                                     const ModelConfig& model, uint32_t rank_max);

}  // namespace stator::engine::cpu
