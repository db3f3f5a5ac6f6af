// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "stator/core/result.h"
#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/raise.h"
#include "stator/inference/request.h"

namespace stator::engine::adapters {

// Requests for vectors, classes and scores, in the words of engine servers:
//
//   task         vLLM             SGLang           llama-server     OpenAI-compatible
//   embed        /v1/embeddings   /v1/embeddings   /v1/embeddings   /v1/embeddings (texts)
//   token_embed  /pooling
//   classify     /classify
//   score        /score           /v1/rerank       /v1/rerank       /v1/rerank
//
// Rerankers that take one query get pairs only as long as their first texts are the same.

/// What a server of this kind can do, by what it told and by what the operator says it is for
/// (`task`: "auto", "generate", "embed", "classify" or "score").
inference::PoolAbility pool_ability(std::string_view kind, const EngineFacts& facts,
                                    std::string_view task);

/// kInvalidArgument for what a server of this kind has no words for.
Result<EngineCall> lower_pool(const inference::EngineRequest& request, std::string_view kind,
                              const EngineFacts& facts);

/// Reads the answer to that call.
std::unique_ptr<EventRaiser> make_pool_raiser(const inference::EngineRequest& request);

}  // namespace stator::engine::adapters
