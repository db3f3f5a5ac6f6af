// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/media_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "stator/core/hash.h"
#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/vocabulary.h"
#include "stator/media/image_header.h"
#include "stator/storage/sigv4.h"
#include "stator/text/base64.h"

namespace stator::fake_engine {
namespace {
using inference::MediaKind;

// Of media whose length the model's folder does not tell.
constexpr uint32_t kTokensDefault = 4;

struct PartType {
  std::string_view name;
  MediaKind kind;
};
constexpr auto kPartTypes = std::to_array<PartType>({{"image_url", MediaKind::kImage},
                                                     {"audio_url", MediaKind::kAudio},
                                                     {"video_url", MediaKind::kVideo},
                                                     {"input_audio", MediaKind::kAudio}});

/// The URL or the data of a part.
std::string source_of(const json::Value& part, std::string_view member) {
  const json::Value* value = find_member(part, member);
  if (value == nullptr) {
    return {};
  }
  if (value->is_string()) {
    return std::string(value->text());
  }
  if (!value->is_object()) {
    return {};
  }
  return read_text(*value, "url").value_or(read_text(*value, "data").value_or(""));
}

/// What stands in the conversation in a medium's place.
json::Value stand_in(MediaKind kind, const FakeModel& model) {
  if (model.chat_template != nullptr && model.chat_template->traits().content_parts) {
    return {{"type", std::string(to_string(kind))}};
  }
  const auto token = model.media_rules.placeholder(kind);
  return {{"type", "text"}, {"text", token ? token_text(model, *token) : std::string()}};
}

MediaResult<void> take_part(json::Value& part, const FakeModel& model,
                            std::vector<FakeMedium>& media) {
  if (!part.is_object()) {
    return {};
  }
  const std::string type = read_text(part, "type").value_or("");
  const auto* const known = std::ranges::find(kPartTypes, type, &PartType::name);
  if (known == kPartTypes.end()) {
    return {};
  }
  if (!model.media.has(known->kind)) {
    return std::unexpected(
        fmt::format("At most 0 {}(s) may be provided in one prompt.", to_string(known->kind)));
  }
  auto medium = read_medium(known->kind, source_of(part, known->name));
  if (!medium) {
    return std::unexpected(std::move(medium.error()));
  }
  if (const auto uuid = read_text(part, "uuid"); uuid && !uuid->empty()) {
    medium->digest = *uuid;
  }
  media.push_back(std::move(*medium));
  part = stand_in(known->kind, model);
  return {};
}

uint32_t tokens_of(const FakeMedium& medium, const FakeModel& model) {
  const auto size = media::read_image_size(medium.bytes);
  const auto known = size ? model.media_rules.image_tokens(*size) : std::nullopt;
  return known.value_or(kTokensDefault);
}

TokenId content_token(const FakeMedium& medium, uint32_t index, const FakeModel& model) {
  const uint64_t range = uint64_t{model.last_token} - model.first_token + 1;
  return static_cast<TokenId>(model.first_token + xxh3_64(medium.digest, index) % range);
}

/// Where the placeholders of each kind are, in the order of `media`.
MediaResult<std::vector<std::optional<size_t>>> find_places(const FakeModel& model,
                                                            const std::vector<FakeMedium>& media,
                                                            const std::vector<TokenId>& ids) {
  std::vector<std::optional<size_t>> places(media.size());
  std::array<size_t, inference::kMediaKindCount> from{};
  for (size_t i = 0; i < media.size(); ++i) {
    const auto token = model.media_rules.placeholder(media[i].kind);
    if (!token) {
      continue;
    }
    size_t& begin = from[static_cast<size_t>(media[i].kind)];
    const auto found =
        std::find(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), *token);
    if (found == ids.end()) {
      return std::unexpected(
          fmt::format("Expected placeholders for {} items, but found fewer in "
                      "the prompt",
                      media.size()));
    }
    places[i] = static_cast<size_t>(found - ids.begin());
    begin = *places[i] + 1;
  }
  return places;
}

}  // namespace

MediaResult<FakeMedium> read_medium(MediaKind kind, std::string_view source) {
  std::string_view digits = source;
  if (source.starts_with("data:")) {
    const size_t comma = source.find(";base64,");
    if (comma == std::string_view::npos) {
      return std::unexpected("Only base64 data URLs are supported for now.");
    }
    digits = source.substr(comma + 8);
  } else if (source.contains("://")) {
    return std::unexpected("this server fetches nothing: send a data: URL");
  }
  auto bytes = text::decode_base64(digits);
  if (!bytes || bytes->empty()) {
    return std::unexpected(fmt::format("Failed to load {}: incorrect base64", to_string(kind)));
  }
  FakeMedium medium{.kind = kind, .bytes = std::move(*bytes), .digest = {}};
  medium.digest = storage::sha256_hex(medium.bytes);
  return medium;
}

MediaResult<std::vector<FakeMedium>> take_media(json::Value& messages, const FakeModel& model) {
  std::vector<FakeMedium> media;
  for (json::Value& message : *messages.mutable_elements()) {
    json::Value* content = message.is_object() ? message.find("content") : nullptr;
    if (content == nullptr || !content->is_array()) {
      continue;
    }
    for (json::Value& part : *content->mutable_elements()) {
      if (auto taken = take_part(part, model, media); !taken) {
        return std::unexpected(std::move(taken.error()));
      }
    }
  }
  return media;
}

MediaResult<void> place_media(const FakeModel& model, const std::vector<FakeMedium>& media,
                              std::vector<TokenId>& ids, BlockOwner* owner) {
  const auto places = find_places(model, media, ids);
  if (!places) {
    return std::unexpected(places.error());
  }
  std::vector<size_t> order(media.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair((*places)[i].value_or(0), i); });
  std::vector<TokenId> out;
  size_t from = 0;
  for (const size_t i : order) {
    const auto place = (*places)[i];
    if (place) {
      out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(from),
                 ids.begin() + static_cast<std::ptrdiff_t>(*place));
      from = *place + 1;
    }
    const uint32_t count = tokens_of(media[i], model);
    if (owner != nullptr && place) {
      owner->media.push_back({.begin = out.size(),
                              .count = count,
                              .placeholder = ids[*place],
                              .digest = media[i].digest});
    }
    for (uint32_t index = 0; index < count; ++index) {
      out.push_back(content_token(media[i], index, model));
    }
  }
  out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end());
  ids = std::move(out);
  return {};
}

}  // namespace stator::fake_engine
