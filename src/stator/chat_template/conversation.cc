// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/conversation.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/strftime.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

/// The text parts of a content list on lines of their own; other parts are left out.
Value join_text_parts(const ListData& parts, Arena& arena) {
  std::string joined;
  bool first = true;
  for (const Value& part : parts.values()) {
    const Value* text = part.is_string() ? &part : part.find("text");
    if (text == nullptr || !text->is_string()) {
      continue;
    }
    if (!std::exchange(first, false)) {
      joined += '\n';
    }
    joined += text->text();
  }
  return Value::string(arena.copy(std::string_view(joined)));
}

Value wrap_text(const Value& text, Arena& arena) {
  auto* part = DictData::make(arena, 2);
  part->set(arena, Value::string("type"), Value::string("text"));
  part->set(arena, Value::string("text"), text);
  auto* list = ListData::make(arena, 1);
  list->push(arena, Value::dict(part));
  return Value::list(list);
}

/// The members of a message that adaptation looks at; null when absent.
struct MessageMembers {
  Value* role = nullptr;
  Value* content = nullptr;
  Value* tool_calls = nullptr;
  Value* reasoning_content = nullptr;
  Value* thinking = nullptr;
  Value* reasoning = nullptr;
};

MessageMembers find_members(DictData& message) {
  MessageMembers found;
  const std::pair<std::string_view, Value**> wanted[] = {
      {"role", &found.role},
      {"content", &found.content},
      {"tool_calls", &found.tool_calls},
      {"reasoning_content", &found.reasoning_content},
      {"thinking", &found.thinking},
      {"reasoning", &found.reasoning},
  };
  for (auto& entry : message.items()) {
    for (const auto& [name, place] : wanted) {
      if (entry.key.is_text(name)) {
        *place = &entry.value;
        break;
      }
    }
  }
  return found;
}

void adapt_content(Value& content, const TemplateTraits& traits, Arena& arena) {
  if (content.is_list() && !traits.content_parts) {
    content = join_text_parts(content.as_list(), arena);
  } else if (content.is_string() && traits.content_parts && !traits.text_content) {
    content = wrap_text(content, arena);
  }
}

/// The newest name of a message's reasoning is what templates read; gpt-oss reads `thinking`.
void adapt_reasoning(DictData& message, const MessageMembers& members, Arena& arena) {
  for (const Value* found : {members.reasoning_content, members.thinking, members.reasoning}) {
    if (found == nullptr || found->is_none()) {
      continue;
    }
    const Value reasoning = *found;
    const bool has_thinking = members.thinking != nullptr;
    message.set(arena, Value::string("reasoning_content"), reasoning);
    if (!has_thinking) {
      message.set(arena, Value::string("thinking"), reasoning);
    }
    return;
  }
}

void adapt_arguments(Value& arguments, const TemplateTraits& traits, Arena& arena) {
  if (arguments.is_none()) {  // a call without arguments
    arguments =
        traits.object_arguments ? Value::dict(DictData::make(arena, 0)) : Value::string("{}");
    return;
  }
  if (traits.object_arguments && arguments.is_string()) {
    if (strip(arguments.text(), Side::kBoth).empty()) {
      arguments = Value::dict(DictData::make(arena, 0));
      return;
    }
    // What a model once wrote need not be JSON; such text goes to the template as it is.
    const auto parsed = Value::from_json(arguments.text(), arena);
    if (parsed && parsed->is_dict()) {
      arguments = *parsed;
    }
  } else if (!traits.object_arguments && (arguments.is_dict() || arguments.is_list())) {
    std::string text;
    write_json(arguments, JsonStyle{}, text);
    arguments = Value::string(arena.copy(std::string_view(text)));
  }
}

void adapt_tool_calls(const Value& calls, const TemplateTraits& traits, Arena& arena) {
  if (!calls.is_list()) {
    return;
  }
  for (const Value& call : calls.as_list().values()) {
    const Value* function = call.find("function");
    const Value& owner = function == nullptr ? call : *function;
    if (!owner.is_dict()) {
      continue;
    }
    if (owner.as_dict().find("arguments") == nullptr) {
      owner.as_dict().set(arena, Value::string("arguments"), Value());
    }
    adapt_arguments(*owner.as_dict().find("arguments"), traits, arena);
  }
}

/// Members that say nothing: null ones, except content, and an empty list of tool calls. Templates
/// ask whether such members are there, then read them.
void drop_empty_members(DictData& message, Arena& arena) {
  const auto is_empty = [](const DictData::Entry& member) {
    return (member.value.is_none() && !member.key.is_text("content")) ||
           (member.value.is_list() && member.value.as_list().size == 0 &&
            member.key.is_text("tool_calls"));
  };
  message.erase_if(arena, is_empty);
}

/// Calls come without content, and tools may return nothing; what people say is never null.
bool may_lack_content(const DictData& message) {
  const Value* role = message.find("role");
  return role != nullptr && (role->is_text("assistant") || role->is_text("tool"));
}

/// A message without content says so in the way that the template copes with.
void adapt_missing_content(DictData& message, const TemplateTraits& traits, Arena& arena) {
  const Value* content = message.find("content");
  if (may_lack_content(message) && (content == nullptr || content->is_none())) {
    message.set(arena, Value::string("content"), traits.null_content ? Value() : Value::string(""));
  }
}

}  // namespace

void adapt_messages(const Value& messages, const TemplateTraits& traits, Arena& arena) {
  if (!messages.is_list()) {
    fail("messages must be an array");
  }
  for (const Value& message : messages.as_list().values()) {
    if (!message.is_dict()) {
      fail("every message must be an object");
    }
    drop_empty_members(message.as_dict(), arena);
    adapt_missing_content(message.as_dict(), traits, arena);
    const MessageMembers members = find_members(message.as_dict());
    if (members.role != nullptr && !traits.mentions_developer &&
        members.role->is_text("developer")) {
      *members.role = Value::string("system");
    }
    if (members.content != nullptr) {
      adapt_content(*members.content, traits, arena);
    }
    if (members.tool_calls != nullptr) {
      adapt_tool_calls(*members.tool_calls, traits, arena);
    }
    adapt_reasoning(message.as_dict(), members, arena);  // may move the members
  }
}

void check_tools(const Value& tools) {
  if (!tools.is_list()) {
    fail("tools must be an array");
  }
  for (const Value& tool : tools.as_list().values()) {
    if (!tool.is_dict()) {
      fail("every tool must be an object");
    }
  }
}

bool adapt_tools(const Value& tools, ToolSchemas schemas, Arena& arena) {
  bool any_lacks = false;
  for (const Value& tool : tools.as_list().values()) {
    const Value* function = tool.find("function");
    if (function == nullptr || !function->is_dict()) {
      continue;
    }
    const Value* parameters = function->find("parameters");
    if (parameters != nullptr && !parameters->is_none()) {
      continue;
    }
    any_lacks = true;
    if (schemas == ToolSchemas::kAdded) {
      auto* schema = DictData::make(arena, 2);
      schema->set(arena, Value::string("type"), Value::string("object"));
      schema->set(arena, Value::string("properties"), Value::dict(DictData::make(arena, 0)));
      function->as_dict().set(arena, Value::string("parameters"), Value::dict(schema));
    }
  }
  return any_lacks;
}

std::string_view mark_final_message(const Value& messages, Arena& arena) {
  const ListData& list = messages.as_list();
  if (list.size == 0) {
    fail("continue_final_message needs a message to continue");
  }
  DictData& message = list.items[list.size - 1].as_dict();
  Value* content = message.find("content");
  if (content != nullptr && content->is_list()) {
    // The last text part is the one to continue.
    Value* last_text = nullptr;
    for (const Value& part : content->as_list().values()) {
      Value* text = part.is_dict() ? part.as_dict().find("text") : nullptr;
      last_text = text != nullptr ? text : last_text;
    }
    content = last_text;
  }
  if (content == nullptr || !content->is_string()) {
    fail("continue_final_message needs a final message with text content");
  }
  const std::string_view text = content->text();
  *content = Value::string(arena.copy(std::string_view(std::string(text) + std::string(kMark))));
  return text;
}

void cut_at_mark(RenderedPrompt& prompt, std::string_view final_text) {
  const std::string_view text = prompt.text;
  const size_t at = text.rfind(strip(kMark, Side::kRight));
  if (at == std::string_view::npos ||
      text.find(strip(final_text, Side::kBoth)) == std::string_view::npos) {
    fail("continue_final_message: the chat template does not print the final message's content");
  }
  const bool spacing_kept = text.substr(at).starts_with(kMark);
  const size_t end = spacing_kept ? at : strip(text.substr(0, at), Side::kRight).size();
  prompt.text.resize(end);
  std::erase_if(prompt.data, [end](const auto& span) { return span.begin >= end; });
  if (!prompt.data.empty()) {
    prompt.data.back().end = std::min(prompt.data.back().end, end);
  }
}

WallTime overridden_time(const Value& extra, WallTime now) {
  const Value* given = extra.find("strftime_now_override");
  if (given == nullptr || given->is_none()) {
    return now;
  }
  // Beyond the year 2200 nanoseconds since 1970 leave 64 bits.
  constexpr int64_t kSecondsMax = 7'258'118'400;
  std::optional<int64_t> seconds;
  if (given->is_int()) {
    seconds = given->as_int();
  } else if (given->is_string()) {
    seconds = parse_rfc3339(given->text());
  }
  if (!seconds || *seconds < 0 || *seconds > kSecondsMax) {
    fail("strftime_now_override must be a time such as \"2026-03-07T09:05:02Z\" or Unix seconds");
  }
  return WallTime(std::chrono::seconds(*seconds));
}

}  // namespace stator::chat_template::detail
