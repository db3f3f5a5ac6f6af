// SPDX-License-Identifier: Apache-2.0
#include "stator/api/detail/tool_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::api {
namespace {

using enum ToolChoice::Kind;

void read_word(FieldReader& in, const Path& path, ToolChoiceInput& out) {
  const auto word = in.string(path);
  if (!word) {
    return;
  }
  if (*word == "none") {
    out.choice.kind = kNone;
  } else if (*word == "auto") {
    out.choice.kind = kAuto;
  } else if (*word == "required") {
    out.choice.kind = kRequired;
  } else {
    in.violation(path, "must be none, auto, required or an object naming a function");
  }
}

std::string read_name(FieldReader& in, const Path& path) {
  std::string name;
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "name") {
      name = in.string(member).value_or("");
    } else {
      in.skip();
    }
  });
  return name;
}

/// {"type":"function","function":{"name":…}}, or the name beside the type as in the Responses API.
void read_allowed_tool(FieldReader& in, const Path& path, ToolChoiceInput& out) {
  std::string type;
  std::string name;
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type = in.string(member).value_or("");
    } else if (key == "name") {
      name = in.string(member).value_or("");
    } else if (key == "function") {
      name = read_name(in, member);
    } else {
      in.skip();
    }
  });
  if (type != "function" && !type.empty()) {
    in.unsupported(Path(path, "type"), "other than \"function\" is not supported");
  } else if (name.empty()) {
    const Path function(path, "function");
    in.violation(Path(function, "name"), "is required");
  } else {
    out.allowed.push_back(std::move(name));
  }
}

void read_allowed_tools(FieldReader& in, const Path& path, ToolChoiceInput& out) {
  bool has_tools = false;
  std::string mode;
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "mode") {
      mode = in.string(member).value_or("");
    } else if (key == "tools") {
      has_tools =
          in.array(member, [&](size_t, const Path& tool) { read_allowed_tool(in, tool, out); });
    } else {
      in.skip();
    }
  });
  if (mode != "auto" && mode != "required") {
    in.violation(Path(path, "mode"), "must be auto or required");
  }
  if (!has_tools) {
    in.violation(Path(path, "tools"), "is required");
  }
  out.restricted = true;
  out.choice.kind = mode == "required" ? kRequired : kAuto;
}

void read_choice_object(FieldReader& in, const Path& path, ToolChoiceInput& out) {
  std::string type;
  bool has_allowed = false;
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type = in.string(member).value_or("");
    } else if (key == "function") {
      out.choice.name = read_name(in, member);
    } else if (key == "allowed_tools" && in.peek() == json::Kind::kObject) {
      has_allowed = true;
      read_allowed_tools(in, member, out);
    } else {
      in.skip();
    }
  });
  if (type == "allowed_tools") {
    if (!has_allowed) {
      in.violation(Path(path, "allowed_tools"), "is required and must be an object");
    }
  } else if (type == "custom") {
    in.unsupported(Path(path, "type"), "other than \"function\" is not supported");
  } else if (type != "function") {
    in.violation(Path(path, "type"), "must be \"function\" or \"allowed_tools\"");
  } else if (out.choice.name.empty()) {
    const Path function(path, "function");
    in.violation(Path(function, "name"), "is required");
  } else {
    out.restricted = false;
    out.choice.kind = kNamed;
  }
}

void require_offered(FieldReader& in, const ChatInput& chat, const std::string& name) {
  if (std::ranges::find(chat.tool_names, name) == chat.tool_names.end()) {
    in.violation(Path("tool_choice"), fmt::format("names a function that is not in tools: {}",
                                                  name.substr(0, kMaxToolNameBytes)));
  }
}

}  // namespace

void read_chat_tool_choice(FieldReader& in, const Path& path, ToolChoiceInput& out) {
  switch (in.peek()) {
    case json::Kind::kString:
      read_word(in, path, out);
      return;
    case json::Kind::kObject:
      read_choice_object(in, path, out);
      return;
    case json::Kind::kNull:
      in.skip();
      return;
    default:
      in.type_error(path, "a string or an object");
  }
}

void finish_chat_tool_choice(GenerateReader& common, ChatRequest& request, ToolChoiceInput& input) {
  const Path path("tool_choice");
  request.tool_choice = std::move(input.choice);
  const ToolChoice& choice = request.tool_choice;
  if (choice.kind == kRequired || choice.kind == kNamed) {
    require_guided_decoding(common, path);
  }
  for (const std::string& name : input.allowed) {
    require_offered(common.in, request.chat, name);
  }
  if (input.restricted) {
    restrict_tools(request.chat, input.allowed, common.limits.json_depth_max);
  }
  if (choice.kind == kRequired && request.chat.tool_names.empty()) {
    common.in.violation(path, "required needs non-empty tools");
  }
  if (choice.kind == kNamed) {
    require_offered(common.in, request.chat, choice.name);
  }
}

void restrict_tools(ChatInput& chat, const std::vector<std::string>& names, uint32_t depth_max) {
  if (chat.tools_json.empty()) {
    return;
  }
  FieldReader tools(chat.tools_json, depth_max);
  std::string kept;
  tools.array(Path("tools"), [&](size_t index, const Path& path) {
    const auto raw = tools.any(path);
    if (raw && index < chat.tool_names.size() &&
        std::ranges::find(names, chat.tool_names[index]) != names.end()) {
      kept += kept.empty() ? "[" : ",";
      kept += *raw;
    }
  });
  chat.tools_json = kept.empty() ? std::string() : kept + "]";
  std::erase_if(chat.tool_names, [&](const std::string& name) {
    return std::ranges::find(names, name) == names.end();
  });
}

}  // namespace stator::api
