// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template::detail {

// Between what clients send and what templates expect. All change the given values in place and
// throw Failure where the shape is wrong.

/// Roles, content, reasoning and tool-call arguments of every message, as `traits` asks.
void adapt_messages(const Value& messages, const TemplateTraits& traits, Arena& arena);
enum class ToolSchemas : uint8_t { kAsSent, kAdded };

/// An array of objects, that is all.
void check_tools(const Value& tools);
/// Whether a function has no parameters; kAdded gives those an empty object schema.
bool adapt_tools(const Value& tools, ToolSchemas schemas, Arena& arena);

/// continue_final_message as Hugging Face does it: a mark behind the last message's content shows
/// where to cut the prompt.
/// Answers the text that is continued.
std::string_view mark_final_message(const Value& messages, Arena& arena);
/// Throws when `prompt` does not contain `final_text` and the mark.
void cut_at_mark(RenderedPrompt& prompt, std::string_view final_text);

/// The time that the option strftime_now_override (RFC 3339 text or Unix seconds) sets; else `now`.
WallTime overridden_time(const Value& extra, WallTime now);

}  // namespace stator::chat_template::detail
