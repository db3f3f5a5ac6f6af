// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/json/writer.h"
#include "stator/protocols/anthropic/cache_control.h"

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

bool is_image_type(std::string_view type) {
  static constexpr std::array<std::string_view, 4> kTypes = {"image/jpeg", "image/png", "image/gif",
                                                             "image/webp"};
  return std::ranges::find(kTypes, type) != kTypes.end();
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

/// Of a document or image.
void Conversation::read_source(const Path& path, Block& block) {
  if (in_.peek() == json::Kind::kString) {
    in_.skip();  // of search results, which are refused by their type
    return;
  }
  Source source;
  const bool present = in_.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      source.type = in_.string(member).value_or("");
    } else if (key == "data") {
      source.data = in_.raw_string(member);
    } else if (key == "media_type") {
      source.media_type = in_.string(member);
    } else if (key == "url") {
      source.url = in_.raw_string(member);
    } else {
      in_.skip();
    }
  });
  if (present) {
    block.source = std::move(source);
  }
}

std::optional<std::string_view> Conversation::document_text(const Block& block) {
  return block.source && block.source->type == "text" ? block.source->data : std::nullopt;
}

std::optional<std::string> Conversation::image_part(const Block& block, const Path& path) {
  const Path at(path, "source");
  if (!block.source) {
    in_.violation(at, "is required");
    return std::nullopt;
  }
  const Source& source = *block.source;
  std::string out = R"({"type":"image_url","image_url":{"url":)";
  if (source.type == "base64") {
    if (!source.media_type || !is_image_type(*source.media_type)) {
      in_.violation(Path(at, "media_type"),
                    "must be one of image/jpeg, image/png, image/gif, image/webp");
      return std::nullopt;
    }
    if (!source.data || inner(*source.data).empty()) {
      in_.violation(Path(at, "data"), "is required");
      return std::nullopt;
    }
    out.append("\"data:").append(*source.media_type).append(";base64,");
    out.append(inner(*source.data)).append("\"");
  } else if (source.type == "url") {
    if (!source.url || inner(*source.url).empty()) {
      in_.violation(Path(at, "url"), "is required");
      return std::nullopt;
    }
    out += *source.url;
  } else {
    in_.violation(Path(at, "type"), "must be one of base64, url");
    return std::nullopt;
  }
  return out + "}}";
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
    } else if (const auto text = document_text(part); part.type == BlockType::kDocument && text) {
      block.content.push_back(*text);
    } else if (part.type == BlockType::kImage) {
      if (auto image = image_part(part, element)) {
        block.images.push_back({block.content.size(), std::move(*image), element.text()});
      }
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
    keep_s_ = std::max(keep_s_, read_cache_control(in_, path));
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
    in_.violation(Path(Path(content, *block.refused_part), "type"),
                  fmt::format("is \"{}\": the result of a tool is text, plain-text documents and "
                              "images here",
                              block.refused_type));
    return;
  }
  flush();
  open_message("tool");
  out_ += R"(,"tool_call_id":)";
  out_ += *block.tool_use_id;
  out_ += R"(,"content":)";
  const bool marks =
      block.is_error && (block.content.empty() || !says_error(inner(block.content.front())));
  const std::string_view prefix = marks ? kErrorPrefix : std::string_view();
  if (block.images.empty()) {
    append_joined(out_, block.content, prefix);
  } else {
    write_content(block.content, block.images, prefix);
  }
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
      if (const auto text = document_text(block); text && role == Role::kUser) {
        turn_.texts.push_back(*text);
        return;
      }
      in_.violation(path,
                    "is a document that is no plain text in a user message: send its text, or "
                    "images of its pages");
      return;
    case BlockType::kImage:
      if (role != Role::kUser) {
        in_.violation(Path(path, "type"), "image is only allowed in user messages");
      } else if (auto image = image_part(block, path)) {
        turn_.images.push_back({turn_.texts.size(), std::move(*image), path.text()});
      }
      return;
    case BlockType::kUnknown:
      in_.unsupported(
          Path(path, "type"),
          fmt::format("is \"{0}\": content block type \"{0}\" is not supported", block.type_name));
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
  image_paths_.clear();
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

/// A string if there is one text, else parts: how several are joined is the template's business.
void Conversation::write_content(const Literals& literals, const std::vector<Image>& images,
                                 std::string_view prefix) {
  if (literals.size() == 1 && images.empty()) {
    append_joined(out_, literals, prefix);
    return;
  }
  char separator = '[';
  size_t next_image = 0;
  const auto write_images = [&](size_t texts_before) {
    while (next_image < images.size() && images[next_image].texts_before == texts_before) {
      out_ += separator;
      out_ += images[next_image].part;
      image_paths_.push_back(images[next_image++].path);
      separator = ',';
    }
  };
  write_images(0);
  for (size_t i = 0; i < literals.size(); ++i) {
    out_ += separator;
    out_ += R"({"type":"text","text":)";
    append_joined(out_, {literals[i]}, i == 0 ? prefix : std::string_view());
    out_ += '}';
    separator = ',';
    write_images(i + 1);
  }
  out_ += ']';
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
      write_content(turn_.texts, turn_.images);
    } else {
      append_joined(out_, turn_.texts);
    }
    out_ += '}';
  }
  turn_.texts.clear();
  turn_.images.clear();
  turn_.thoughts.clear();
  turn_.calls.clear();
}

void Conversation::write_to(api::ChatInput& chat, uint32_t depth_max) {
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
  if (image_paths_.empty() || in_.failed()) {
    return;
  }
  if (api::ApiStatus taken = api::take_media(json, depth_max, chat.media); !taken.has_value()) {
    in_.adopt(std::move(taken.error()));
  }
  for (size_t i = 0; i < chat.media.size() && i < image_paths_.size(); ++i) {
    chat.media[i].path = std::move(image_paths_[i]);  // as the client knows it
  }
}

}  // namespace stator::protocols::anthropic
