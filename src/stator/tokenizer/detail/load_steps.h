// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/result.h"
#include "stator/tokenizer/decoder.h"
#include "stator/tokenizer/detail/json_fields.h"
#include "stator/tokenizer/model.h"
#include "stator/tokenizer/normalizer.h"
#include "stator/tokenizer/post_processor.h"
#include "stator/tokenizer/pre_tokenizer.h"

namespace stator::tokenizer {

// One section of tokenizer.json each. kCorrupt: malformed; kUnsupported: names the type.

Result<Normalizer> load_normalizer(Json root);
Result<PreTokenizer> load_pre_tokenizer(Json root);
Result<PostProcessor> load_post_processor(Json root);
Result<Decoder> load_decoder(Json root);

/// The views in the result live as long as the parsed document.
Result<ModelSpec> load_model(Json root);

}  // namespace stator::tokenizer
