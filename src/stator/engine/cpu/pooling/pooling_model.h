// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/cpu/model.h"
#include "stator/engine/cpu/pooling/encoder_model.h"
#include "stator/engine/cpu/pooling/pooling_files.h"

namespace stator::engine::cpu {

/// A model that gives vectors, classes or scores: an encoder, or a decoder whose hidden states are
/// pooled. Immutable; shared by runners of one process, as Model.
struct PoolingModel {
  PoolingSpec spec;
  std::shared_ptr<const EncoderModel> encoder;  ///< null: a decoder
  std::shared_ptr<const Model> decoder;         ///< null: an encoder
  std::vector<float> decoder_head;  ///< of classifying decoders: [labels, hidden], no bias

  uint32_t vocab_size() const;
  uint32_t hidden_size() const;
  /// Tokens of a sequence, as far as files say.
  uint32_t tokens_max() const;
};

/// Reads a model folder. None: the folder's model generates, and is to (`wanted` as in
/// parse_pooling_spec). Errors name file and field or tensor.
Result<std::shared_ptr<const PoolingModel>> load_pooling_model(const std::string& folder,
                                                               std::string_view wanted);

}  // namespace stator::engine::cpu
