// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/conversation.h"

#include <string>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/format.h"
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

void adapt_content(DictData& message, const TemplateTraits& traits, Arena& arena) {
  Value* content = message.find("content");
  if (content == nullptr) {
    return;
  }
  if (content->is_list() && !traits.content_parts) {
    *content = join_text_parts(content->as_list(), arena);
  } else if (content->is_string() && traits.content_parts && !traits.text_content) {
    *content = wrap_text(*content, arena);
  }
}

/// The newest name of a message's reasoning is what templates read; gpt-oss reads `thinking`.
void adapt_reasoning(DictData& message, Arena& arena) {
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = message.find(name);
    if (found == nullptr || found->is_none()) {
      continue;
    }
    const Value reasoning = *found;
    message.set(arena, Value::string("reasoning_content"), reasoning);
    if (message.find("thinking") == nullptr) {
      message.set(arena, Value::string("thinking"), reasoning);
    }
    return;
  }
}

void adapt_arguments(Value& arguments, const TemplateTraits& traits, Arena& arena) {
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

void adapt_tool_calls(DictData& message, const TemplateTraits& traits, Arena& arena) {
  const Value* calls = message.find("tool_calls");
  if (calls == nullptr || !calls->is_list()) {
    return;
  }
  for (const Value& call : calls->as_list().values()) {
    const Value* function = call.find("function");
    const Value& owner = function == nullptr ? call : *function;
    if (!owner.is_dict()) {
      continue;
    }
    if (Value* arguments = owner.as_dict().find("arguments")) {
      adapt_arguments(*arguments, traits, arena);
    }
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
    DictData& members = message.as_dict();
    Value* role = members.find("role");
    if (!traits.mentions_developer && role != nullptr && role->is_string() &&
        role->text() == "developer") {
      *role = Value::string("system");
    }
    adapt_content(members, traits, arena);
    adapt_reasoning(members, arena);
    adapt_tool_calls(members, traits, arena);
  }
}

void adapt_tools(const Value& tools, Arena& arena) {
  if (!tools.is_list()) {
    fail("tools must be an array");
  }
  for (const Value& tool : tools.as_list().values()) {
    if (!tool.is_dict()) {
      fail("every tool must be an object");
    }
    const Value* function = tool.find("function");
    if (function == nullptr || !function->is_dict()) {
      continue;
    }
    const Value* parameters = function->find("parameters");
    if (parameters != nullptr && !parameters->is_none()) {
      continue;
    }
    auto* schema = DictData::make(arena, 2);
    schema->set(arena, Value::string("type"), Value::string("object"));
    schema->set(arena, Value::string("properties"), Value::dict(DictData::make(arena, 0)));
    function->as_dict().set(arena, Value::string("parameters"), Value::dict(schema));
  }
}

void mark_final_message(const Value& messages, Arena& arena) {
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
  const std::string marked = std::string(content->text()) + std::string(kMark);
  *content = Value::string(arena.copy(std::string_view(marked)));
}

std::string cut_at_mark(std::string prompt) {
  const std::string_view bare = strip(kMark, Side::kRight);
  const size_t at = prompt.rfind(bare);
  if (at == std::string::npos) {
    fail("continue_final_message: the chat template does not print the final message's content");
  }
  const bool spacing_kept = std::string_view(prompt).substr(at).starts_with(kMark);
  prompt.resize(at);
  if (!spacing_kept) {
    prompt.resize(strip(std::string_view(prompt), Side::kRight).size());
  }
  return prompt;
}

}  // namespace stator::chat_template::detail
