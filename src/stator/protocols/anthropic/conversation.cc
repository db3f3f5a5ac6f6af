// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/json/writer.h"

namespace stator::protocols::anthropic {
namespace {

using api::Path;
using api::Rank;
using api::Role;

// Claude Code's first line, another one with each request.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";
constexpr std::string_view kErrorPrefix = "Error: ";
constexpr size_t kTypeNameShown = 64;

/// Without the quotes.
std::string_view inner(std::string_view literal) {
  return literal.substr(1, literal.size() - 2);
}

/// One literal of several, with line breaks between them.
void append_joined(std::string& out, const std::vector<std::string_view>& literals,
                   std::string_view prefix = {}) {
  out += '"';
  out += prefix;
  for (size_t i = 0; i < literals.size(); ++i) {
    out += i == 0 ? "" : "\\n";
    out += inner(literals[i]);
  }
  out += '"';
}

/// A string if there is one text, else parts: how several are joined is the template's business.
void append_user_content(std::string& out, const std::vector<std::string_view>& literals) {
  if (literals.size() == 1) {
    out += literals.front();
    return;
  }
  out += '[';
  for (size_t i = 0; i < literals.size(); ++i) {
    out += i == 0 ? R"({"type":"text","text":)" : R"(,{"type":"text","text":)";
    out += literals[i];
    out += '}';
  }
  out += ']';
}

/// What is left of a system text without the billing header, a literal of `storage` maybe. Empty:
/// nothing.
std::string_view without_preamble(std::string_view literal, std::string& storage) {
  const std::string_view text = inner(literal);
  if (!text.starts_with(kBillingHeader)) {
    return literal;
  }
  // The line's end is spelled as an escape; a backslash of another one does not hide it.
  size_t at = 0;
  while (at + 1 < text.size() && (text[at] != '\\' || text[at + 1] != 'n')) {
    at += text[at] == '\\' ? 2 : 1;
  }
  if (at + 2 >= text.size()) {
    return {};
  }
  storage = '"';
  storage += text.substr(at + 2);
  storage += '"';
  return storage;
}

/// Blocks of tools that Anthropic's servers run.
bool is_of_server_tools(std::string_view type) {
  return type.ends_with("_result") || type == "container_upload" || type == "compaction";
}

bool says_error(std::string_view text) {
  constexpr std::string_view kWord = "error";
  return text.size() >= kWord.size() &&
         std::ranges::equal(text.substr(0, kWord.size()), kWord,
                            [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

// ---- system

void Conversation::read_system(const Path& path, bool strip_preamble) {
  std::vector<std::string_view> texts;
  system_.clear();
  switch (in_.peek()) {
    case json::Kind::kString:
      if (const auto text = in_.raw_string(path)) {
        texts.push_back(*text);
      }
      break;
    case json::Kind::kArray:
      in_.array(path, [&](size_t, const Path& element) {
        const Block block = read_block(element);
        if (block.type != BlockType::kText) {
          in_.violation(Path(element, "type"), "must be \"text\" in system");
        } else if (require(block.text, element, "text")) {
          texts.push_back(*block.text);
        }
      });
      break;
    case json::Kind::kNull:
      in_.skip();
      return;
    default:
      in_.type_error(path, "a string or an array of text blocks");
      return;
  }
  std::string storage;
  if (strip_preamble && !texts.empty()) {
    texts.front() = without_preamble(texts.front(), storage);
    if (texts.front().empty()) {
      texts.erase(texts.begin());
    }
  }
  const bool says_something =
      std::ranges::any_of(texts, [](std::string_view literal) { return !inner(literal).empty(); });
  if (says_something) {
    append_joined(system_, texts);
  }
}

// ---- blocks

void Conversation::read_block_type(const Path& path, Block& block) {
  static constexpr auto kTypes = std::to_array<std::pair<std::string_view, BlockType>>({
      {"text", BlockType::kText},
      {"thinking", BlockType::kThinking},
      {"redacted_thinking", BlockType::kRedactedThinking},
      {"tool_use", BlockType::kToolUse},
      {"server_tool_use", BlockType::kToolUse},
      {"tool_result", BlockType::kToolResult},
      {"document", BlockType::kDocument},
      {"image", BlockType::kImage},
  });
  const auto name = in_.string(path);
  if (!name) {
    return;
  }
  const auto* const known =
      std::ranges::find(kTypes, *name, &std::pair<std::string_view, BlockType>::first);
  block.type = known == kTypes.end() ? BlockType::kUnknown : known->second;
  block.type_name = name->substr(0, kTypeNameShown);
}

/// Of a document or image. Only a document's plain text can be read.
void Conversation::read_source(const Path& path, Block& block) {
  bool is_text = false;
  std::optional<std::string_view> data;
  in_.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      is_text = in_.string(member) == "text";
    } else if (key == "data") {
      data = in_.raw_string(member);
    } else {
      in_.skip();
    }
  });
  if (is_text) {
    block.document = data;
  }
}

/// Of a tool_result. What cannot be passed on is reported once it is clear that it is one.
void Conversation::read_result_content(const Path& path, Block& block) {
  block.content.clear();
  if (in_.peek() != json::Kind::kArray) {
    if (in_.peek() == json::Kind::kString) {
      block.content.push_back(in_.raw_string(path).value_or("\"\""));
    } else {
      in_.skip();  // null; of other blocks this may be anything
    }
    return;
  }
  in_.array(path, [&](size_t index, const Path& element) {
    const Block part = read_block(element);
    if (part.type == BlockType::kText && part.text) {
      block.content.push_back(*part.text);
    } else if (part.type == BlockType::kDocument && part.document) {
      block.content.push_back(*part.document);
    } else if (!block.refused_part) {
      block.refused_part = index;
      block.refused_type = part.type_name;
    }
  });
}

void Conversation::read_block_member(std::string_view key, const Path& path, Block& block) {
  if (key == "type") {
    read_block_type(path, block);
  } else if (key == "text") {
    block.text = in_.raw_string(path);
  } else if (key == "thinking") {
    block.thinking = in_.raw_string(path);
  } else if (key == "id") {
    block.id = in_.raw_string(path);
  } else if (key == "name") {
    block.name = in_.raw_string(path);
  } else if (key == "input") {
    block.input = in_.raw_object(path);
  } else if (key == "tool_use_id") {
    block.tool_use_id = in_.raw_string(path);
  } else if (key == "content") {
    read_result_content(path, block);
  } else if (key == "is_error") {
    block.is_error = in_.boolean(path).value_or(false);
  } else if (key == "source") {
    read_source(path, block);
  } else if (key == "cache_control") {
    cache_control_seen_ |= in_.any(path).has_value();
  } else if (key == "citations") {
    const auto citations = in_.any(path);
    citations_seen_ |= citations && *citations != "[]";
  } else {
    in_.skip();
  }
}

Conversation::Block Conversation::read_block(const Path& path) {
  Block block;
  const bool present = in_.object(path, [&](std::string_view key, const Path& member) {
    read_block_member(key, member, block);
  });
  if (!present || block.type == BlockType::kNone) {
    in_.violation(Path(path, "type"), "is required");
  }
  return block;
}

bool Conversation::require(const std::optional<std::string_view>& member, const Path& path,
                           std::string_view name) {
  if (!member) {
    in_.violation(Path(path, name), "is required");
  }
  return member.has_value();
}

void Conversation::take_result(const Block& block, const Path& path) {
  if (!require(block.tool_use_id, path, "tool_use_id")) {
    return;
  }
  if (block.refused_part) {
    const Path content(path, "content");
    in_.unsupported(Path(Path(content, *block.refused_part), "type"),
                    fmt::format("is \"{}\": the model reads text only", block.refused_type));
    return;
  }
  flush();
  open_message("tool");
  out_ += R"(,"tool_call_id":)";
  out_ += *block.tool_use_id;
  out_ += R"(,"content":)";
  const bool marks =
      block.is_error && (block.content.empty() || !says_error(inner(block.content.front())));
  append_joined(out_, block.content, marks ? kErrorPrefix : std::string_view());
  out_ += '}';
  last_role_ = Role::kTool;
}

void Conversation::take(Role role, const Block& block, const Path& path) {
  const bool assistant = role == Role::kAssistant;
  switch (block.type) {
    case BlockType::kText:
      if (require(block.text, path, "text")) {
        turn_.texts.push_back(*block.text);
      }
      return;
    case BlockType::kThinking:
      if (assistant && require(block.thinking, path, "thinking")) {
        turn_.thoughts.push_back(*block.thinking);
      }
      break;
    case BlockType::kRedactedThinking:
      break;
    case BlockType::kToolUse:
      if (assistant && require(block.id, path, "id") && require(block.name, path, "name")) {
        turn_.calls.push_back({*block.id, *block.name, block.input.value_or("{}")});
      }
      break;
    case BlockType::kToolResult:
      if (role == Role::kUser) {
        take_result(block, path);
        return;
      }
      in_.violation(Path(path, "type"), "tool_result is only allowed in user messages");
      return;
    case BlockType::kDocument:
      if (block.document && role == Role::kUser) {
        turn_.texts.push_back(*block.document);
        return;
      }
      [[fallthrough]];
    case BlockType::kImage:
      in_.unsupported(Path(path, "type"),
                      fmt::format("is \"{}\": the model reads text only", block.type_name));
      return;
    case BlockType::kUnknown:
      if (is_of_server_tools(block.type_name)) {
        in_.unsupported(Path(path, "type"),
                        fmt::format("is \"{}\", which is not supported", block.type_name));
      } else {
        in_.violation(Path(path, "type"),
                      fmt::format("is \"{}\", which is no known type", block.type_name));
      }
      return;
    case BlockType::kNone:
      return;
  }
  if (!assistant) {
    in_.violation(Path(path, "type"),
                  fmt::format("{} is only allowed in assistant messages", block.type_name));
  }
}

// ---- messages

void Conversation::read_content(Role role, const Path& path) {
  switch (in_.peek()) {
    case json::Kind::kString:
      if (const auto text = in_.raw_string(path); text && inner(*text).empty()) {
        if (role != Role::kAssistant) {
          in_.violation(path, "must not be empty");
        }
      } else if (text) {
        turn_.texts.push_back(*text);
      }
      return;
    case json::Kind::kArray: {
      bool any = false;
      in_.array(path, [&](size_t, const Path& element) {
        any = true;
        take(role, read_block(element), element);
      });
      if (!any && role != Role::kAssistant) {
        in_.violation(path, "must not be empty");
      }
      return;
    }
    default:
      in_.type_error(path, "a string or an array of blocks");
  }
}

void Conversation::read_message(const Path& path) {
  // The role decides how the content is read; where it comes second, that waits.
  std::optional<Role> role;
  bool content_seen = false;
  std::optional<std::string_view> early_content;
  const bool present = in_.object(path, [&](std::string_view key, const Path& member) {
    if (key == "role") {
      const auto name = in_.string(member);
      if (name == "user") {
        role = Role::kUser;
      } else if (name == "assistant") {
        role = Role::kAssistant;
      } else if (name == "system") {
        role = Role::kSystem;
      } else if (name) {
        in_.violation(member, "must be one of user, assistant, system");
      }
    } else if (key == "content") {
      content_seen = true;
      if (role) {
        begin_turn(*role);
        read_content(*role, member);
      } else {
        early_content = in_.any(member);
      }
    } else {
      in_.skip();
    }
  });
  if (!present || !role) {
    in_.violation(Path(path, "role"), "is required");
  } else if (!content_seen) {
    in_.violation(Path(path, "content"), "is required");
  } else if (early_content) {
    begin_turn(*role);
    in_.nested(*early_content, [&] { read_content(*role, Path(path, "content")); });
  }
}

void Conversation::read_messages(const Path& path) {
  out_.clear();
  turn_ = {};
  written_ = 0;
  bool any = false;
  messages_seen_ = in_.array(path, [&](size_t, const Path& message) {
    any = true;
    read_message(message);
  });
  continues_ = turn_.role == Role::kAssistant && turn_.calls.empty() && !turn_.texts.empty();
  flush();
  if (messages_seen_ && !any) {
    in_.violation(path, "must not be empty", Rank::kRequired);
  } else if (messages_seen_ && written_ == 0) {
    in_.violation(path, "must have a message that says something");
  }
}

void Conversation::begin_turn(Role role) {
  if (role != turn_.role) {
    flush();
    turn_.role = role;
  }
}

void Conversation::open_message(std::string_view role) {
  out_ += written_++ == 0 ? R"({"role":")" : R"(,{"role":")";
  out_ += role;
  out_ += '"';
}

void Conversation::write_assistant() {
  open_message("assistant");
  out_ += R"(,"content":)";
  if (turn_.texts.empty()) {
    out_ += turn_.calls.empty() ? R"("")" : "null";
  } else {
    append_joined(out_, turn_.texts);
  }
  if (!turn_.thoughts.empty()) {
    out_ += R"(,"reasoning_content":)";
    append_joined(out_, turn_.thoughts);
  }
  for (size_t i = 0; i < turn_.calls.size(); ++i) {
    const Call& call = turn_.calls[i];
    out_ += i == 0 ? R"(,"tool_calls":[{"id":)" : R"(,{"id":)";
    out_ += call.id;
    out_ += R"(,"type":"function","function":{"name":)";
    out_ += call.name;
    out_ += R"(,"arguments":)";
    json::append_string(out_, call.input);
    out_ += i + 1 == turn_.calls.size() ? "}}]" : "}}";
  }
  out_ += '}';
}

void Conversation::flush() {
  if (turn_.empty()) {
    return;
  }
  last_role_ = turn_.role;
  if (turn_.role == Role::kAssistant) {
    write_assistant();
  } else {
    open_message(turn_.role == Role::kUser ? "user" : "system");
    out_ += R"(,"content":)";
    if (turn_.role == Role::kUser) {
      append_user_content(out_, turn_.texts);
    } else {
      append_joined(out_, turn_.texts);
    }
    out_ += '}';
  }
  turn_.texts.clear();
  turn_.thoughts.clear();
  turn_.calls.clear();
}

void Conversation::write_to(api::ChatInput& chat) {
  std::string& json = chat.messages_json;
  constexpr std::string_view kSystemBegin = R"({"role":"system","content":)";
  json.reserve(out_.size() + system_.size() + kSystemBegin.size() + 4);
  json = '[';
  if (!system_.empty()) {
    json += kSystemBegin;
    json += system_;
    json += written_ > 0 ? "}," : "}";
  }
  json += out_;
  json += ']';
  chat.message_count = written_ + (system_.empty() ? 0 : 1);
  chat.last_role = last_role_;
  chat.continue_final_message = continues_;
  chat.add_generation_prompt = !continues_;
}

}  // namespace stator::protocols::anthropic
