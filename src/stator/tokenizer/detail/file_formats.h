// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/tokenizer/detail/tables.h"
#include "stator/tokenizer/pipeline.h"

namespace stator::tokenizer {

/// Vocabulary files that are not a tokenizer.json. Errors of all: kCorrupt (truncated,
/// inconsistent), kUnsupported (a kind we do not have, named).
using PipelineResult = Result<std::unique_ptr<const Pipeline>>;

/// Lines "<base64 of the bytes> <rank>"; the rank is the id. Which expression splits the text is
/// not in the file: it follows from `config_json` (model_type) or else from the vocabulary's size.
/// `declared` has the special tokens.
PipelineResult load_tiktoken(std::string_view file, std::string_view config_json,
                             const std::vector<AddedToken>& declared, Tables tables);

/// Mistral's tekken.json.
PipelineResult load_tekken(std::string_view file, Tables tables);

/// The metadata of a GGUF file: its first bytes suffice. kTooLarge: they do not; pass more.
PipelineResult load_gguf(std::string_view file, Tables tables);

/// SentencePiece's tokenizer.model: small, so always with all tables.
PipelineResult load_sentencepiece(std::string_view file);

}  // namespace stator::tokenizer
