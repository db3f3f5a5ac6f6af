// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"

namespace stator::engine::cpu {

/// How positions are stretched beyond the trained context.
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

/// Rotary position embedding. Fields not used by `scaling` keep their defaults.
struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;     ///< llama3
  double high_freq_factor = 4.0;    ///< llama3
  uint32_t original_positions = 0;  ///< trained context, llama3
};

/// The shape of a decoder-only transformer of the Llama family, as config.json says it.
/// After parse_model_config every field is within the limits the engine relies on.
struct ModelConfig {
  std::string architecture;
  uint32_t vocab_size = 0;
  uint32_t layers = 0;
  uint32_t hidden_size = 0;        ///< a multiple of 16
  uint32_t intermediate_size = 0;  ///< a multiple of 16
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  ///< divides heads
  uint32_t head_dim = 0;  ///< a multiple of 16
  uint32_t max_positions = 0;
  float rms_norm_epsilon = 1e-6F;
  bool tied_embeddings = false;
  bool query_key_norm = false;  ///< Qwen3
  bool qkv_bias = false;
  bool output_bias = false;  ///< of the attention's output projection
  bool mlp_bias = false;
  /// Per layer: keys a query sees, itself included; 0 = all before it.
  std::vector<uint32_t> sliding_window;
  RopeConfig rope;
};

/// What generation_config.json recommends; what is absent stays unset.
struct GenerationDefaults {
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

/// Architectures LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM.
/// kCorrupt if the text is not such a file, kUnsupported (naming the field and what is supported)
/// for anything that would change the result and is not implemented: other architectures,
/// activations, RoPE types, quantised weights.
Result<ModelConfig> parse_model_config(std::string_view json);

/// `generation_json` may be empty (no such file); eos_token_id then comes from config.json.
Result<GenerationDefaults> parse_generation_defaults(std::string_view config_json,
                                                     std::string_view generation_json);

}  // namespace stator::engine::cpu
