// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/api/field_reader.h"
#include "stator/api/generate_reader.h"
#include "stator/api/request.h"

namespace stator::api {

/// `tool_choice` of a chat request as it was read, before `tools` is known.
struct ToolChoiceInput {
  ToolChoice choice;
  bool restricted = false;           ///< allowed_tools: only those of `allowed` are offered
  std::vector<std::string> allowed;  ///< names
};

/// A word, {"type":"function","function":{"name"}} or
/// {"type":"allowed_tools","allowed_tools":{"mode":"auto"|"required","tools":[…]}}.
void read_chat_tool_choice(FieldReader& in, const Path& path, ToolChoiceInput& out);

/// After the last field: what is chosen must be offered; the tools that are not allowed go.
void finish_chat_tool_choice(GenerateReader& common, ChatRequest& request, ToolChoiceInput& input);

/// Keeps the tools of `names` only. `tools_json` was checked when it was read.
void restrict_tools(ChatInput& chat, const std::vector<std::string>& names, uint32_t depth_max);

}  // namespace stator::api
