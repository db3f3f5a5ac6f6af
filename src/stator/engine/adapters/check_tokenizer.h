// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/core/result.h"
#include "stator/engine/adapters/adapter_service.h"
#include "stator/engine/adapters/dialect.h"

namespace stator::engine::adapters {

/// Asks the engine for the token ids of a sentence and compares them with ours: a MODEL that is not
/// the one the engine loaded gives 200 and garbage. kInvalidArgument, with both lists, if they
/// differ; fine where the engine cannot be asked (TensorRT-LLM, OpenAI-compatible servers, a server
/// that answers something else). Blocking: at start only.
Status check_tokenizer(const AdapterConfig& config, const EngineFacts& facts,
                       const tokenizer::Tokenizer& tokenizer);

/// The comparison alone: `answer` is the body of the engine's 200. Pure.
Status compare_token_ids(std::string_view answer, const tokenizer::Tokenizer& tokenizer);

}  // namespace stator::engine::adapters
