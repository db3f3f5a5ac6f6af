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
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,
  kDynamic,  ///< as kNone for texts within original_positions, the slower the longer beyond
  kLlama3,
  kYarn,
  kLongRope,
  kFactors,  ///< every frequency divided by its own factor (GGUF's rope_freqs)
};

/// Rotary position embedding. Fields not used by `scaling` keep their defaults.
struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;     ///< llama3
  double high_freq_factor = 4.0;    ///< llama3
  uint32_t original_positions = 0;  ///< trained context, llama3, yarn and longrope
  uint32_t dimensions = 0;          ///< of a head that are rotated, from its first; 0 = all
  bool interleaved = false;         ///< pairs are (2i, 2i + 1) rather than (i, i + dimensions / 2)
  double beta_fast = 32.0;          ///< yarn
  double beta_slow = 1.0;           ///< yarn
  bool truncate = true;             ///< yarn: borders are whole dimensions
  float amplitude = 1.0F;           ///< of cosines and sines: yarn and longrope
  /// Longrope: what divides each frequency for positions below original_positions, and from there
  /// on. (One position has one factor, so that cached keys stay what they are.) kFactors: near.
  std::vector<float> near_factors;
  std::vector<float> far_factors;
};

/// What stands between the two halves of an MLP.
enum class Activation : uint8_t {
  kSilu,           ///< silu(gate) · up
  kGelu,           ///< gelu(gate) · up, the tanh form
  kClampedSwiglu,  ///< gpt-oss: min(gate, l) · σ(1.702 · gate) · (clamp(up, ±l) + 1)
};

/// Mixtures of experts: which layers have them and how a token chooses.
struct ExpertConfig {
  uint32_t count = 0;  ///< 0: no layer has experts
  uint32_t per_token = 0;
  uint32_t inner_size = 0;         ///< of one expert
  bool softmax_first = true;       ///< over all experts, before choosing; else over the chosen
  bool normalize = false;          ///< the chosen weights add up to 1 (with softmax_first)
  std::vector<bool> dense_layers;  ///< per layer: a plain MLP instead
};

/// The shape of a decoder-only transformer of the Llama family, as config.json says it.
/// After parse_model_config every field is within the limits the engine relies on.
struct ModelConfig {
  std::string architecture;
  uint32_t vocab_size = 0;
  uint32_t layers = 0;
  uint32_t hidden_size = 0;
  uint32_t intermediate_size = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  ///< divides heads
  uint32_t head_dim = 0;  ///< even
  uint32_t max_positions = 0;
  float rms_norm_epsilon = 1e-6F;
  bool tied_embeddings = false;
  bool query_key_norm = false;        ///< Qwen3
  bool joint_query_key_norm = false;  ///< of all heads together (OLMo-2)
  bool qkv_bias = false;
  bool output_bias = false;  ///< of the attention's output projection
  bool mlp_bias = false;
  bool query_key_value_fused = false;  ///< one tensor in the file (Phi-3)
  bool gate_up_fused = false;          ///< one tensor in the file (Phi-3, GLM)
  /// GGUF's order of the rows of q and k in a head: (i, i + head_dim / 2) stand side by side.
  bool query_key_paired = false;
  bool unit_norms = false;       ///< the file's norm weights are less 1 (Gemma)
  bool input_norms = true;       ///< attention and MLP see the normed stream (OLMo-2: as it is)
  bool output_norms = false;     ///< attention's and MLP's outputs are normed before they are added
  bool attention_sinks = false;  ///< gpt-oss: one more score per head, without a value
  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0F;
  float residual_scale = 1.0F;  ///< of what attention and MLP add
  float logit_scale = 1.0F;
  float attention_scale = 0;    ///< of query · key; 0 = 1 / √head_dim
  float attention_softcap = 0;  ///< 0 = none
  float logit_softcap = 0;      ///< 0 = none
  float swiglu_limit = 7.0F;
  ExpertConfig experts;
  /// Per layer: keys a query sees, itself included; 0 = all before it.
  std::vector<uint32_t> sliding_window;
  RopeConfig rope;
  std::optional<RopeConfig> window_rope;  ///< of layers with a sliding window, if another
  std::vector<bool> unrotated;            ///< per layer: without positions; empty: none is
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

/// Architectures Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3Moe, Gemma, Gemma2, Gemma3, Phi3, Glm,
/// Glm4, GptOss, Granite, SmolLM3, Olmo2, Olmo3, Olmoe, SeedOss and Ernie4_5, each …ForCausalLM.
/// kCorrupt if the text is not such a file, kUnsupported (naming the field and what is supported)
/// for anything that would change the result and is not implemented: other architectures,
/// activations, RoPE types, quantised weights.
Result<ModelConfig> parse_model_config(std::string_view json);

/// `generation_json` may be empty (no such file); eos_token_id then comes from config.json.
Result<GenerationDefaults> parse_generation_defaults(std::string_view config_json,
                                                     std::string_view generation_json);

}  // namespace stator::engine::cpu
