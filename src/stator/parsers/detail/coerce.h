// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/parsers/tool_schemas.h"

namespace stator::parsers {

/// Appends the JSON value that bare text such as `42` stands for in a format without types.
///
/// The schema decides: string → the text itself, other types → JSON, else a Python literal, else
/// the text as a string. Several types are tried in their order, string last. Without a schema
/// (null, or one without types) text becomes a value only if writing that value gives the same
/// text again, so that `007`, `1.10` and `1e5` stay strings. Numbers keep their spelling.
void append_coerced(std::string& out, std::string_view text, const ValueSchema* schema);

}  // namespace stator::parsers
