// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/engine/adapters/dialect.h"
#include "stator/json/writer.h"
#include "stator/structured/lower.h"

namespace stator::engine::adapters {

// What the lowerings of all engines share.

/// Whether an engine with these traits can do what `request` asks. kInvalidArgument for a request
/// no engine takes (empty prompt, token outside the vocabulary: some engines die of those), and
/// kUnsupported, naming option and engine, for what this one cannot honour. An answer that goes on
/// where another worker left it (`generated` > 0) is refused where the new engine could not know
/// what was said so far: presence and frequency penalties, structured output.
Status check_request(const inference::EngineRequest& request, const Traits& traits,
                     const EngineFacts& facts, uint32_t vocab_size);

/// Output tokens to ask for: what is left of max_tokens, within the context.
uint32_t tokens_left(const inference::EngineRequest& request, const EngineFacts& facts);
/// The same for min_tokens.
uint32_t min_tokens_left(const inference::EngineRequest& request);
/// Tokens that end the answer: the client's, and the model's unless it ignores them. Sorted,
/// unique.
std::vector<TokenId> stop_tokens(const inference::EngineRequest& request);
/// Whether `token` ends the answer by EOS or stop token.
bool is_stop_token(const inference::StopConditions& stop, TokenId token);

/// Whether it ends it because the client asked for that token, rather than as the model's EOS.
bool is_client_stop(const inference::StopConditions& stop, TokenId token);

/// "st-<request>-<attempt>" in hex: the name under which engines log it. Both halves of a handed
/// over request have one name, "st-h<handoff>".
std::string request_name(const inference::EngineRequest& request);
void write_tokens(json::Writer& json, std::span<const TokenId> tokens);
/// {"<id>": bias}; some engines want pairs, see their own files.
void write_logit_bias(json::Writer& json, const inference::SamplingParams& sampling);

/// The members that make `dialect` follow request.structured_outputs; none if it is empty.
Result<std::vector<structured::EngineField>> lower_structured(
    const inference::EngineRequest& request, structured::Dialect dialect);
void write_fields(json::Writer& json, std::span<const structured::EngineField> fields,
                  structured::EngineField::Place place);

/// The call with what travels beside the work as headers: traceparent, tracestate and the client's
/// metadata (x-dynamo-meta-*). What no header can carry is left out. `context` may be null.
EngineCall with_context(EngineCall call, const inference::RequestContext* context);

}  // namespace stator::engine::adapters
