// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/api/field_reader.h"
#include "stator/api/request.h"

namespace stator::protocols::anthropic {

/// The value of `tools`: {"name","description","input_schema"} → OpenAI's functions, in `chat`.
/// Tools that the server would have to run, or whose schema only Anthropic's models know, are
/// refused. Returns the seconds that a tool's cache_control asks for; 0: none has one.
uint32_t read_tools(api::FieldReader& in, const api::Path& path, api::ChatInput& chat);

/// The value of `tool_choice`; rules that need the tools are checked with check_tool_choice.
void read_tool_choice(api::FieldReader& in, const api::Path& path, api::ChatRequest& request);
void check_tool_choice(api::FieldReader& in, const api::ChatRequest& request);

}  // namespace stator::protocols::anthropic
