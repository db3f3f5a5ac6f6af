// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "stator/api/detail/chat_reader.h"
#include "stator/api/detail/field_names.h"
#include "stator/api/field_table.h"

namespace stator::api {
namespace {

using Reader = ChatInputReader;

void read_tool_function(Reader& r, const Path& path) {
  std::optional<std::string> name;
  const bool present = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "name") {
      name = r.in.string(member);
      if (name && !is_tool_name(*name)) {
        r.in.violation(member, tool_name_rule(*name));
      }
    } else if (key == "parameters") {
      r.in.raw_object(member);
    } else if (key == "description") {
      r.in.has_string(member);
    } else if (key == "strict") {
      r.in.boolean(member);
    } else {
      r.in.skip();
    }
  });
  if (present && name) {
    r.chat.tool_names.push_back(std::move(*name));
  } else {
    r.in.violation(Path(path, "name"), "is required");
  }
}

void read_tool(Reader& r, const Path& path) {
  bool has_type = false;
  bool has_function = false;
  bool other_type = false;
  const bool present = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      const auto type = r.in.string(member);
      has_type = type.has_value();
      other_type = has_type && *type != "function";
      if (other_type && is_builtin_tool(*type)) {
        r.in.unsupported(member, "other than \"function\" is not supported");
      } else if (other_type) {
        r.in.violation(member, "must be \"function\"");
      }
    } else if (key == "function") {
      has_function = true;
      read_tool_function(r, member);
    } else {
      r.in.skip();
    }
  });
  if (!present) {
    r.in.violation(path, "must be an object");
    return;
  }
  if (!has_type) {
    r.in.violation(Path(path, "type"), "is required");
  }
  if (!has_function && !other_type) {
    r.in.violation(Path(path, "function"), "is required");
  }
}

void read_documents(Reader& r, const Path& path) {
  r.chat.documents_json = r.in.raw_array(path).value_or("");
}
void read_template_kwargs(Reader& r, const Path& path) {
  r.chat.chat_template_kwargs_json = r.in.raw_object(path).value_or("");
}
void read_chat_template(Reader& r, const Path& path) {
  if (r.in.has_string(path)) {
    r.in.unsupported(path, "is not supported: the template is part of the model");
  }
}
void read_add_generation_prompt(Reader& r, const Path& path) {
  r.add_generation_prompt = r.in.boolean(path);
}
void read_continue_final_message(Reader& r, const Path& path) {
  r.chat.continue_final_message = r.in.boolean(path).value_or(false);
}
void read_reasoning_effort(Reader& r, const Path& path) {
  r.chat.reasoning_effort = r.in.string(path).value_or("");
}

void read_thinking_type(Reader& r, const Path& path) {
  const auto type = r.in.string(path);
  if (type && *type != "enabled" && *type != "disabled" && *type != "adaptive") {
    r.in.violation(path, "must be one of enabled, disabled, adaptive");
  }
}

void read_thinking(Reader& r, const Path& path) {
  r.chat.thinking_json.clear();
  const size_t begin = r.in.mark();
  switch (r.in.peek()) {
    case json::Kind::kNull:
      r.in.skip();
      return;
    case json::Kind::kBool:
      r.in.skip();
      break;
    case json::Kind::kObject:
      r.in.object(path, [&](std::string_view key, const Path& member) {
        if (key == "type") {
          read_thinking_type(r, member);
        } else {
          r.in.skip();
        }
      });
      break;
    default:
      r.in.type_error(path, "a boolean or an object");
      return;
  }
  r.chat.thinking_json = r.in.since(begin);
}

constexpr auto kFields = std::to_array<Field<Reader>>({
    {"add_generation_prompt", read_add_generation_prompt},
    {"chat_template", read_chat_template},
    {"chat_template_args", read_template_kwargs},
    {"chat_template_kwargs", read_template_kwargs},
    {"continue_final_message", read_continue_final_message},
    {"documents", read_documents},
    {"messages", read_messages},
    {"reasoning_effort", read_reasoning_effort},
    {"thinking", read_thinking},
    {"tools", read_tools},
});
static_assert(is_sorted_table<Reader>(kFields));

}  // namespace

bool is_tool_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::ranges::all_of(name, allowed);
}

std::string tool_name_rule(std::string_view name) {
  return name.size() > kMaxToolNameBytes
             ? fmt::format("exceeds the {} character limit", kMaxToolNameBytes)
             : fmt::format("must have 1 to {} characters of A-Z a-z 0-9 _ - . :",
                           kMaxToolNameBytes);
}

bool is_builtin_tool(std::string_view type) {
  static constexpr auto kBuiltin = std::to_array<std::string_view>(
      {"apply_patch", "code_interpreter", "computer", "custom", "file_search", "image_generation",
       "local_shell", "mcp", "shell", "tool_search", "web_search"});
  return std::ranges::any_of(kBuiltin,
                             [&](std::string_view known) { return type.starts_with(known); });
}

void read_tools(ChatInputReader& reader, const Path& path) {
  ChatInput& chat = reader.chat;
  chat.tools_json.clear();
  chat.tool_names.clear();
  size_t count = 0;
  const size_t begin = reader.in.mark();
  const bool present = reader.in.array(path, [&](size_t, const Path& tool) {
    ++count;
    read_tool(reader, tool);
  });
  if (count > kMaxTools) {
    reader.in.violation(path, fmt::format("must have at most {} entries", kMaxTools));
  }
  if (present && count > 0) {  // SDKs send [] for "no tools"
    chat.tools_json = reader.in.since(begin);
  }
}

bool read_chat_field(ChatInputReader& reader, std::string_view key, const Path& path) {
  return read_known<ChatInputReader>(kFields, key, reader, path);
}

void finish_chat_input(ChatInputReader& reader) {
  ChatInput& chat = reader.chat;
  if (chat.continue_final_message && reader.add_generation_prompt == true) {
    reader.in.violation(Path("continue_final_message"),
                        "cannot be combined with add_generation_prompt: true");
  }
  if (chat.continue_final_message && chat.message_count > 0 && chat.last_role != Role::kAssistant) {
    reader.in.violation(Path("continue_final_message"),
                        "needs an assistant message at the end of messages");
  }
  chat.add_generation_prompt = reader.add_generation_prompt.value_or(!chat.continue_final_message);
}

void append_chat_input_names(std::vector<std::string_view>& out) {
  append_names<ChatInputReader>(kFields, out);
}

}  // namespace stator::api
