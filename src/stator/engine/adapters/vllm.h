// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "stator/engine/adapters/dialect.h"
#include "stator/engine/adapters/raise.h"

namespace stator::engine::adapters {

// vLLM over HTTP, 0.8 to 0.32. What it sends and wants is checked against recorded traffic.

/// Prompts go over storage that giver and taker see, where they are found by content.
bool is_shared_storage(const EngineFacts& facts);

/// The body of /v1/completions with a prompt of token ids.
Result<EngineCall> lower_vllm_completion(const inference::EngineRequest& request,
                                         const EngineFacts& facts);
/// The body of /inference/v1/generate (servers started with --enable-scale-out).
/// With media: /v1/chat/completions, where the server renders the prompt and says the ids of its
/// answer. Its events are read as those of lower_vllm_generate().
Result<EngineCall> lower_vllm_chat(const inference::EngineRequest& request,
                                   const EngineFacts& facts);
Result<EngineCall> lower_vllm_generate(const inference::EngineRequest& request,
                                       const EngineFacts& facts);

std::unique_ptr<EventRaiser> make_vllm_completion_raiser(const inference::EngineRequest& request);
std::unique_ptr<EventRaiser> make_vllm_generate_raiser(const inference::EngineRequest& request);

EngineCall lower_vllm_control(const Control& control);
Status read_vllm_control(const Control& control, int status, std::string_view body);

/// "token_id:<n>", as vLLM spells tokens when asked to. Nothing for other text.
std::optional<TokenId> parse_token_text(std::string_view text);

}  // namespace stator::engine::adapters
