// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/protocols/protocol.h"

namespace stator::protocols::tokens {

// Token ids in, token ids out, for those who keep the text themselves (training by reinforcement,
// gateways with a tokenizer). Prompts are taken as they are, no template; answers are not parsed.
// docs/reference/token_api.md lists the fields.

/// vLLM's `POST /inference/v1/generate`.
extern const Protocol kVllm;
/// SGLang's `POST /generate`.
extern const Protocol kSglang;

/// text-generation-inference's `POST /generate` (told from SGLang's by its `inputs`),
/// `/generate_stream` and `/`.
extern const Protocol kTgi;
bool is_tgi_body(std::string_view body, uint32_t depth_max);
api::ApiResult<Reading> read_tgi(std::string& body, const ReadOptions& options);

/// For all: OpenAI's error shape, which both servers have.
void append_error(std::string& out, const api::ErrorBody& body, const api::ErrorStyle& style);

}  // namespace stator::protocols::tokens
