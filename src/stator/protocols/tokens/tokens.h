// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/protocols/protocol.h"

namespace stator::protocols::tokens {

// Token ids in, token ids out, for those who keep the text themselves (training by reinforcement,
// gateways with a tokenizer). Prompts are taken as they are, no template; answers are not parsed.
// docs/reference/token_api.md lists the fields.

/// vLLM's `POST /inference/v1/generate`.
extern const Protocol kVllm;
/// SGLang's `POST /generate`.
extern const Protocol kSglang;

/// For both: OpenAI's error shape, which both servers have.
void append_error(std::string& out, const api::ErrorBody& body, const api::ErrorStyle& style);

}  // namespace stator::protocols::tokens
