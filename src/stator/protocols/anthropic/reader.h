// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/protocols/protocol.h"

namespace stator::protocols::anthropic {

/// The body of POST /v1/messages, and of /v1/messages/count_tokens if `options.only_counts`. Errors
/// name the field: kInvalidArgument (400), or kUnsupported (501) for what is known and not built.
api::ApiResult<Reading> read_messages(std::string& body, const ReadOptions& options);

}  // namespace stator::protocols::anthropic
