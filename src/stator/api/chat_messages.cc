// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "stator/api/detail/chat_reader.h"
#include "stator/api/media_parts.h"

namespace stator::api {
namespace {

enum class PartKind : uint8_t { kText, kRefusal, kThinking, kMedia, kFile, kUnknown };

struct PartType {
  std::string_view name;
  PartKind kind;
  std::string_view text_member;  // the string such a part must have
};

constexpr auto kPartTypes = std::to_array<PartType>({
    {"text", PartKind::kText, "text"},
    {"refusal", PartKind::kRefusal, "refusal"},
    {"thinking", PartKind::kThinking, "thinking"},
    {"redacted_thinking", PartKind::kThinking, "data"},
    {"image_url", PartKind::kMedia, ""},
    {"input_image", PartKind::kMedia, ""},
    {"video_url", PartKind::kMedia, ""},
    {"audio_url", PartKind::kMedia, ""},
    {"input_audio", PartKind::kMedia, ""},
    {"file", PartKind::kFile, ""},
    {"input_file", PartKind::kFile, ""},
});

constexpr auto kRoleNames = std::to_array<std::pair<std::string_view, Role>>({
    {"system", Role::kSystem},
    {"developer", Role::kDeveloper},
    {"user", Role::kUser},
    {"assistant", Role::kAssistant},
    {"tool", Role::kTool},
});

constexpr size_t kNone = static_cast<size_t>(-1);

// What a message contains, gathered before its role may be known.
struct MessageFacts {
  std::optional<Role> role;
  bool role_seen = false;
  bool has_content = false;
  size_t first_refusal_part = kNone;
  size_t first_thinking_part = kNone;
  size_t first_media_part = kNone;
  bool has_tool_calls = false;
  bool has_tool_call_id = false;
};

// ---- content parts

void read_part_type(FieldReader& in, const Path& path, const PartType*& type) {
  const auto name = in.string(path);
  if (!name) {
    return;
  }
  for (const PartType& known : kPartTypes) {
    if (known.name == *name) {
      type = &known;
      return;
    }
  }
  in.violation(path,
               fmt::format("is \"{}\", which is not a known content type", name->substr(0, 64)));
}

/// Which members of parts were seen.
struct PartSeen {
  uint32_t texts = 0;  // string members, as bits in the order of kPartTypes
  bool source = false;
};

void read_part_member(FieldReader& in, std::string_view key, const Path& path, PartSeen& seen) {
  if (read_media_member(in, key, path, seen.source)) {
    return;
  }
  for (size_t i = 0; i < kPartTypes.size(); ++i) {
    if (!kPartTypes[i].text_member.empty() && kPartTypes[i].text_member == key) {
      if (in.has_string(path)) {
        seen.texts |= 1U << i;
      }
      return;
    }
  }
  in.skip();
}

void read_part(FieldReader& in, const Path& path, size_t index, MessageFacts& facts) {
  const PartType* type = nullptr;
  bool type_seen = false;
  PartSeen seen;
  const bool present = in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type_seen = true;
      read_part_type(in, member, type);
    } else {
      read_part_member(in, key, member, seen);
    }
  });
  if (!present || !type_seen) {
    in.violation(Path(path, "type"), "is required");
    return;
  }
  if (type == nullptr) {
    return;
  }
  const auto bit = 1U << static_cast<uint32_t>(type - kPartTypes.data());
  if (type->kind == PartKind::kFile) {
    in.violation(Path(path, "type"),
                 fmt::format("is \"{}\": files are not read, send their text, or images of their "
                             "pages",
                             type->name));
  } else if (type->kind == PartKind::kMedia) {
    if (!seen.source) {
      in.violation(Path(path, media_member_of(type->name)), "is required and must have a URL");
    }
    facts.first_media_part = std::min(facts.first_media_part, index);
  } else if ((seen.texts & bit) == 0) {
    in.violation(Path(path, type->text_member), "is required and must be a string");
  }
  if (type->kind == PartKind::kRefusal && facts.first_refusal_part == kNone) {
    facts.first_refusal_part = index;
  }
  if (type->kind == PartKind::kThinking && facts.first_thinking_part == kNone) {
    facts.first_thinking_part = index;
  }
}

void read_content(FieldReader& in, const Path& path, MessageFacts& facts) {
  facts.first_refusal_part = kNone;
  facts.first_thinking_part = kNone;
  facts.first_media_part = kNone;
  switch (in.peek()) {
    case json::Kind::kString:
      facts.has_content = in.has_string(path);
      return;
    case json::Kind::kArray:
      facts.has_content = in.array(
          path, [&](size_t index, const Path& part) { read_part(in, part, index, facts); });
      return;
    case json::Kind::kNull:
      facts.has_content = false;
      in.skip();
      return;
    default:
      in.type_error(path, "a string or an array of parts");
  }
}

// ---- assistant

bool is_object_or_blank(std::string_view text, uint32_t depth_max) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return true;
  }
  json::Cursor json(text, depth_max);
  return json.peek() == json::Kind::kObject && json.skip() && json.finish();
}

void read_called_function(ChatInputReader& r, const Path& path) {
  FieldReader& in = r.in;
  bool named = false;
  const bool present = in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "name") {
      named = in.string(member, Blank::kRefused).has_value();
    } else if (key == "arguments") {
      const auto arguments = in.string(member);
      if (arguments && !is_object_or_blank(*arguments, r.depth_max)) {
        in.violation(member, "must be blank or a JSON object");
      }
    } else {
      in.skip();
    }
  });
  if (!present || !named) {
    in.violation(Path(path, "name"), "is required");
  }
}

void read_tool_call(ChatInputReader& r, const Path& path) {
  FieldReader& in = r.in;
  bool has_function = false;
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "id") {
      in.has_string(member);
    } else if (key == "type") {
      const auto type = in.string(member);
      if (type && *type != "function") {
        in.violation(member, "must be \"function\"");
      }
    } else if (key == "function") {
      has_function = true;
      read_called_function(r, member);
    } else {
      in.skip();
    }
  });
  if (!has_function) {
    in.violation(Path(path, "function"), "is required");
  }
}

void read_reasoning(FieldReader& in, const Path& path) {
  switch (in.peek()) {
    case json::Kind::kString:
    case json::Kind::kNull:
      in.has_string(path);
      return;
    case json::Kind::kArray:
      in.strings(path);
      return;
    default:
      in.type_error(path, "a string or an array of strings");
  }
}

// ---- messages

void read_role(FieldReader& in, const Path& path, MessageFacts& facts) {
  facts.role.reset();
  const auto name = in.string(path);
  if (!name) {
    return;
  }
  facts.role_seen = true;
  for (const auto& [known, role] : kRoleNames) {
    if (known == *name) {
      facts.role = role;
      return;
    }
  }
  if (*name == "function") {
    in.unsupported(path, "function is not supported: use the role tool");
  } else {
    in.violation(path, "must be one of system, developer, user, assistant, tool");
  }
}

void read_message_member(ChatInputReader& r, std::string_view key, const Path& path,
                         MessageFacts& facts) {
  FieldReader& in = r.in;
  if (key == "role") {
    read_role(in, path, facts);
  } else if (key == "content") {
    read_content(in, path, facts);
  } else if (key == "tool_calls") {
    facts.has_tool_calls = false;
    in.array(path, [&](size_t, const Path& call) {
      facts.has_tool_calls = true;
      read_tool_call(r, call);
    });
  } else if (key == "tool_call_id") {
    facts.has_tool_call_id = in.has_string(path);
  } else if (key == "reasoning_content" || key == "reasoning") {
    read_reasoning(in, path);
  } else if (key == "refusal" || key == "name") {
    in.has_string(path);
  } else if (key == "function_call") {
    if (in.any(path)) {
      in.unsupported(path, "is not supported: use tool_calls");
    }
  } else {
    in.skip();
  }
}

void check_assistant_only(FieldReader& in, const Path& path, const MessageFacts& facts) {
  const Path content(path, "content");
  for (const size_t part : {facts.first_refusal_part, facts.first_thinking_part}) {
    if (part != kNone) {
      in.violation(Path(Path(content, part), "type"), "is only allowed in assistant messages");
    }
  }
  if (facts.has_tool_calls) {
    in.violation(Path(path, "tool_calls"), "is only allowed in assistant messages");
  }
  if (!facts.has_content) {
    in.violation(content, "is required");
  }
}

void read_message(ChatInputReader& r, const Path& path) {
  MessageFacts facts;
  if (!r.in.object(path, [&](std::string_view key, const Path& member) {
        read_message_member(r, key, member, facts);
      })) {
    r.in.violation(path, "must be an object");  // null; other kinds are type errors already
    return;
  }
  if (!facts.role) {
    if (!facts.role_seen) {
      r.in.violation(Path(path, "role"), "is required");
    }
    return;
  }
  if (*facts.role != Role::kAssistant) {
    check_assistant_only(r.in, path, facts);
  }
  if (*facts.role == Role::kTool && !facts.has_tool_call_id) {
    r.in.violation(Path(path, "tool_call_id"), "is required in tool messages");
  }
  if (facts.first_media_part != kNone && *facts.role != Role::kUser && *facts.role != Role::kTool) {
    const Path content(path, "content");
    r.in.violation(Path(Path(content, facts.first_media_part), "type"),
                   "is only allowed in user and tool messages");
  }
  r.has_media |= facts.first_media_part != kNone;
  r.has_thinking_parts |= facts.first_thinking_part != kNone;
  r.chat.last_role = *facts.role;
}

// ---- last user text

std::string read_text_of_content(FieldReader& in, const Path& path) {
  if (in.peek() == json::Kind::kString) {
    return std::string(in.string(path).value_or(""));
  }
  std::string text;
  bool first = true;
  in.array(path, [&](size_t, const Path& part) {
    in.object(part, [&](std::string_view key, const Path& member) {
      if (key != "text") {
        in.skip();
        return;
      }
      if (!first) {
        text.push_back('\n');
      }
      first = false;
      text += in.string(member).value_or("");
    });
  });
  return text;
}

}  // namespace

void read_messages(ChatInputReader& reader, const Path& path) {
  FieldReader& in = reader.in;
  ChatInput& chat = reader.chat;
  chat.messages_json.clear();
  chat.message_count = 0;
  const size_t begin = in.mark();
  const bool present = in.array(path, [&](size_t, const Path& message) {
    ++chat.message_count;
    read_message(reader, message);
  });
  if (present && chat.message_count == 0) {
    in.violation(path, "must not be empty", Rank::kRequired);
  }
  if (present) {
    chat.messages_json = in.since(begin);
  }
  if (std::exchange(reader.has_thinking_parts, false)) {
    chat.messages_json = fold_thinking_parts(chat.messages_json, reader.depth_max);
  }
  chat.media.clear();
  if (std::exchange(reader.has_media, false) && !in.failed()) {
    if (ApiStatus taken = take_media(chat.messages_json, reader.depth_max, chat.media);
        !taken.has_value()) {
      in.adopt(std::move(taken.error()));
    }
  }
}

std::string last_user_text(std::string_view messages_json, uint32_t depth_max) {
  FieldReader in(messages_json, depth_max);
  std::string last;
  in.array(Path(""), [&](size_t, const Path& message) {
    std::string text;
    bool is_user = false;
    in.object(message, [&](std::string_view key, const Path& member) {
      if (key == "role") {
        is_user = in.string(member) == "user";
      } else if (key == "content") {
        text = read_text_of_content(in, member);
      } else {
        in.skip();
      }
    });
    if (is_user) {
      last = std::move(text);
    }
  });
  return last;
}

}  // namespace stator::api
