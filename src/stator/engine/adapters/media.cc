// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "stator/api/field_reader.h"
#include "stator/api/media_parts.h"
#include "stator/text/base64.h"

namespace stator::engine::adapters {
namespace {

using inference::MediaKind;

constexpr uint32_t kDepthMax = 128;

/// Members of MediaInput::chat_json as they stand there.
struct ChatMembers {
  std::string_view messages;
  std::string_view tools;
  std::string_view documents;
  std::string_view arguments;
  std::string_view generation_prompt;
  std::string_view continues;
};

Result<ChatMembers> read_members(std::string_view chat_json) {
  ChatMembers out;
  api::FieldReader in(chat_json, kDepthMax);
  in.object(api::Path("chat"), [&](std::string_view key, const api::Path& path) {
    static constexpr auto kMembers =
        std::to_array<std::pair<std::string_view, std::string_view ChatMembers::*>>({
            {"messages", &ChatMembers::messages},
            {"tools", &ChatMembers::tools},
            {"documents", &ChatMembers::documents},
            {"chat_template_kwargs", &ChatMembers::arguments},
            {"add_generation_prompt", &ChatMembers::generation_prompt},
            {"continue_final_message", &ChatMembers::continues},
        });
    for (const auto& [name, member] : kMembers) {
      if (name == key) {
        out.*member = in.any(path).value_or(std::string_view());
        return;
      }
    }
    in.skip();
  });
  if (!in.finish().has_value() || out.messages.empty()) {
    return Error(Code::kInvalidArgument, "a request with media has no messages");
  }
  return out;
}

std::string_view url_member(MediaKind kind) {
  switch (kind) {
    case MediaKind::kAudio:
      return "audio_url";
    case MediaKind::kVideo:
      return "video_url";
    default:
      return "image_url";
  }
}

std::string url_part(const inference::MediaItem& item, PartStyle style) {
  const std::string_view member = url_member(item.blob->kind);
  std::string out;
  json::Writer json(out);
  json.begin_object().key("type").value(member);
  json.key(member).begin_object().key("url").value(to_data_url(*item.blob));
  if (!item.detail.empty()) {
    json.key("detail").value(item.detail);
  }
  json.end_object();
  if (style == PartStyle::kVllm) {
    // The name under which the server caches it and tells of it in KV events.
    json.key("uuid").value(item.blob->digest);
  }
  json.end_object();
  return out;
}

/// OpenAI's own form: the data, and "wav" for audio/wav or audio/x-wav.
std::string audio_part(const inference::MediaItem& item) {
  std::string_view format = item.blob->type;
  format.remove_prefix(std::min(format.find('/') + 1, format.size()));
  format.remove_prefix(format.starts_with("x-") ? 2 : 0);
  std::string data;
  text::append_base64(data, item.blob->bytes);
  std::string out;
  json::Writer json(out);
  json.begin_object().key("type").value("input_audio").key("input_audio").begin_object();
  json.key("data").value(data).key("format").value(format == "mpeg" ? "mp3" : format);
  json.end_object().end_object();
  return out;
}

}  // namespace

std::string to_data_url(const inference::MediaBlob& blob) {
  std::string out = fmt::format("data:{};base64,", blob.type);
  text::append_base64(out, blob.bytes);
  return out;
}

Status write_chat(json::Writer& json, const inference::MediaInput& media, PartStyle style) {
  STATOR_TRY(const ChatMembers members, read_members(media.chat_json));
  if (style == PartStyle::kOpenAi) {
    if (!members.tools.empty()) {
      return Error(Code::kUnsupported,
                   "engine 'openai' cannot honour tools beside images and audio: its answer would "
                   "come as parsed calls, not as text");
    }
    if (std::ranges::any_of(media.items,
                            [](auto& item) { return item.blob->kind == MediaKind::kVideo; })) {
      return Error(Code::kUnsupported, "engine 'openai' takes no video input");
    }
  }
  size_t written = 0;
  json.key("messages")
      .raw(api::replace_media(members.messages, kDepthMax, [&](size_t index, MediaKind) {
        ++written;
        if (index >= media.items.size()) {
          return std::string("null");
        }
        const inference::MediaItem& item = media.items[index];
        return style == PartStyle::kOpenAi && item.blob->kind == MediaKind::kAudio
                   ? audio_part(item)
                   : url_part(item, style);
      }));
  if (written != media.items.size()) {
    return Error(Code::kInvalidArgument, fmt::format("messages have {} media, the request has {}",
                                                     written, media.items.size()));
  }
  if (style == PartStyle::kOpenAi) {
    return {};
  }
  const std::pair<std::string_view, std::string_view> rest[] = {
      {"tools", members.tools},
      {"documents", members.documents},
      {"chat_template_kwargs", members.arguments},
      {"add_generation_prompt", members.generation_prompt},
      {"continue_final_message", members.continues}};
  for (const auto& [name, value] : rest) {
    if (!value.empty()) {
      json.key(name).raw(value);
    }
  }
  if (!members.tools.empty()) {
    json.key("tool_choice").value("none");  // calls are read here, from the tokens
  }
  return {};
}

std::vector<TokenId> collapse_media(const inference::EngineRequest& request) {
  std::vector<inference::MediaItem> items = request.media->items;
  std::ranges::sort(items, {}, &inference::MediaItem::token_begin);
  std::vector<TokenId> out;
  out.reserve(request.tokens.size());
  size_t from = 0;
  for (const inference::MediaItem& item : items) {
    if (item.token_count > 1) {
      const size_t keep = item.token_begin + size_t{1};
      out.insert(out.end(), request.tokens.begin() + static_cast<ptrdiff_t>(from),
                 request.tokens.begin() + static_cast<ptrdiff_t>(keep));
      from = item.token_begin + size_t{item.token_count};
    }
  }
  out.insert(out.end(), request.tokens.begin() + static_cast<ptrdiff_t>(from),
             request.tokens.end());
  return out;
}

bool fills_context(const inference::EngineRequest& request, uint32_t max_model_len) {
  return max_model_len > 0 &&
         request.stop.max_tokens - request.generated + request.tokens.size() >= max_model_len;
}

}  // namespace stator::engine::adapters
