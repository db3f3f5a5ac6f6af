// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "stator/protocols/anthropic/cache_control.h"

namespace stator::protocols::anthropic {
namespace {

using api::Path;
using api::Rank;
using api::ToolChoice;

constexpr size_t kShownBytes = 64;

bool is_tool_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
  };
  return !name.empty() && name.size() <= api::kMaxToolNameBytes &&
         std::ranges::all_of(name, allowed);
}

/// Anthropic's own tools have names such as bash_20250124.
bool is_dated(std::string_view type) {
  const size_t at = type.rfind('_');
  return at != std::string_view::npos && type.substr(at).starts_with("_20");
}

/// One tool, as the body spells its parts.
struct Tool {
  std::string name;
  std::optional<std::string_view> description;
  std::optional<std::string_view> schema;
  std::optional<bool> strict;
  bool refused = false;
  uint32_t keep_s = 0;
};

void read_member(api::FieldReader& in, std::string_view key, const Path& path, Tool& tool) {
  if (key == "type") {
    const auto type = in.string(path);
    if (type && *type != "custom" && !is_dated(*type)) {
      in.violation(path, "must be \"custom\"");
    } else if (type && *type != "custom") {
      tool.refused = true;
      in.unsupported(path, fmt::format("is \"{}\": only tools of the client's own are supported, "
                                       "with a name and an input_schema",
                                       type->substr(0, kShownBytes)));
    }
  } else if (key == "name") {
    const auto name = in.string(path);
    if (name && !is_tool_name(*name)) {
      in.violation(path, fmt::format("must have 1 to {} characters of A-Z a-z 0-9 _ - . :",
                                     api::kMaxToolNameBytes));
    }
    tool.name = name.value_or("");
  } else if (key == "description") {
    tool.description = in.raw_string(path);
  } else if (key == "input_schema") {
    tool.schema = in.raw_object(path);
  } else if (key == "strict") {
    tool.strict = in.boolean(path);
  } else if (key == "cache_control") {
    tool.keep_s = read_cache_control(in, path);
  } else {
    in.skip();
  }
}

void append_tool(std::string& out, const Tool& tool) {
  out += R"({"type":"function","function":{"name":")";
  out += tool.name;  // of letters that need no escape
  out += '"';
  if (tool.description) {
    out += R"(,"description":)";
    out += *tool.description;
  }
  out += R"(,"parameters":)";
  out += *tool.schema;
  if (tool.strict) {
    out += *tool.strict ? R"(,"strict":true)" : R"(,"strict":false)";
  }
  out += "}}";
}

}  // namespace

uint32_t read_tools(api::FieldReader& in, const Path& path, api::ChatInput& chat) {
  uint32_t keep_s = 0;
  size_t count = 0;
  chat.tool_names.clear();
  std::string& out = chat.tools_json;
  out = '[';
  const bool present = in.array(path, [&](size_t, const Path& element) {
    Tool tool;
    ++count;
    const bool is_object = in.object(element, [&](std::string_view key, const Path& member) {
      read_member(in, key, member, tool);
    });
    keep_s = std::max(keep_s, tool.keep_s);
    if (!is_object) {
      in.violation(element, "must be an object");
    } else if (tool.name.empty()) {
      in.violation(Path(element, "name"), "is required");
    } else if (!tool.schema && !tool.refused) {
      in.violation(Path(element, "input_schema"), "is required");
    } else if (tool.schema) {
      out += out.size() > 1 ? "," : "";
      append_tool(out, tool);
      chat.tool_names.push_back(std::move(tool.name));
    }
  });
  out += ']';
  if (!present || chat.tool_names.empty()) {
    out.clear();
  }
  if (count > api::kMaxTools) {
    in.violation(path, fmt::format("must have at most {} entries", api::kMaxTools));
  }
  return keep_s;
}

void read_tool_choice(api::FieldReader& in, const Path& path, api::ChatRequest& request) {
  std::optional<std::string> type;
  ToolChoice choice;
  bool parallel = true;
  const bool present = in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type = in.string(member);
    } else if (key == "name") {
      choice.name = in.string(member).value_or("");
    } else if (key == "disable_parallel_tool_use") {
      parallel = !in.boolean(member).value_or(false);
    } else {
      in.skip();
    }
  });
  if (!present) {
    return;
  }
  if (type == "auto") {
    choice.kind = ToolChoice::Kind::kAuto;
  } else if (type == "any") {
    choice.kind = ToolChoice::Kind::kRequired;
  } else if (type == "tool") {
    choice.kind = ToolChoice::Kind::kNamed;
  } else if (type == "none") {
    choice.kind = ToolChoice::Kind::kNone;
  } else {
    in.violation(Path(path, "type"), "must be one of auto, any, tool, none");
  }
  request.tool_choice = std::move(choice);
  request.parallel_tool_calls = parallel;
}

void check_tool_choice(api::FieldReader& in, const api::ChatRequest& request) {
  const ToolChoice& choice = request.tool_choice;
  const std::vector<std::string>& names = request.chat.tool_names;
  const Path path("tool_choice");
  if (choice.kind == ToolChoice::Kind::kRequired && names.empty()) {
    in.violation(path, "any needs non-empty tools");
  }
  if (choice.kind != ToolChoice::Kind::kNamed) {
    return;
  }
  const Path name(path, "name");
  if (choice.name.empty()) {
    in.violation(name, "is required");
  } else if (std::ranges::find(names, choice.name) == names.end()) {
    in.violation(name,
                 fmt::format("is not in tools: {}", choice.name.substr(0, api::kMaxToolNameBytes)));
  }
}

}  // namespace stator::protocols::anthropic
