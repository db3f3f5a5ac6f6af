// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "stator/api/detail/responses_reader.h"
#include "stator/api/field_reader.h"
#include "stator/api/freeform_input.h"
#include "stator/api/media_parts.h"
#include "stator/api/responses_request.h"
#include "stator/json/cursor.h"
#include "stator/json/writer.h"

namespace stator::api {

/// One item's members as they stand in the text; empty = absent or null.
struct Conversation::Item {
  std::string_view type;
  std::string_view role;
  std::string_view content;
  std::string_view id;
  std::string_view call_id;
  std::string_view name;
  std::string_view space;
  std::string_view arguments;
  std::string_view input;
  std::string_view output;
  std::string_view summary;
  std::string_view encrypted;
};

namespace {

/// "x" without its quotes.
std::string_view body_of(std::string_view json_string) {
  return json_string.size() < 2 ? std::string_view()
                                : json_string.substr(1, json_string.size() - 2);
}

enum class PartKind : uint8_t { kText, kRefusal, kMedia, kFile };
struct PartType {
  std::string_view name;
  PartKind kind;
};
constexpr auto kPartTypes = std::to_array<PartType>({
    {"input_text", PartKind::kText},
    {"output_text", PartKind::kText},
    {"text", PartKind::kText},
    {"summary_text", PartKind::kText},
    {"reasoning_text", PartKind::kText},
    {"refusal", PartKind::kRefusal},
    {"input_image", PartKind::kMedia},
    {"input_file", PartKind::kFile},
    {"input_audio", PartKind::kMedia},
    {"input_video", PartKind::kMedia},
});

}  // namespace

/// Reads items into a conversation; errors stay in `in`.
struct ItemReader {
  FieldReader& in;
  Conversation& conversation;
  const Conversation::Lookup& lookup;
  uint32_t depth_max;
  bool is_reference = false;  // what is read now was looked up

  using Item = Conversation::Item;

  void string_member(const Path& path, std::string_view& into) {
    into = raw_string(in, path).value_or(std::string_view());
  }
  void any_member(const Path& path, std::string_view& into) {
    into = in.any(path).value_or(std::string_view());
  }

  void read_member(std::string_view key, const Path& path, Item& item) {
    static constexpr auto kStrings =
        std::to_array<std::pair<std::string_view, std::string_view Item::*>>({
            {"type", &Item::type},
            {"role", &Item::role},
            {"id", &Item::id},
            {"call_id", &Item::call_id},
            {"name", &Item::name},
            {"namespace", &Item::space},
            {"arguments", &Item::arguments},
            {"input", &Item::input},
            {"encrypted_content", &Item::encrypted},
        });
    for (const auto& [name, member] : kStrings) {
      if (name == key) {
        string_member(path, item.*member);
        return;
      }
    }
    if (key == "content") {
      any_member(path, item.content);
    } else if (key == "output") {
      any_member(path, item.output);
    } else if (key == "summary") {
      any_member(path, item.summary);
    } else {
      in.skip();
    }
  }

  /// Items of OpenAI's that come from tools which a server runs.
  static bool is_other_item(std::string_view type) {
    return type.ends_with("_call") || type.ends_with("_output") || type.starts_with("mcp_") ||
           type == "compaction_trigger";
  }

  void read_item(const Path& path) {
    Item item;
    if (!in.object(path, [&](std::string_view key, const Path& member) {
          read_member(key, member, item);
        })) {
      in.violation(path, "must be an object");
      return;
    }
    const std::string type = decode_raw(item.type);
    if (type == "message" || (type.empty() && !item.role.empty())) {
      read_message(path, item);
    } else if (type == "function_call") {
      read_call(path, item);
    } else if (type == "custom_tool_call") {
      read_custom_call(path, item);
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      read_output(path, item);
    } else if (type == "compaction" || type == "compaction_summary") {
      read_compaction(path, item);
    } else if (type == "reasoning") {
      read_reasoning_item(path, item);
    } else if (type == "item_reference" || (type.empty() && !item.id.empty())) {
      read_reference(path, item);
    } else if (type.empty()) {
      in.violation(Path(path, "type"), "is required");
    } else if (!is_other_item(type)) {
      in.violation(Path(path, "type"),
                   fmt::format("is \"{}\", which is no known type", type.substr(0, 64)));
    } else {
      in.unsupported(
          Path(path, "type"),
          fmt::format("is \"{}\", which this server does not support: it knows message, "
                      "function_call, custom_tool_call, their outputs, reasoning, compaction and "
                      "item_reference",
                      type.substr(0, 64)));
    }
  }

  void read_message(const Path& path, const Item& item) {
    const std::string role = decode_raw(item.role);
    static constexpr auto kRoles = std::to_array<std::pair<std::string_view, Role>>({
        {"user", Role::kUser},
        {"system", Role::kSystem},
        {"developer", Role::kDeveloper},
        {"assistant", Role::kAssistant},
    });
    for (const auto& [name, kind] : kRoles) {
      if (name != role) {
        continue;
      }
      const auto content = read_content(Path(path, "content"), item.content, kind);
      if (!content) {
        return;
      }
      if (kind == Role::kAssistant) {
        conversation.add_assistant_content(*content);
      } else {
        conversation.add_message(name, kind, *content);
      }
      return;
    }
    in.violation(Path(path, "role"), "must be one of user, assistant, system, developer");
  }

  /// Content in the words of a chat: a string, or parts where there are several.
  std::optional<std::string> read_content(const Path& path, std::string_view content, Role role) {
    if (content.empty()) {
      in.violation(path, "is required");
      return std::nullopt;
    }
    if (content.front() == '"') {
      return std::string(content);
    }
    if (content.front() != '[') {
      in.violation(path, "must be a string or an array of parts");
      return std::nullopt;
    }
    const auto parts = read_parts(path, content);
    if (!parts) {
      return std::nullopt;
    }
    if (role != Role::kUser && has_media(*parts)) {
      in.violation(path, "may have images and audio in user messages only");
      return std::nullopt;
    }
    if (parts->size() == 1 && !has_media(*parts)) {
      return std::string(parts->front().text);
    }
    if (role == Role::kAssistant || parts->empty()) {
      return join(*parts, "");
    }
    return write_parts(*parts);
  }

  /// A part in the words of a chat: a text as a JSON string, or a medium's part.
  struct ContentPart {
    std::string_view text;
    std::string media;
    std::string path;
  };
  using ContentParts = std::vector<ContentPart>;

  static bool has_media(const ContentParts& parts) {
    return std::ranges::any_of(parts, [](const ContentPart& part) { return !part.media.empty(); });
  }

  static std::string join(const ContentParts& parts, std::string_view between) {
    std::string out = "\"";
    for (const ContentPart& part : parts) {
      out += out.size() > 1 ? between : "";
      out += body_of(part.text);
    }
    return out + "\"";
  }

  std::string write_parts(const ContentParts& parts) {
    std::string out;
    json::Writer json(out);
    json.begin_array();
    for (const ContentPart& part : parts) {
      if (part.media.empty()) {
        json.begin_object().key("type").value("text").key("text").raw(part.text).end_object();
      } else {
        json.raw(part.media);
        conversation.media_paths_.push_back(part.path);
      }
    }
    json.end_array();
    return out;
  }

  /// Nothing after an error.
  std::optional<ContentParts> read_parts(const Path& path, std::string_view parts) {
    FieldReader reader(parts, depth_max);
    ContentParts out;
    bool good = true;
    reader.array(path,
                 [&](size_t, const Path& part) { good = read_part(reader, part, out) && good; });
    if (ApiStatus read = reader.finish(); !read.has_value()) {
      in.adopt(std::move(read.error()));
      return std::nullopt;
    }
    if (ApiStatus verdict = reader.verdict(); !verdict.has_value()) {
      in.adopt(std::move(verdict.error()));
      return std::nullopt;
    }
    return good ? std::optional(std::move(out)) : std::nullopt;
  }

  /// Members of a part as they stand in the text.
  struct PartMembers {
    std::string_view type;
    std::string_view text;
    std::string_view refusal;
    std::string_view detail;
    std::string_view source;  // image_url or input_audio
    std::string_view file_data;
    bool has_source = false;
    bool has_file = false;  // file_data, file_id or file_url
  };

  bool read_part(FieldReader& reader, const Path& path, ContentParts& parts) {
    PartMembers members;
    reader.object(path, [&](std::string_view key, const Path& member) {
      if (key == "type") {
        string_of(reader, member, members.type);
      } else if (key == "text") {
        string_of(reader, member, members.text);
      } else if (key == "refusal") {
        string_of(reader, member, members.refusal);
      } else if (key == "detail") {
        string_of(reader, member, members.detail);
      } else if (key == "file_data") {
        string_of(reader, member, members.file_data);
        members.has_file = true;
      } else if (key == "file_id" || key == "file_url") {
        members.has_file = reader.string(member).has_value() || members.has_file;
      } else if (key == "image_url" || key == "input_audio") {
        members.source = reader.any(member).value_or(std::string_view());
        if (!members.source.empty()) {
          reader.nested(members.source,
                        [&] { read_media_member(reader, key, member, members.has_source); });
        }
      } else {
        reader.skip();
      }
    });
    const std::string type = decode_raw(members.type);
    for (const PartType& known : kPartTypes) {
      if (known.name == type) {
        return take_part(path, known, members, parts);
      }
    }
    in.violation(Path(path, "type"),
                 type.empty() ? std::string("is required")
                              : fmt::format("is \"{}\", which is not a known content type",
                                            type.substr(0, 64)));
    return false;
  }

  static void string_of(FieldReader& reader, const Path& path, std::string_view& into) {
    into = raw_string(reader, path).value_or(std::string_view());
  }

  bool take_part(const Path& path, const PartType& type, const PartMembers& members,
                 ContentParts& parts) {
    if (type.kind == PartKind::kMedia) {
      return take_medium(path, type.name, members, parts);
    }
    if (type.kind == PartKind::kFile) {
      if (body_of(members.file_data).starts_with("data:image/")) {
        parts.push_back(
            {.text = {},
             .media = fmt::format(R"({{"type":"image_url","image_url":{}}})", members.file_data),
             .path = path.text()});
        return true;
      }
      if (members.has_file) {
        in.unsupported(path,
                       "is a file that is no image: file input content is not supported, send its "
                       "text, or images of its pages");
      } else {
        in.violation(path, "requires exactly one of file_data, file_id, or file_url");
      }
      return false;
    }
    const std::string_view text = type.kind == PartKind::kText ? members.text : members.refusal;
    if (text.empty()) {
      in.violation(Path(path, type.kind == PartKind::kText ? "text" : "refusal"),
                   "is required and must be a string");
      return false;
    }
    parts.push_back({.text = text, .media = {}, .path = {}});
    return true;
  }

  bool take_medium(const Path& path, std::string_view type, const PartMembers& members,
                   ContentParts& parts) {
    const std::string_view name = media_member_of(type);
    if (type == "input_image" && !members.has_source) {
      if (members.has_file) {
        in.unsupported(path,
                       "is an image input by file_id, which is not supported: send image_url");
      } else {
        in.violation(path, "requires file_id or image_url");
      }
      return false;
    }
    if (name.empty() || !members.has_source) {
      in.violation(name.empty() ? Path(path, "type") : Path(path, name),
                   name.empty() ? fmt::format("is \"{}\", which is not supported", type)
                                : std::string("is required and must be a URL"));
      return false;
    }
    std::string part = fmt::format(R"({{"type":"{}","{}":{})", type, name, members.source);
    if (!members.detail.empty()) {
      part += fmt::format(R"(,"detail":{})", members.detail);
    }
    parts.push_back({.text = {}, .media = part + "}", .path = path.text()});
    return true;
  }

  void read_call(const Path& path, const Item& item) {
    if (item.call_id.empty()) {
      in.violation(Path(path, "call_id"), "is required");
    } else if (item.name.empty()) {
      in.violation(Path(path, "name"), "is required");
    } else if (const std::string text = decode_raw(item.arguments);
               !is_object_or_blank(text, depth_max)) {
      in.violation(Path(path, "arguments"), "must be blank or a JSON object");
    } else {
      conversation.add_call(item, item.call_id, item.arguments.empty() ? "\"{}\"" : item.arguments);
    }
  }

  void read_custom_call(const Path& path, const Item& item) {
    if (item.call_id.empty()) {
      in.violation(Path(path, "call_id"), "is required");
    } else if (item.name.empty()) {
      in.violation(Path(path, "name"), "is required");
    } else if (item.input.empty()) {
      in.violation(Path(path, "input"), "is required");
    } else {
      conversation.add_call(item, item.call_id, freeform_arguments(item.input));
    }
  }

  /// What POST /v1/responses/compact made of a conversation. The model reads it as its own words.
  void read_compaction(const Path& path, const Item& item) {
    const auto summary = decode_reasoning(decode_raw(item.encrypted));
    if (!summary) {
      in.violation(Path(path, "encrypted_content"),
                   "was not made by this server: send the item as /v1/responses/compact gave it");
      return;
    }
    std::string content;
    json::append_string(content, "Summary of the conversation so far:\n\n" + *summary);
    conversation.add_assistant_content(content);
  }

  void read_output(const Path& path, const Item& item) {
    const Path at(path, "output");
    if (item.call_id.empty()) {
      in.violation(Path(path, "call_id"), "is required");
    } else if (item.output.empty()) {
      in.violation(at, "is required");
    } else if (item.output.front() == '"') {
      conversation.add_output(item.call_id, item.output);
    } else if (item.output.front() != '[') {
      in.violation(at, "must be a string or an array of parts");
    } else if (const auto parts = read_parts(at, item.output)) {
      conversation.add_output(item.call_id,
                              has_media(*parts) ? write_parts(*parts) : join(*parts, "\\n"));
    }
  }

  void read_reasoning_item(const Path& path, const Item& item) {
    for (const auto& [name, parts] :
         {std::pair{"content", item.content}, {"summary", item.summary}}) {
      if (parts.empty() || parts == "[]") {
        continue;
      }
      if (parts.front() != '[') {
        in.violation(Path(path, name), "must be an array of parts");
        return;
      }
      const auto read = read_parts(Path(path, name), parts);
      if (read && !read->empty()) {
        for (const ContentPart& part : *read) {
          conversation.add_reasoning(body_of(part.text));
        }
        return;
      }
    }
    if (const auto text = decode_reasoning(decode_raw(item.encrypted))) {
      std::string escaped;
      json::append_escaped(escaped, *text);
      conversation.add_reasoning(escaped);
    }
  }

  void read_reference(const Path& path, const Item& item) {
    const std::string id = decode_raw(item.id);
    const auto found = lookup && !is_reference ? lookup(id) : std::nullopt;
    if (!found) {
      in.violation(Path(path, "id"),
                   fmt::format("names an item nobody knows: {}; items of stored responses can be "
                               "referred to until these expire",
                               id.substr(0, 128)));
      return;
    }
    FieldReader reader(*found, depth_max);
    ItemReader nested{reader, conversation, lookup, depth_max, true};
    nested.read_item(path);
    if (ApiStatus status = reader.finish(); !status.has_value()) {
      in.adopt(std::move(status.error()));
    } else if (ApiStatus verdict = reader.verdict(); !verdict.has_value()) {
      in.adopt(std::move(verdict.error()));
    }
  }
};

Conversation::Conversation(ChatInput& chat, uint32_t depth_max, std::vector<NamespacedTool> tools)
    : chat_(chat), depth_max_(depth_max), tools_(std::move(tools)) {
  chat_.messages_json = "[";
  chat_.message_count = 0;
}

std::string& Conversation::begin_message(Role kind) {
  if (chat_.message_count++ > 0) {
    chat_.messages_json += ',';
  }
  chat_.last_role = kind;
  return chat_.messages_json;
}

void Conversation::add_instructions(std::string_view text) {
  if (text.empty()) {
    return;
  }
  std::string content;
  json::append_string(content, text);
  add_message("system", Role::kSystem, content);
}

void Conversation::add_message(std::string_view role, Role kind, std::string_view content_json) {
  flush();
  std::string& out = begin_message(kind);
  out.append(R"({"role":")").append(role).append(R"(","content":)");
  out.append(content_json).append("}");
}

void Conversation::add_assistant_content(std::string_view content_json) {
  if (!content_.empty() || !calls_.empty()) {
    flush();
  }
  content_ = content_json;
}

void Conversation::add_reasoning(std::string_view text_body) {
  if (!content_.empty() || !calls_.empty()) {
    flush();
  }
  reasoning_ += reasoning_.empty() ? "" : "\\n";
  reasoning_ += text_body;
}

void Conversation::add_call(const Item& item, std::string_view call_id_json,
                            std::string_view arguments_json) {
  std::string name(item.name);
  if (!item.space.empty()) {
    const std::string flat = fmt::format("{}__{}", decode_raw(item.space), decode_raw(item.name));
    name.clear();
    json::append_string(name, flat);
  }
  calls_ += calls_.empty() ? "" : ",";
  calls_.append(R"({"id":)")
      .append(call_id_json)
      .append(R"(,"type":"function","function":{"name":)");
  calls_.append(name).append(R"(,"arguments":)").append(arguments_json).append("}}");
}

void Conversation::add_output(std::string_view call_id_json, std::string_view content_json) {
  flush();
  std::string& out = begin_message(Role::kTool);
  out.append(R"({"role":"tool","tool_call_id":)").append(call_id_json).append(R"(,"content":)");
  out.append(content_json).append("}");
}

void Conversation::flush() {
  if (content_.empty() && reasoning_.empty() && calls_.empty()) {
    return;
  }
  std::string& out = begin_message(Role::kAssistant);
  out.append(R"({"role":"assistant","content":)");
  out.append(!content_.empty() ? content_ : calls_.empty() ? R"("")" : "null");
  if (!reasoning_.empty()) {
    out.append(R"(,"reasoning_content":")").append(reasoning_).append("\"");
  }
  if (!calls_.empty()) {
    out.append(R"(,"tool_calls":[)").append(calls_).append("]");
  }
  out += '}';
  content_.clear();
  reasoning_.clear();
  calls_.clear();
}

ApiStatus Conversation::add_items(std::string_view items_json, const Lookup& lookup) {
  if (items_json.empty()) {
    return {};
  }
  if (items_json.front() == '"') {
    add_message("user", Role::kUser, items_json);
    return {};
  }
  FieldReader in(items_json, depth_max_);
  ItemReader reader{in, *this, lookup, depth_max_};
  const Path root("input");
  in.array(root, [&](size_t, const Path& item) { reader.read_item(item); });
  STATOR_CHECK(in.finish());
  return in.verdict();
}

ApiStatus Conversation::finish() {
  flush();
  chat_.messages_json += ']';
  if (chat_.message_count == 0) {
    return validation_error("input", "input is required and must not be empty");
  }
  if (!media_paths_.empty()) {
    STATOR_CHECK(take_media(chat_.messages_json, depth_max_, chat_.media));
    for (size_t i = 0; i < chat_.media.size() && i < media_paths_.size(); ++i) {
      chat_.media[i].path = std::move(media_paths_[i]);  // as the client knows it
    }
  }
  return {};
}

}  // namespace stator::api
