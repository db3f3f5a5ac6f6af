// SPDX-License-Identifier: Apache-2.0
#include "stator/api/media_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/json/writer.h"

namespace stator::api {
namespace {

struct PartType {
  std::string_view name;
  inference::MediaKind kind;
  std::string_view member;
};
constexpr auto kPartTypes = std::to_array<PartType>({
    {"image_url", inference::MediaKind::kImage, "image_url"},
    {"input_image", inference::MediaKind::kImage, "image_url"},
    {"video_url", inference::MediaKind::kVideo, "video_url"},
    {"audio_url", inference::MediaKind::kAudio, "audio_url"},
    {"input_audio", inference::MediaKind::kAudio, "input_audio"},
});

constexpr size_t kFormatBytesMax = 16;
constexpr size_t kHintBytesMax = 256;

const PartType* find_type(std::string_view name) {
  const auto* const found = std::ranges::find(kPartTypes, name, &PartType::name);
  return found == kPartTypes.end() ? nullptr : found;
}

bool is_format(std::string_view text) {
  return !text.empty() && text.size() <= kFormatBytesMax && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
}

/// One part as it stands in the text.
struct Part {
  std::string type;
  std::string url;
  std::string data;
  std::string format;
  std::string detail;
  std::string uuid;
};

void read_source(FieldReader& in, const Path& path, Part& part) {
  if (in.peek() == json::Kind::kString) {
    part.url = in.string(path).value_or("");
    return;
  }
  if (in.peek() != json::Kind::kObject) {
    in.skip();
    return;
  }
  in.object(path, [&](std::string_view key, const Path& member) {
    std::string* const into = key == "url"      ? &part.url
                              : key == "data"   ? &part.data
                              : key == "format" ? &part.format
                              : key == "detail" ? &part.detail
                              : key == "uuid"   ? &part.uuid
                                                : nullptr;
    if (into == nullptr || in.peek() != json::Kind::kString) {
      in.skip();
    } else {
      *into = in.string(member).value_or("");
    }
  });
}

/// The type of a part, before the rest of it is worth decoding.
std::string read_type(std::string_view json, uint32_t depth_max) {
  FieldReader in(json, depth_max);
  std::string type;
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (key == "type" && in.peek() == json::Kind::kString) {
      type = in.string(path).value_or("");
    } else {
      in.skip();
    }
  });
  return type;
}

Part read_part(std::string_view json, std::string_view member_name, uint32_t depth_max) {
  FieldReader in(json, depth_max);
  Part part;
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (key == member_name) {
      read_source(in, path, part);
    } else if (key == "detail" && in.peek() == json::Kind::kString) {
      part.detail = in.string(path).value_or("");
    } else if (key == "uuid" && in.peek() == json::Kind::kString) {
      part.uuid = in.string(path).value_or("");
    } else {
      in.skip();
    }
  });
  return part;
}

/// Copies messages; content that is a list of parts goes through `content`, which writes the new
/// one. All else is verbatim.
template <typename Content>
std::string rewrite_contents(std::string_view messages_json, uint32_t depth_max, Content content) {
  FieldReader in(messages_json, depth_max);
  std::string out;
  json::Writer json(out);
  json.begin_array();
  in.array(Path("messages"), [&](size_t, const Path& message) {
    json.begin_object();
    in.object(message, [&](std::string_view key, const Path& member) {
      const std::string name(key);
      if (key == "content" && in.peek() == json::Kind::kArray) {
        json.key("content");
        content(in, member, json);
      } else {
        json.key_escaped(name).raw(in.any(member).value_or("null"));
      }
    });
    json.end_object();
  });
  json.end_array();
  return out;
}

std::string read_text(std::string_view part_json, uint32_t depth_max) {
  FieldReader in(part_json, depth_max);
  std::string text;
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (key == "text" && in.peek() == json::Kind::kString) {
      text = in.string(path).value_or("");
    } else {
      in.skip();
    }
  });
  return text;
}

void read_audio(FieldReader& in, const Path& path, bool& found) {
  if (in.peek() != json::Kind::kObject) {
    in.skip();
    return;
  }
  bool has_data = false;
  bool has_format = false;
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "data") {
      const auto data = in.raw_string(member);
      has_data = data && data->size() > 2;  // without its quotes
    } else if (key == "format") {
      const auto format = in.string(member);
      has_format = format.has_value();
      if (format && !is_format(*format)) {
        in.violation(member, "must be the name of an audio format, such as wav or mp3");
      }
    } else {
      in.skip();
    }
  });
  if (!has_data) {
    in.violation(Path(path, "data"), "is required and must be base64");
  } else if (!has_format) {
    in.violation(Path(path, "format"), "is required");
  }
  found = true;  // what is wrong with it has been said
}

void read_url(FieldReader& in, const Path& path, bool& found) {
  if (in.peek() == json::Kind::kString) {
    const auto url = in.raw_string(path);
    found |= url && url->size() > 2;
    return;
  }
  if (in.peek() != json::Kind::kObject) {
    in.skip();  // of a part of another type this may be anything
    return;
  }
  in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "url") {
      const auto url = in.raw_string(member);
      found |= url && url->size() > 2;
    } else if (key == "detail" || key == "uuid") {
      const auto hint = in.raw_string(member);
      if (hint && hint->size() > kHintBytesMax) {
        in.violation(member, fmt::format("must have at most {} bytes", kHintBytesMax));
      }
    } else {
      in.skip();
    }
  });
}

}  // namespace

std::optional<inference::MediaKind> find_media_part(std::string_view type) {
  const PartType* const found = find_type(type);
  return found == nullptr ? std::nullopt : std::optional(found->kind);
}

std::string_view media_member_of(std::string_view type) {
  const PartType* const found = find_type(type);
  return found == nullptr ? std::string_view() : found->member;
}

bool read_media_member(FieldReader& in, std::string_view key, const Path& path, bool& found) {
  if (key == "input_audio") {
    read_audio(in, path, found);
    return true;
  }
  if (key == "image_url" || key == "video_url" || key == "audio_url") {
    read_url(in, path, found);
    return true;
  }
  return false;
}

ApiStatus take_media(std::string& messages_json, uint32_t depth_max,
                     std::vector<inference::MediaPart>& media) {
  messages_json = rewrite_contents(
      messages_json, depth_max, [&](FieldReader& in, const Path& path, json::Writer& out) {
        out.begin_array();
        in.array(path, [&](size_t, const Path& member) {
          const std::string_view json = in.any(member).value_or("null");
          const PartType* const type = find_type(read_type(json, depth_max));
          if (type == nullptr) {
            out.raw(json);
            return;
          }
          Part part = read_part(json, type->member, depth_max);
          if (part.url.empty() && !part.data.empty()) {
            part.url = "data:audio/" + part.format + ";base64," + part.data;
          }
          media.push_back({.kind = type->kind,
                           .source = std::move(part.url),
                           .detail = std::move(part.detail),
                           .uuid = std::move(part.uuid),
                           .path = member.text()});
          out.begin_object().key("type").value(to_string(type->kind)).end_object();
        });
        out.end_array();
      });
  if (media.size() > inference::kMaxMediaParts) {
    return validation_error(media[inference::kMaxMediaParts].path,
                            fmt::format("a request has at most {} images, recordings and videos",
                                        inference::kMaxMediaParts));
  }
  return {};
}

std::string replace_media(std::string_view messages_json, uint32_t depth_max,
                          const MediaText& part) {
  size_t next = 0;
  return rewrite_contents(
      messages_json, depth_max, [&](FieldReader& in, const Path& path, json::Writer& out) {
        out.begin_array();
        in.array(path, [&](size_t, const Path& member) {
          const std::string_view json = in.any(member).value_or("null");
          const auto kind = inference::find_media_kind(read_type(json, depth_max));
          out.raw(kind ? part(next++, *kind) : std::string(json));
        });
        out.end_array();
      });
}

std::string flatten_media(std::string_view messages_json, uint32_t depth_max,
                          const MediaText& line) {
  size_t next = 0;
  return rewrite_contents(
      messages_json, depth_max, [&](FieldReader& in, const Path& path, json::Writer& out) {
        std::string lines;
        std::string kept;  // parts as they are
        std::string texts;
        bool any = false;
        json::Writer parts(kept);
        parts.begin_array();
        in.array(path, [&](size_t, const Path& member) {
          const std::string_view json = in.any(member).value_or("null");
          if (const auto kind = inference::find_media_kind(read_type(json, depth_max))) {
            any = true;
            const std::string text = line(next++, *kind);
            lines += text.empty() ? "" : text + "\n";
            return;
          }
          parts.raw(json);
          texts += texts.empty() ? "" : "\n";
          texts += read_text(json, depth_max);
        });
        parts.end_array();
        any ? out.value(lines + texts) : out.raw(kept);
      });
}

}  // namespace stator::api
