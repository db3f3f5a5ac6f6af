// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/api/error_body.h"

namespace stator::protocols::anthropic {

/// "invalid_request_error", "not_found_error", "overloaded_error" …
std::string_view error_type(int status);

/// {"type":"error","error":{"type","message"}}
void append_error(std::string& out, const api::ErrorBody& body, const api::ErrorStyle& style);
/// The same from a status and a text.
void append_error(std::string& out, std::string_view type, std::string_view message);

}  // namespace stator::protocols::anthropic
