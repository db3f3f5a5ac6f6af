// SPDX-License-Identifier: Apache-2.0
#include "stator/api/detail/chat_reader.h"
#include "stator/json/writer.h"

namespace stator::api {
namespace {

struct Part {
  std::string type;
  std::string thinking;
};

Part read_part(std::string_view json, uint32_t depth_max) {
  FieldReader in(json, depth_max);
  Part part;
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (key == "type") {
      part.type = in.string(path).value_or("");
    } else if (key == "thinking") {
      part.thinking = in.string(path).value_or("");
    } else {
      in.skip();
    }
  });
  return part;
}

void append_line(std::string& text, std::string_view line) {
  if (!text.empty() && !line.empty()) {
    text.push_back('\n');
  }
  text += line;
}

/// Writes the parts that stay, and collects the thoughts.
void fold_content(FieldReader& in, const Path& path, uint32_t depth_max, json::Writer& out,
                  std::string& thoughts) {
  if (in.peek() != json::Kind::kArray) {
    out.key("content").raw(in.any(path).value_or("null"));
    return;
  }
  std::string kept;
  json::Writer parts(kept);
  parts.begin_array();
  in.array(path, [&](size_t, const Path& member) {
    const std::string_view json = in.any(member).value_or("null");
    const Part part = read_part(json, depth_max);
    if (part.type == "thinking") {
      append_line(thoughts, part.thinking);
    } else if (part.type != "redacted_thinking") {
      parts.raw(json);
    }
  });
  parts.end_array();
  out.key("content").raw(kept);
}

void fold_message(FieldReader& in, const Path& path, uint32_t depth_max, json::Writer& out) {
  std::string thoughts;
  std::string_view reasoning;  // what the message says itself, as JSON
  out.begin_object();
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "content") {
      fold_content(in, member, depth_max, out, thoughts);
    } else if (key == "reasoning_content" || key == "reasoning") {
      reasoning = in.any(member).value_or("");
    } else {
      const std::string name(key);
      out.key_escaped(name).raw(in.any(member).value_or("null"));
    }
  });
  if (!reasoning.empty()) {
    out.key("reasoning_content").raw(reasoning);  // the same thoughts, or better ones
  } else if (!thoughts.empty()) {
    out.key("reasoning_content").value(thoughts);
  }
  out.end_object();
}

}  // namespace

std::string fold_thinking_parts(std::string_view messages_json, uint32_t depth_max) {
  FieldReader in(messages_json, depth_max);
  std::string folded;
  json::Writer out(folded);
  out.begin_array();
  in.array(Path(""),
           [&](size_t, const Path& message) { fold_message(in, message, depth_max, out); });
  out.end_array();
  return folded;
}

}  // namespace stator::api
