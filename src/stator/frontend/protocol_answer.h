// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/frontend/answer.h"

namespace stator::frontend {

/// An answer that is written by `spec.protocol`, as a stream or as one body. It has one choice.
std::unique_ptr<Answer> make_protocol_answer(AnswerSpec spec, net::HttpExchange& exchange,
                                             const tokenizer::Tokenizer& tokenizer,
                                             net::ByteBudget* budget);

}  // namespace stator::frontend
