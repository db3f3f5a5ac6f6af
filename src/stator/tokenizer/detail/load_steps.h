// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/tokenizer/decoder.h"
#include "stator/tokenizer/detail/json_fields.h"
#include "stator/tokenizer/detail/tables.h"
#include "stator/tokenizer/model.h"
#include "stator/tokenizer/normalizer.h"
#include "stator/tokenizer/pipeline.h"
#include "stator/tokenizer/post_processor.h"
#include "stator/tokenizer/pre_tokenizer.h"

namespace stator::tokenizer {

// One section of tokenizer.json each. kCorrupt: malformed; kUnsupported: names the type.

Result<Normalizer> load_normalizer(Json root);
Result<PreTokenizer> load_pre_tokenizer(Json root);
Result<PostProcessor> load_post_processor(Json root);
Result<Decoder> load_decoder(Json root);

/// kTooLarge: beyond kMaxTokenizerJsonBytes.
Status check_size(std::string_view tokenizer_json);

/// `load_pipeline` of a file that has been parsed already.
Result<std::unique_ptr<const Pipeline>> load_pipeline(Json root, std::string_view tokenizer_json,
                                                      const std::vector<AddedToken>& more_tokens,
                                                      Tables tables);

/// The views in the result live as long as the parsed document.
Result<ModelSpec> load_model(Json root, Tables tables);

}  // namespace stator::tokenizer
