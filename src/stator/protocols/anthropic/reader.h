// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/protocols/protocol.h"

namespace stator::protocols::anthropic {

/// The body of POST /v1/messages, and of /v1/messages/count_tokens if `options.only_counts`. Errors
/// name the field: kInvalidArgument (400), or kUnsupported (501) for what is known and not built.
api::ApiResult<Reading> read_messages(std::string& body, const ReadOptions& options);

/// The root keys that the reader knows; sorted.
std::vector<std::string_view> message_fields();

}  // namespace stator::protocols::anthropic
