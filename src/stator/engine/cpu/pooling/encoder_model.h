// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/cpu/packed_matrix.h"
#include "stator/engine/cpu/pooling/encoder_config.h"
#include "stator/engine/cpu/safetensors.h"

namespace stator::engine::cpu {

/// y = W x + b.
struct EncoderLinear {
  PackedMatrix weight;
  std::vector<float> bias;  ///< padded with zeros to whole vectors
};

struct EncoderNorm {
  std::vector<float> weight;
  std::vector<float> bias;
};

struct EncoderLayer {
  EncoderLinear query_key_value;  ///< query over key over value
  EncoderLinear attention_output;
  EncoderNorm attention_norm;
  EncoderLinear intermediate;
  EncoderLinear output;
  EncoderNorm output_norm;
};

/// A loaded encoder. Immutable; shared by runners of one process, as Model.
struct EncoderModel {
  EncoderConfig config;
  PoolingSpec spec;
  PackedMatrix words;
  PackedMatrix positions;
  PackedMatrix types;
  EncoderNorm embedding_norm;
  std::vector<EncoderLayer> layers;
  EncoderLinear head_dense;   ///< of classifiers: before tanh
  EncoderLinear head_output;  ///< of classifiers
};

/// From tensors in memory, which are not referenced afterwards. kCorrupt lists missing tensors and
/// wrong shapes; kUnsupported for a dtype.
Result<std::shared_ptr<const EncoderModel>> make_encoder(EncoderConfig config, PoolingSpec spec,
                                                         const TensorMap& tensors);

}  // namespace stator::engine::cpu
