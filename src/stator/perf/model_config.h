// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::perf {

enum class AttentionKind : uint8_t {
  kNone,    ///< a block without attention
  kFull,    ///< grouped queries over the whole context
  kWindow,  ///< over the last `window` tokens
  kMla,     ///< multi-head latent attention
  kLinear,  ///< a state of fixed size: gated delta net, Mamba
};
enum class FfnKind : uint8_t { kNone, kDense, kMoe };

/// Layers that are alike. Sizes that are 0 are those of the model.
struct LayerGroup {
  uint32_t count = 0;
  AttentionKind attention = AttentionKind::kFull;
  FfnKind ffn = FfnKind::kDense;
  uint32_t window = 0;  ///< tokens, of kWindow
  uint32_t heads = 0, kv_heads = 0, head_dim = 0, v_dim = 0;
  uint32_t intermediate = 0;  ///< of a dense network
  bool shared_kv = false;     ///< keys are the values, too
  uint32_t keys_max = 0;      ///< an indexer picks so many of the context; 0: all are looked at
  uint32_t stride = 1;        ///< so many tokens of the context are one key
  uint32_t local = 0;         ///< and the last so many have one each
  friend bool operator==(const LayerGroup&, const LayerGroup&) = default;
};

/// What a model computes, from the config.json of its checkpoint.
struct ModelConfig {
  std::string name;
  std::string type;  ///< model_type
  uint32_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  uint32_t intermediate = 0;   ///< of dense layers
  uint32_t context_max = 0;    ///< 0: not said
  uint32_t gemms_per_ffn = 3;  ///< 3: gated, 2: not
  // Mixture of experts; experts = 0: none.
  uint32_t experts = 0, experts_per_token = 0, expert_intermediate = 0, shared_intermediate = 0;
  uint32_t expert_hidden = 0;  ///< what experts work on, where it is narrower than `hidden`
  // Multi-head latent attention.
  uint32_t q_lora = 0, kv_lora = 0, qk_nope = 0, qk_rope = 0, v_dim = 0;
  // Queries and outputs of low rank without latent keys: q_lora, and o_lora in each of o_groups.
  uint32_t o_lora = 0, o_groups = 1;
  // Sparse attention: an indexer picks `index_topk` tokens of the context. 0: none.
  uint32_t index_topk = 0, index_heads = 0, index_dim = 0;
  // Linear attention: heads and sizes of keys and values; the state is their product.
  uint32_t linear_key_heads = 0, linear_value_heads = 0, linear_key_dim = 0, linear_value_dim = 0;
  bool output_gate = false;  ///< queries come twice as wide
  std::string quantization;  ///< quant_method of the checkpoint; empty: none
  std::vector<LayerGroup> groups;

  bool is_moe() const { return experts > 0; }
  double expert_width() const { return expert_hidden > 0 ? expert_hidden : hidden; }
  bool is_mla() const { return kv_lora > 0; }
  bool is_hybrid() const { return linear_value_heads > 0; }
};

/// kInvalidArgument names the file and the field that is missing, wrong or of a kind that is not
/// modelled (`model_type`, `layer_types`).
Result<ModelConfig> parse_model_config(std::string_view json, std::string_view name);
/// `path` is a config.json, its folder, or the name of a model of the catalogue ("Qwen/Qwen3-32B").
Result<ModelConfig> read_model_config(const std::string& path);
/// By a name as on the Hugging Face hub; suffixes of precision and tuning do not matter ("-FP8",
/// "-Instruct"). kNotFound says so.
Result<ModelConfig> find_model(std::string_view name);

}  // namespace stator::perf
