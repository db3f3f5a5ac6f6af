// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stator/core/result.h"
#include "stator/tokenizer/pipeline.h"

namespace stator::tokenizer {

/// What every file format is read into. The views in `model` must live until the pipeline is made.
struct PipelineParts {
  ModelSpec model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  std::vector<AddedToken> added_tokens;  ///< of equal contents the last counts
  /// Added tokens that the vocabulary does not have are numbered behind it in order, whatever ids
  /// they declare: the reference does so with a tokenizer.json.
  bool numbers_added_tokens = false;
  /// The texts of added tokens with `normalized` are so already.
  bool added_texts_are_normalized = false;
  std::vector<AddedToken> declared_tokens;  ///< from files beside; added if their content is not
  uint64_t fingerprint = 0;
};

/// kCorrupt: the parts contradict each other.
Result<std::unique_ptr<const Pipeline>> assemble_pipeline(PipelineParts parts);

}  // namespace stator::tokenizer
