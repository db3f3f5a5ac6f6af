// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/native.h"
#include "stator/chat_template/detail/strftime.h"

namespace stator::chat_template::detail {
namespace {

constexpr int kSchemaDepthMax = 64;
constexpr size_t kArrayTypeBytesMax = 50;  // longer element types are written any[]

const Value* member(const Value& object, std::string_view name) {
  const Value* found = object.find(name);
  return found == nullptr || !found->truthy() ? nullptr : found;
}

bool is_type(const Value& schema, std::string_view name) {
  const Value* type = schema.find("type");
  return type != nullptr && type->is_text(name);
}

/// JSON schemas as TypeScript types, with the white space that the published template leaves inside
/// of them. Parts of a type are the client's and parts the format's; the whole counts as data.
class TypeWriter {
 public:
  std::string write(const Value& schema, int depth = 0) {
    if (depth > kSchemaDepthMax) {
      fail("tools: a schema is nested deeper than " + std::to_string(kSchemaDepthMax) + " levels");
    }
    if (is_type(schema, "array")) {
      return array_type(schema, depth);
    }
    const Value* type = schema.find("type");
    if (type != nullptr && type->is_list() && type->truthy()) {
      return joined(type->as_list(), " | ");
    }
    if (const Value* variants = member(schema, "oneOf");
        variants != nullptr && variants->is_list()) {
      return union_type(variants->as_list(), depth);
    }
    if (is_type(schema, "string")) {
      return string_type(schema);
    }
    if (is_type(schema, "number") || is_type(schema, "integer")) {
      return "number";
    }
    if (is_type(schema, "boolean")) {
      return "boolean";
    }
    return is_type(schema, "object") ? object_type(schema, depth) : "any";
  }

 private:
  static std::string joined(const ListData& items, std::string_view separator) {
    std::string text;
    for (const Value& item : items.values()) {
      text += text.empty() ? std::string_view() : separator;
      text += item.is_string() ? std::string(item.text()) : item.to_python_json();
    }
    return text;
  }

  std::string array_type(const Value& schema, int depth) {
    const std::string null = member(schema, "nullable") != nullptr ? " | null" : "";
    const Value* items = member(schema, "items");
    if (items == nullptr) {
      return "any[]" + null;
    }
    if (is_type(*items, "string")) {  // without its enum
      return "string[]" + null;
    }
    if (is_type(*items, "number") || is_type(*items, "integer")) {
      return "number[]" + null;
    }
    if (is_type(*items, "boolean")) {
      return "boolean[]" + null;
    }
    const std::string inner = write(*items, depth + 1);
    const bool long_inner = inner == "object | object" || inner.size() > kArrayTypeBytesMax;
    return (long_inner ? "any" : inner) + "[]" + null;
  }

  /// The template means to write `any` for several variants with an object among them, but what it
  /// notes in its loop is gone behind it: it writes them all.
  std::string union_type(const ListData& variants, int depth) {
    std::string text;
    for (uint32_t i = 0; i < variants.size; ++i) {
      const Value& variant = variants.items[i];
      text += write(variant, depth + 1);
      if (const Value* description = member(variant, "description")) {
        text += "// " + std::string(description->text());
      }
      if (const Value* otherwise = variant.find("default")) {
        text.append(20, ' ');
        text += "// default: " + otherwise->to_python_json();
      }
      text += i + 1 < variants.size ? " | \n" : "";
    }
    return text;
  }

  static std::string string_type(const Value& schema) {
    if (const Value* choices = member(schema, "enum"); choices != nullptr && choices->is_list()) {
      return '"' + joined(choices->as_list(), "\" | \"") + '"';
    }
    return member(schema, "nullable") != nullptr ? "string | null" : "string";
  }

  std::string object_type(const Value& schema, int depth) {
    const Value* properties = member(schema, "properties");
    if (properties == nullptr || !properties->is_dict()) {
      return "object";
    }
    std::string text = "{\n";
    const DictData& dict = properties->as_dict();
    for (uint32_t i = 0; i < dict.size; ++i) {
      text += dict.entries[i].key.text();
      text += is_required(schema, dict.entries[i].key) ? ": \n" : "?: \n";
      text.append(16, ' ');
      text += write(dict.entries[i].value, depth + 1);
      text += i + 1 < dict.size ? ", " : "";
    }
    return text + "}";
  }

 public:
  static bool is_required(const Value& schema, const Value& name) {
    const Value* required = schema.find("required");
    return required != nullptr && required->is_list() &&
           std::ranges::any_of(required->as_list().values(),
                               [&](const Value& item) { return equals(item, name); });
  }
};

class HarmonyRenderer {
 public:
  HarmonyRenderer(const NativeInput& input, PromptWriter& out)
      : input_(input), out_(out), has_tools_(input.tools.is_list() && input.tools.truthy()) {}

  void run() {
    write_system();
    const ListData& messages = input_.messages.as_list();
    size_t first = 0;
    std::string_view instructions;
    if (messages.size > 0) {
      const std::string_view role = message_text(messages.items[0], "role");
      if (role == "developer" || role == "system") {
        instructions = message_text(messages.items[0], "content");
        first = 1;
      }
    }
    write_developer(instructions);
    for (size_t i = first; i < messages.size; ++i) {
      write_message(messages, i);
    }
    if (input_.add_generation_prompt) {
      out_.mark("<|start|>assistant");
    }
  }

 private:
  void write_system() {
    out_.mark("<|start|>system<|message|>");
    out_.data(input_.text_option("model_identity",
                                 "You are ChatGPT, a large language model trained by OpenAI."));
    out_.mark("\nKnowledge cutoff: 2024-06\nCurrent date: " + format_time(input_.now, "%Y-%m-%d") +
              "\n\nReasoning: ");
    out_.data(input_.text_option("reasoning_effort", "medium"));
    out_.mark(
        "\n\n# Valid channels: analysis, commentary, final. Channel must be included for "
        "every message.");
    if (has_tools_) {
      out_.mark("\nCalls to these tools must go to the commentary channel: 'functions'.");
    }
    out_.mark("<|end|>");
  }

  void write_developer(std::string_view instructions) {
    if (instructions.empty() && !has_tools_) {
      return;
    }
    out_.mark("<|start|>developer<|message|>");
    if (!instructions.empty()) {
      out_.mark("# Instructions\n\n");
      out_.data(instructions);
      out_.mark("\n\n");
    }
    if (has_tools_) {
      out_.mark("# Tools\n\n## functions\n\nnamespace functions {\n\n");
      for (const Value& tool : input_.tools.as_list().values()) {
        const Value* function = tool.find("function");
        write_tool(function == nullptr ? tool : *function);
      }
      out_.mark("} // namespace functions");
    }
    out_.mark("<|end|>");
  }

  void write_tool(const Value& function) {
    out_.mark("// ");
    out_.data(message_text(function, "description"));
    out_.mark("\ntype ");
    out_.data(message_text(function, "name"));
    const Value* parameters = member(function, "parameters");
    const Value* properties = parameters == nullptr ? nullptr : member(*parameters, "properties");
    if (properties == nullptr || !properties->is_dict()) {
      out_.mark(" = () => any;\n\n");
      return;
    }
    out_.mark(" = (_: {\n");
    for (const auto& entry : properties->as_dict().items()) {
      write_parameter(entry, TypeWriter::is_required(*parameters, entry.key));
    }
    out_.mark("}) => any;\n\n");
  }

  void write_parameter(const DictData::Entry& entry, bool required) {
    const Value& schema = entry.value;
    if (const Value* description = member(schema, "description")) {
      out_.mark("// ");
      out_.data(description->text());
      out_.mark("\n");
    }
    out_.data(entry.key.text());
    out_.mark(required ? ": " : "?: ");
    out_.data(TypeWriter().write(schema));
    if (const Value* otherwise = schema.find("default")) {
      const bool plain = member(schema, "enum") != nullptr || member(schema, "oneOf") != nullptr;
      out_.mark(plain && member(schema, "enum") == nullptr ? "// default: " : ", // default: ");
      if (plain && otherwise->is_string()) {
        out_.data(otherwise->text());
      } else {
        out_.data_json(*otherwise);
      }
    }
    out_.mark(",\n");
  }

  void write_message(const ListData& messages, size_t index) {
    const Value& message = messages.items[index];
    const std::string_view role = message_text(message, "role");
    if (role == "assistant") {
      const Value* calls = member(message, "tool_calls");
      if (calls != nullptr && calls->is_list()) {
        write_calls(message, calls->as_list(), !is_answered_later(messages, index));
      } else {
        write_answer(message, index + 1 == messages.size && !input_.add_generation_prompt);
      }
    } else if (role == "tool") {
      write_result(message);
    } else if (role == "user") {
      out_.mark("<|start|>user<|message|>");
      out_.data(message_text(message, "content"));
      out_.mark("<|end|>");
    }
  }

  /// Reasoning before a tool call is shown until a final answer follows.
  static bool is_answered_later(const ListData& messages, size_t index) {
    for (size_t i = index + 1; i < messages.size; ++i) {
      if (message_text(messages.items[i], "role") == "assistant" &&
          messages.items[i].find("tool_calls") == nullptr) {
        return true;
      }
    }
    return false;
  }

  void write_analysis(std::string_view text) {
    out_.mark("<|start|>assistant<|channel|>analysis<|message|>");
    out_.data(text);
    out_.mark("<|end|>");
  }

  void write_calls(const Value& message, const ListData& calls, bool with_analysis) {
    const std::string_view content = message_text(message, "content");
    const std::string_view thinking = message_text(message, "reasoning_content");
    if (!content.empty() && !thinking.empty()) {
      fail("messages: an assistant message with tool calls has either content or reasoning");
    }
    if (with_analysis && (!content.empty() || !thinking.empty())) {
      write_analysis(content.empty() ? thinking : content);
    }
    for (const Value& call : calls.values()) {
      const Value* function = call.find("function");
      const Value& owner = function == nullptr ? call : *function;
      last_call_ = message_text(owner, "name");
      call_names_.emplace_back(message_text(call, "id"), last_call_);
      out_.mark("<|start|>assistant to=functions.");
      out_.data(last_call_);
      out_.mark("<|channel|>commentary json<|message|>");
      const Value* arguments = owner.find("arguments");
      if (arguments != nullptr) {
        out_.data_json(*arguments);
      }
      out_.mark("<|call|>");
    }
  }

  void write_answer(const Value& message, bool is_last) {
    // Reasoning of earlier turns is dropped; the last turn's is for training.
    const std::string_view thinking = message_text(message, "reasoning_content");
    if (is_last && !thinking.empty()) {
      write_analysis(thinking);
    }
    out_.mark("<|start|>assistant<|channel|>final<|message|>");
    out_.data(message_text(message, "content"));
    out_.mark(is_last ? "<|return|>" : "<|end|>");
    if (!is_last) {
      last_call_ = {};
    }
  }

  /// Named by the call it answers, or by the latest one.
  void write_result(const Value& message) {
    std::string_view name = last_call_;
    const std::string_view id = message_text(message, "tool_call_id");
    for (const auto& [call_id, call_name] : call_names_) {
      name = !id.empty() && call_id == id ? call_name : name;
    }
    if (name.empty()) {
      fail("messages: a tool result without a tool call before it");
    }
    out_.mark("<|start|>functions.");
    out_.data(name);
    out_.mark(" to=assistant<|channel|>commentary<|message|>");
    const Value* content = message.find("content");
    if (content != nullptr) {
      out_.data_json(*content);
    }
    out_.mark("<|end|>");
  }

  const NativeInput& input_;
  PromptWriter& out_;
  bool has_tools_;
  std::string_view last_call_;
  std::vector<std::pair<std::string_view, std::string_view>> call_names_;
};

}  // namespace

void render_harmony(const NativeInput& input, PromptWriter& out) {
  HarmonyRenderer(input, out).run();
}

}  // namespace stator::chat_template::detail
