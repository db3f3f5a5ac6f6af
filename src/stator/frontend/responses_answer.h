// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/frontend/answer.h"
#include "stator/protocols/responses/responses.h"

namespace stator::frontend {

/// The echo of a Responses request; null for any other.
const protocols::responses::ResponsesEcho* responses_echo(const AnswerSpec& spec);
/// What stands in its response object from the beginning.
api::ResponseFrame response_frame(const AnswerSpec& spec);
/// The entry that its request leaves, without output.
responses::StoredResponse response_entry(const AnswerSpec& spec);

/// Writes a response: as events, as one body, or (in the background) as events to whoever follows.
/// With `spec.responses` it is in that store before the client sees its end, if the request says
/// so.
std::unique_ptr<Answer> make_responses_answer(AnswerSpec spec, net::HttpExchange& exchange,
                                              const tokenizer::Tokenizer& tokenizer,
                                              net::ByteBudget* budget);

}  // namespace stator::frontend
