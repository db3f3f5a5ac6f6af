// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/api/field_reader.h"
#include "stator/api/request.h"

namespace stator::api {

/// Reads one root key that belongs to the conversation (messages, tools, template arguments) into
/// `chat`, or answers false for any other key. Shared by chat completions and /tokenize.
struct ChatInputReader {
  FieldReader& in;
  ChatInput& chat;
  uint32_t depth_max;  ///< for JSON inside strings (tool call arguments)
  std::optional<bool> add_generation_prompt = {};
  bool has_media = false;           ///< some message has content parts that are no text
  bool has_thinking_parts = false;  ///< some message has content parts that are reasoning
};

bool read_chat_field(ChatInputReader& reader, std::string_view key, const Path& path);

/// After the last field: rules between fields, and the default of add_generation_prompt.
void finish_chat_input(ChatInputReader& reader);

/// The value of `messages`: checks every message and keeps the text.
void read_messages(ChatInputReader& reader, const Path& path);
/// The value of `tools`: checks every tool, keeps the text and the names.
void read_tools(ChatInputReader& reader, const Path& path);

bool is_tool_name(std::string_view name);
/// What a name that is none violates.
std::string tool_name_rule(std::string_view name);

/// Whether servers other than this one run tools of that type, or take it from clients.
bool is_builtin_tool(std::string_view type);

/// A checked array of messages in which parts of type `thinking` have become the message's
/// `reasoning_content`, unless it has one already, and `redacted_thinking` is gone; all other
/// members are verbatim.
std::string fold_thinking_parts(std::string_view messages_json, uint32_t depth_max);

/// Text parts of the last user message of a checked array, joined by newlines.
std::string last_user_text(std::string_view messages_json, uint32_t depth_max);

}  // namespace stator::api
