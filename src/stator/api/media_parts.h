// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/field_reader.h"
#include "stator/inference/media.h"

namespace stator::api {

// Content parts that are no text, whatever the protocol: chat's image_url, input_audio, audio_url
// and video_url, and the Responses API's input_image. Protocols with other shapes write these.

/// The kind of medium that a part of that type brings; none: it is no medium.
std::optional<inference::MediaKind> find_media_part(std::string_view type);

/// Reads a member of a part that may hold its source: `image_url`, `video_url`, `audio_url` (a URL,
/// or an object with one) or `input_audio` ({data, format}). False: another member, not read.
/// `found` is set if there is a source.
bool read_media_member(FieldReader& in, std::string_view key, const Path& path, bool& found);

/// The member that holds the source of a part of that type.
std::string_view media_member_of(std::string_view type);

/// Takes the media out of a checked array of messages: appends them to `media`, in order, and
/// leaves {"type":"image"} (audio, video) in their places; everything else is verbatim.
/// kInvalidArgument beyond kMaxMediaParts.
ApiStatus take_media(std::string& messages_json, uint32_t depth_max,
                     std::vector<inference::MediaPart>& media);

/// What stands for the medium of that place in the order of all.
using MediaText = std::function<std::string(size_t index, inference::MediaKind kind)>;

/// Messages as take_media() leaves them, with another part (JSON) in place of each medium.
std::string replace_media(std::string_view messages_json, uint32_t depth_max,
                          const MediaText& part);
/// The same for templates that know texts only: content with media becomes one text, a line for
/// each medium (empty ones are left out), then its texts.
std::string flatten_media(std::string_view messages_json, uint32_t depth_max,
                          const MediaText& line);

}  // namespace stator::api
