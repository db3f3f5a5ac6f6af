// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/cpu/model.h"
#include "stator/engine/cpu/pooling/pooling_files.h"

namespace stator::engine::cpu {

/// Between the two products of a layer's feed-forward part.
enum class EncoderActivation : uint8_t { kGelu, kGeluTanh, kRelu };

/// The shape of an encoder of the BERT family, as config.json says it. After parse_encoder_config
/// every field is within the limits the engine relies on.
struct EncoderConfig {
  uint32_t vocab_size = 0;
  uint32_t layers = 0;
  uint32_t hidden_size = 0;        ///< a multiple of 16
  uint32_t intermediate_size = 0;  ///< a multiple of 16
  uint32_t heads = 0;              ///< divides hidden_size into multiples of 16
  uint32_t position_rows = 0;      ///< of the table
  uint32_t position_offset = 0;    ///< row of the first token
  uint32_t types = 0;              ///< token types; pairs differ where there are two
  uint32_t labels = 0;             ///< of the classification head; 0: there is none
  float epsilon = 1e-12F;
  EncoderActivation activation = EncoderActivation::kGelu;
  bool is_roberta = false;  ///< names and shape of the classification head

  uint32_t head_dim() const { return hidden_size / heads; }
  uint32_t tokens_max() const { return position_rows - position_offset; }
};

/// kUnsupported or kCorrupt, naming the field.
Result<EncoderConfig> parse_encoder_config(std::string_view config_json, const PoolingSpec& spec);

/// Tensors that a checkpoint of this shape must have, by the names of a bare encoder; in a
/// classifier's they are prefixed by "bert." or "roberta.".
std::vector<ExpectedTensor> expected_encoder_tensors(const EncoderConfig& config);
/// Those of the classification head, as they are named.
std::vector<ExpectedTensor> expected_head_tensors(const EncoderConfig& config);

}  // namespace stator::engine::cpu
