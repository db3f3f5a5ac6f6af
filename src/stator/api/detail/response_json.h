// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/api/response.h"
#include "stator/json/writer.h"

namespace stator::api {

// Pieces that stream chunks and whole bodies share. Each writes one value.

/// {"prompt_tokens",…}: the details are always there, so clients need no case distinction.
void write_usage(json::Writer& json, const Usage& usage);
/// "stop" … or null.
void write_finish(json::Writer& json, ChoiceFinish finish);
/// {"content":[…],"refusal":null} or null.
void write_chat_logprobs(json::Writer& json, const Logprobs& logprobs,
                         const ResponseOptions& options);
/// {"tokens","token_logprobs","top_logprobs","text_offset"} or null. top_logprobs maps text to
/// probability, sampled token included; of candidates with equal text the likeliest stays.
void write_completion_logprobs(json::Writer& json, const Logprobs& logprobs,
                               const ResponseOptions& options);
/// [1,2,…]
void write_token_ids(json::Writer& json, std::span<const TokenId> ids);
/// "id","object","created","model": members at the head of every answer.
void write_identity(json::Writer& json, const ResponseIdentity& identity, std::string_view object);

}  // namespace stator::api
