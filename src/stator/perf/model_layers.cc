// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "stator/perf/detail/model_layers.h"

namespace stator::perf {
namespace {

using detail::ConfigFields;

constexpr uint32_t kLayersMax = 4096;

void append(std::vector<LayerGroup>& groups, const LayerGroup& layer, uint32_t count = 1) {
  for (LayerGroup& group : groups) {
    LayerGroup same = group;
    same.count = layer.count;
    if (same == layer) {
      group.count += count;
      return;
    }
  }
  groups.push_back(layer);
  groups.back().count = count;
}

/// One block of such models is either a mixer or a feed-forward network.
Result<LayerGroup> read_block(const ConfigFields& config, std::string_view field,
                              std::string_view word) {
  LayerGroup layer{.attention = AttentionKind::kNone, .ffn = FfnKind::kNone};
  if (word == "M" || word == "mamba") {
    layer.attention = AttentionKind::kLinear;
  } else if (word == "*" || word == "attention") {
    layer.attention = AttentionKind::kFull;
  } else if (word == "-" || word == "mlp") {
    layer.ffn = FfnKind::kDense;
  } else if (word == "E" || word == "moe") {
    layer.ffn = FfnKind::kMoe;
  } else {
    return config.fail(field, fmt::format("has a block '{}' that is not modelled", word));
  }
  return layer;
}

Status read_blocks(const ConfigFields& config, ModelConfig& model) {
  model.gemms_per_ffn = 2;
  if (const json::Value* pattern = config.find({"hybrid_override_pattern"})) {
    for (const char block : pattern->text()) {
      if (block != '|') {
        STATOR_TRY(const LayerGroup layer,
                   read_block(config, "hybrid_override_pattern", std::string_view(&block, 1)));
        append(model.groups, layer);
      }
    }
    return {};
  }
  for (const json::Value& block : config.find({"layers_block_type"})->elements()) {
    STATOR_TRY(const LayerGroup layer, read_block(config, "layers_block_type", block.text()));
    append(model.groups, layer);
  }
  return {};
}

/// Models that a search cut block by block: some have no attention, each its own width.
Status read_cut_blocks(const ConfigFields& config, ModelConfig& model) {
  constexpr double kRound = 256;
  for (const json::Value& block : config.find({"block_configs"})->elements()) {
    LayerGroup layer;
    const json::Value &attention = block.at("attention"), &ffn = block.at("ffn");
    const auto off = [](const json::Value& part) {
      return part.at("no_op").as_bool().value_or(false);
    };
    const auto plain = [](const json::Value& part) {
      return part.at("replace_with_linear").as_bool().value_or(false);
    };
    if (plain(attention) || plain(ffn)) {
      return config.fail("block_configs", "has 'replace_with_linear', which is not modelled");
    }
    if (off(attention)) {
      layer.attention = AttentionKind::kNone;
    } else {
      const uint64_t group = attention.at("n_heads_in_group").as_uint64().value_or(0);
      if (group == 0 || group > model.heads) {
        return config.fail("block_configs", "needs attention.n_heads_in_group");
      }
      layer.kv_heads = static_cast<uint32_t>(model.heads / group);
    }
    if (off(ffn)) {
      layer.ffn = FfnKind::kNone;
    } else {
      const double times = ffn.at("ffn_mult").as_double().value_or(0);
      if (!(times > 0 && times < 64)) {
        return config.fail("block_configs", "needs ffn.ffn_mult");
      }
      layer.intermediate = static_cast<uint32_t>(
          std::ceil(std::floor(2 * times * model.hidden / 3) / kRound) * kRound);
    }
    append(model.groups, layer);
  }
  return {};
}

Result<AttentionKind> kind_of_word(const ConfigFields& config, const ModelConfig& model,
                                   std::string_view word) {
  if (word == "full_attention" || word == "attention" || word == "global_attention" ||
      word == "hybrid") {
    return AttentionKind::kFull;
  }
  if (word == "sliding_attention" || word == "chunked_attention" || word == "local_attention") {
    return AttentionKind::kWindow;
  }
  if ((word == "linear_attention" || word == "mamba") && model.is_hybrid()) {
    return AttentionKind::kLinear;
  }
  return config.fail("layer_types", fmt::format("has '{}', which is not modelled", word));
}

/// Which attention layer `index` has where the file has a pattern for it, not a list.
Result<AttentionKind> kind_by_pattern(const ConfigFields& config, const ModelConfig& model,
                                      uint32_t index) {
  using enum AttentionKind;
  const json::Value* pattern = config.find({"sliding_window_pattern"});
  if (pattern != nullptr && pattern->is_string() && !pattern->text().empty()) {
    return pattern->text()[index % pattern->text().size()] == 'L' ? kWindow : kFull;
  }
  STATOR_TRY(const uint32_t every,
             config.size({"sliding_window_pattern"}, model.type.starts_with("gemma3") ? 6 : 0));
  if (every > 1) {
    return (index + 1) % every == 0 ? kFull : kWindow;
  }
  if (model.type == "gpt_oss" || model.type == "gemma2") {
    return index % 2 == 0 ? kWindow : kFull;
  }
  if (model.type.starts_with("llama4") && config.find({"attention_chunk_size"}) != nullptr) {
    return (index + 1) % 4 == 0 ? kFull : kWindow;
  }
  const bool windowed = (model.type == "mistral" || model.type == "starcoder2") &&
                        config.find({"sliding_window"}) != nullptr;
  return windowed ? kWindow : kFull;
}

Result<AttentionKind> attention_of_layer(const ConfigFields& config, const ModelConfig& model,
                                         uint32_t index) {
  using enum AttentionKind;
  const json::Value* types = config.find({"layer_types"});
  if (const json::Value* linear = config.find({"linear_attn_config"})) {  // counted from one
    const bool full = config.object("linear_attn_config").lists("full_attn_layers", index + 1);
    return !full && linear->is_object() ? kLinear : model.is_mla() ? kMla : kFull;
  }
  if (model.is_mla()) {
    return kMla;
  }
  if (types != nullptr && types->is_array() && index < types->size()) {
    return kind_of_word(config, model, types->elements()[index].text());
  }
  if (const auto window = config.at_layer("hybrid_layer_pattern", index)) {
    return *window != 0 ? kWindow : kFull;
  }
  if (!model.is_hybrid()) {
    return kind_by_pattern(config, model, index);
  }
  if (const auto softmax = config.at_layer("attn_type_list", index)) {
    return *softmax != 0 ? kFull : kLinear;
  }
  if (config.find({"attn_layer_indices"}) != nullptr) {
    return config.lists("attn_layer_indices", index) ? kFull : kLinear;
  }
  STATOR_TRY(const uint32_t period, config.size({"attn_layer_period"}, 0));
  STATOR_TRY(const uint32_t offset, config.size({"attn_layer_offset"}, 0));
  if (period > 0) {
    return index % period == offset ? kFull : kLinear;
  }
  STATOR_TRY(const uint32_t interval,
             config.size({"full_attention_interval", "layer_group_size"}, 0));
  return interval > 0 && (index + 1) % interval == 0 ? kFull : kLinear;
}

Result<FfnKind> ffn_of_layer(const ConfigFields& config, const ModelConfig& model, uint32_t index) {
  using enum FfnKind;
  if (!model.is_moe() || config.lists("mlp_only_layers", index)) {
    return kDense;
  }
  STATOR_TRY(
      const uint32_t dense,
      config.size({"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"}, 0));
  if (index < dense) {
    return kDense;
  }
  if (const auto is_moe = config.at_layer("moe_layer_freq", index)) {
    return *is_moe == 0 ? kDense : kMoe;
  }
  STATOR_TRY(const uint32_t period, config.size({"expert_layer_period"}, 0));
  STATOR_TRY(const uint32_t offset, config.size({"expert_layer_offset"}, 0));
  if (period > 1) {
    return index % period == offset ? kMoe : kDense;
  }
  STATOR_TRY(const uint32_t step,
             config.size({"interleave_moe_layer_step", "decoder_sparse_step"}, 1));
  return step < 2 || (index + 1) % step == 0 ? kMoe : kDense;
}

/// What layers of one kind of attention have for themselves.
Status read_shape(const ConfigFields& config, const ModelConfig& model, uint32_t index,
                  LayerGroup& layer) {
  if (layer.attention == AttentionKind::kWindow) {
    STATOR_TRY(layer.window, config.size({"sliding_window", "attention_chunk_size"}, 0));
    if (layer.window == 0) {
      return config.fail("sliding_window", "is missing, but layers use one");
    }
    STATOR_TRY(layer.heads, config.size({"swa_num_attention_heads"}, 0));
    STATOR_TRY(layer.kv_heads, config.size({"swa_num_key_value_heads"}, 0));
    STATOR_TRY(layer.head_dim, config.size({"swa_head_dim"}, 0));
    STATOR_TRY(layer.v_dim, config.size({"swa_v_head_dim"}, 0));
  } else if (layer.attention == AttentionKind::kFull) {
    STATOR_TRY(layer.kv_heads, config.size({"num_global_key_value_heads"}, 0));
    STATOR_TRY(layer.head_dim, config.size({"global_head_dim"}, 0));
    layer.shared_kv = layer.head_dim > 0 && config.flag("attention_k_eq_v");
    const ConfigFields sparse = config.object("sparse_attention_config");
    if (sparse.at_layer("sparse_attention_freq", index).value_or(0) != 0) {
      STATOR_TRY(const uint32_t blocks, sparse.need({"sparse_topk_blocks"}));
      STATOR_TRY(const uint32_t tokens, sparse.need({"sparse_block_size"}));
      layer.keys_max = blocks * tokens;
    }
  } else if (layer.attention == AttentionKind::kMla) {
    layer.keys_max = model.index_topk;
  }
  return {};
}

/// Keys of the whole context are kept only for every so many tokens, the last tokens' beside them.
Status read_compressed(const ConfigFields& config, ModelConfig& model) {
  STATOR_TRY(const uint32_t local, config.need({"sliding_window"}));
  for (uint32_t i = 0; i < model.layers; ++i) {
    const auto ratio = config.at_layer("compress_ratios", i).value_or(0);
    LayerGroup layer{.shared_kv = true};
    STATOR_TRY(layer.ffn, ffn_of_layer(config, model, i));
    if (ratio == 0) {
      layer.attention = AttentionKind::kWindow;
      layer.window = local;
    } else if (ratio <= kLayersMax) {
      layer.stride = static_cast<uint32_t>(ratio);
      layer.local = local;
      layer.keys_max = ratio <= 8 ? model.index_topk : 0;  // longer ones are all looked at
    } else {
      return config.fail("compress_ratios", "has a number above 4096");
    }
    append(model.groups, layer);
  }
  return {};
}

}  // namespace

Status read_layers(const ConfigFields& config, ModelConfig& model) {
  if (config.find({"hybrid_override_pattern"}) != nullptr ||
      (model.type == "nemotron_h" && config.find({"layers_block_type"}) != nullptr)) {
    return read_blocks(config, model);
  }
  if (const json::Value* blocks = config.find({"block_configs"});
      blocks != nullptr && blocks->is_array()) {
    return read_cut_blocks(config, model);
  }
  if (config.find({"compress_ratios"}) != nullptr) {
    return read_compressed(config, model);
  }
  if (model.type == "longcat_flash") {  // two of attention and of dense networks beside experts
    append(model.groups, {.attention = AttentionKind::kMla, .ffn = FfnKind::kDense},
           2 * model.layers);
    append(model.groups, {.attention = AttentionKind::kNone, .ffn = FfnKind::kMoe}, model.layers);
    return {};
  }
  for (uint32_t i = 0; i < model.layers; ++i) {
    LayerGroup layer;
    STATOR_TRY(layer.attention, attention_of_layer(config, model, i));
    STATOR_TRY(layer.ffn, ffn_of_layer(config, model, i));
    STATOR_CHECK(read_shape(config, model, i, layer));
    append(model.groups, layer);
  }
  return {};
}

}  // namespace stator::perf
