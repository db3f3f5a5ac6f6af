// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/frontend/model_assets.h"
#include "stator/tokenizer/vocabulary_facts.h"

namespace stator::frontend {

/// What there is to know of a model's folder for those who only compute: no text is handled.
struct ModelFacts {
  tokenizer::VocabularyFacts vocabulary;
  std::vector<TokenId> eos_token_ids;  ///< as those of ModelAssets, and so the rest
  uint32_t architectural_context = 0;
  inference::MediaKinds media;  ///< what the model has parts for beside text
  std::string checksum;
};

ModelFacts facts_of(const ModelAssets& assets);

/// The facts of what load_model_assets() reads, with the same errors, in a tenth of the time and
/// with nothing kept in memory.
Result<ModelFacts> load_model_facts(const std::string& model_dir,
                                    const std::string& chat_template = {});

}  // namespace stator::frontend
