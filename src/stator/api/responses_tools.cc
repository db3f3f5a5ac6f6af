// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "stator/api/detail/chat_reader.h"
#include "stator/api/detail/responses_reader.h"
#include "stator/api/detail/tool_choice.h"
#include "stator/json/writer.h"

namespace stator::api {
namespace {

using Reader = ResponsesReader;

/// One tool's members as they stand in the text.
struct Tool {
  std::string type;
  std::string name;
  std::string_view description;
  std::string_view parameters;
  std::optional<bool> strict;
  std::string_view nested;  ///< `tools` of a namespace
  std::string_view format;  ///< of a custom tool
};

void read_tool_members(FieldReader& in, const Path& path, Tool& tool) {
  const bool present = in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      tool.type = in.string(member).value_or("");
    } else if (key == "name") {
      tool.name = in.string(member).value_or("");
    } else if (key == "description") {
      tool.description = raw_string(in, member).value_or(std::string_view());
    } else if (key == "parameters") {
      tool.parameters = in.raw_object(member).value_or(std::string_view());
    } else if (key == "strict") {
      tool.strict = in.boolean(member);
    } else if (key == "tools") {
      tool.nested = in.any(member).value_or(std::string_view());
    } else if (key == "format") {
      tool.format = in.raw_object(member).value_or(std::string_view());
    } else {
      in.skip();
    }
  });
  if (!present) {
    in.violation(path, "must be an object");
  }
}

void add_function(Reader& r, const Path& path, const Tool& tool, std::string_view space) {
  if (!is_tool_name(tool.name)) {
    r.in.violation(Path(path, "name"),
                   tool.name.empty() ? std::string("is required") : tool_name_rule(tool.name));
    return;
  }
  std::string name = tool.name;
  if (!space.empty()) {
    name = fmt::format("{}__{}", space, tool.name);
    r.request.namespaced_tools.push_back({name, std::string(space), tool.name});
  }
  ChatInput& chat = r.request.chat.chat;
  chat.tools_json += chat.tools_json.empty() ? "[" : ",";
  json::Writer json(chat.tools_json);
  json.begin_object().key("type").value("function").key("function").begin_object();
  json.key("name").value(name);
  if (!tool.description.empty()) {
    json.key("description").raw(tool.description);
  }
  if (!tool.parameters.empty()) {
    json.key("parameters").raw(tool.parameters);
  }
  if (tool.strict) {
    json.key("strict").value(*tool.strict);
  }
  json.end_object().end_object();
  chat.tool_names.push_back(std::move(name));
}

/// The shape that a custom tool's text shall have.
struct Format {
  std::string type = "text";
  std::string syntax;
  std::string definition;
};

Format read_format(Reader& r, const Path& path, std::string_view text) {
  Format format;
  if (text.empty()) {
    return format;
  }
  FieldReader in(text, r.depth_max);
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      format.type = in.string(member).value_or("");
    } else if (key == "syntax") {
      format.syntax = in.string(member).value_or("");
    } else if (key == "definition") {
      format.definition = in.string(member).value_or("");
    } else {
      in.skip();
    }
  });
  if (ApiStatus verdict = in.verdict(); !verdict.has_value()) {
    r.in.adopt(std::move(verdict.error()));
  } else if (format.type != "text" && format.type != "grammar") {
    r.in.violation(Path(path, "type"), "must be text or grammar");
  } else if (format.type == "grammar" && format.syntax != "lark" && format.syntax != "regex") {
    r.in.violation(Path(path, "syntax"), "must be lark or regex");
  } else if (format.type == "grammar" && format.definition.empty()) {
    r.in.violation(Path(path, "definition"), "is required");
  }
  return format;
}

/// Models know functions: theirs has one string, whose shape its description tells. Nobody holds
/// them to it, which the client is told.
void add_custom(Reader& r, const Path& path, Tool tool, std::string_view space) {
  const Format format = read_format(r, Path(path, "format"), tool.format);
  std::string description = tool.description.empty() ? "" : decode_raw(tool.description) + "\n\n";
  description += "The input is free text, not JSON.";
  if (format.type == "grammar") {
    description += fmt::format(" It must match this {}:\n{}",
                               format.syntax == "lark" ? "Lark grammar" : "regular expression",
                               format.definition);
    r.ignore("tools.format");
  }
  std::string described;
  json::append_string(described, description);
  tool.description = described;
  tool.parameters =
      R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false})";
  tool.strict.reset();
  const size_t before = r.request.namespaced_tools.size();
  add_function(r, path, tool, space);
  if (space.empty()) {
    r.request.namespaced_tools.push_back({tool.name, {}, tool.name});
  }
  if (r.request.namespaced_tools.size() > before) {
    r.request.namespaced_tools.back().freeform = true;
  }
}

void read_namespace(Reader& r, const Path& path, const Tool& tool) {
  if (!is_tool_name(tool.name)) {
    r.in.violation(Path(path, "name"), "is required, of A-Z a-z 0-9 _ - . :");
    return;
  }
  const Path nested_path(path, "tools");
  if (tool.nested.empty()) {
    r.in.violation(nested_path, "is required");
    return;
  }
  FieldReader nested(tool.nested, r.depth_max);
  nested.array(nested_path, [&](size_t, const Path& element) {
    Tool inner;
    read_tool_members(nested, element, inner);
    if (inner.type == "function") {
      add_function(r, element, inner, tool.name);
    } else if (inner.type == "custom") {
      add_custom(r, element, inner, tool.name);
    } else {
      r.in.unsupported(
          Path(element, "type"),
          fmt::format("is \"{}\": only functions and custom tools are supported", inner.type));
    }
  });
  if (ApiStatus status = nested.finish(); !status.has_value()) {
    r.in.adopt(std::move(status.error()));
  } else if (ApiStatus verdict = nested.verdict(); !verdict.has_value()) {
    r.in.adopt(std::move(verdict.error()));
  }
}

void read_tool(Reader& r, const Path& path) {
  Tool tool;
  read_tool_members(r.in, path, tool);
  if (tool.type == "function") {
    add_function(r, path, tool, {});
  } else if (tool.type == "custom") {
    add_custom(r, path, std::move(tool), {});
  } else if (tool.type == "namespace") {
    read_namespace(r, path, tool);
  } else if (tool.type.empty()) {
    r.in.violation(Path(path, "type"), "is required");
  } else if (!is_builtin_tool(tool.type)) {
    r.in.violation(Path(path, "type"),
                   fmt::format("is \"{}\", which is no known type", tool.type.substr(0, 64)));
  } else if (r.policy.ignore_builtin_tools) {
    r.ignore(fmt::format("tools.{}", tool.type.substr(0, 40)));
  } else {
    r.in.unsupported(Path(path, "type"),
                     fmt::format("is \"{}\", which this server does not run: offer function tools, "
                                 "or start it with --ignore-builtin-tools to leave it out",
                                 tool.type.substr(0, 64)));
  }
}

struct Choice {
  std::string type;
  std::string name;
  std::string mode;
  std::vector<std::string> allowed;
};

Choice read_choice_object(Reader& r, FieldReader& in, const Path& path) {
  Choice choice;
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      choice.type = in.string(member).value_or("");
    } else if (key == "name") {
      choice.name = in.string(member).value_or("");
    } else if (key == "mode") {
      choice.mode = in.string(member).value_or("");
    } else if (key == "tools") {
      in.array(member, [&](size_t, const Path& element) {
        Tool tool;
        read_tool_members(in, element, tool);
        if (tool.type != "function" && tool.type != "custom") {
          r.in.unsupported(Path(element, "type"), "must be function or custom");
        }
        choice.allowed.push_back(std::move(tool.name));
      });
    } else {
      in.skip();
    }
  });
  return choice;
}

void require_known(Reader& r, const Path& path, const std::string& name) {
  const std::vector<std::string>& names = r.request.chat.chat.tool_names;
  if (std::ranges::find(names, name) == names.end()) {
    r.in.violation(path, fmt::format("names a tool that is not in tools: {}",
                                     name.substr(0, kMaxToolNameBytes)));
  }
}

void choose_word(Reader& r, const Path& path, std::string_view word) {
  using enum ToolChoice::Kind;
  ToolChoice& choice = r.request.chat.tool_choice;
  if (word == "none") {
    choice.kind = kNone;
  } else if (word == "auto") {
    choice.kind = kAuto;
  } else if (word == "required") {
    choice.kind = kRequired;
    require_guided_decoding(r.common, path);
    if (r.request.chat.chat.tool_names.empty()) {
      r.in.violation(path, "required needs non-empty tools");
    }
  } else {
    r.in.violation(path, "must be none, auto, required or an object naming a function");
  }
}

}  // namespace

void read_responses_tools(ResponsesReader& reader, const Path& path) {
  ChatInput& chat = reader.request.chat.chat;
  chat.tools_json.clear();
  chat.tool_names.clear();
  reader.request.namespaced_tools.clear();
  reader.tools = {};
  const size_t begin = reader.in.mark();
  const bool present =
      reader.in.array(path, [&](size_t, const Path& tool) { read_tool(reader, tool); });
  if (chat.tool_names.size() > kMaxTools) {
    reader.in.violation(path, fmt::format("must have at most {} entries", kMaxTools));
  }
  if (present) {
    reader.tools = reader.in.since(begin);
  }
  if (!chat.tools_json.empty()) {
    chat.tools_json += ']';
  }
}

void finish_tool_choice(ResponsesReader& reader) {
  if (reader.tool_choice.empty()) {
    return;
  }
  const Path path("tool_choice");
  if (reader.tool_choice.front() == '"') {
    choose_word(reader, path, decode_raw(reader.tool_choice));
    return;
  }
  if (reader.tool_choice.front() != '{') {
    reader.in.violation(path, "must be a string or an object");
    return;
  }
  FieldReader in(reader.tool_choice, reader.depth_max);
  const Choice choice = read_choice_object(reader, in, path);
  if (ApiStatus status = in.finish(); !status.has_value()) {
    reader.in.adopt(std::move(status.error()));
    return;
  }
  if (choice.type == "function" || choice.type == "custom") {
    require_known(reader, path, choice.name);
    reader.request.chat.tool_choice = {ToolChoice::Kind::kNamed, choice.name};
    require_guided_decoding(reader.common, path);
  } else if (choice.type == "allowed_tools") {
    for (const std::string& name : choice.allowed) {
      require_known(reader, Path(path, "tools"), name);
    }
    restrict_tools(reader.request.chat.chat, choice.allowed, reader.depth_max);
    choose_word(reader, Path(path, "mode"), choice.mode.empty() ? "auto" : choice.mode);
  } else if (!is_builtin_tool(choice.type)) {
    reader.in.violation(Path(path, "type"), "must be function, custom or allowed_tools");
  } else {
    reader.in.unsupported(
        Path(path, "type"),
        fmt::format("is \"{}\": only function, custom and allowed_tools are supported",
                    choice.type.substr(0, 64)));
  }
}

}  // namespace stator::api
