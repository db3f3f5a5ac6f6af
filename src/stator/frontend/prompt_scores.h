// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/frontend/generation.h"
#include "stator/protocols/protocol.h"

namespace stator::frontend {

// What a plan asks of engines so that log-probabilities can be shown, or decide.

/// `echo` with `logprobs`: the answer begins with the prompt's. `prompt_logprobs`: they stand
/// beside it. Engines know one number of alternatives, so the larger wish goes to them. Refused:
/// what the model's engine does not report, and prompts whose answer would be too large.
api::ApiStatus apply_prompt_logprobs(GenerationPlan& plan, std::optional<uint32_t> alternatives);

/// Other protocols than OpenAI's (null) have no place for them but nvext, if that.
api::ApiStatus check_prompt_logprobs(const api::GenerateOptions& options,
                                     const protocols::Protocol* protocol);

/// More choices are generated than answered: their log-probabilities decide.
void apply_best_of(GenerationPlan& plan, uint32_t best_of);

}  // namespace stator::frontend
