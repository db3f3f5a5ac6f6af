// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "stator/inference/media.h"
#include "stator/lab/fake_engine/fake_config.h"
#include "stator/lab/fake_engine/published_blocks.h"

namespace stator::fake_engine {

// Images, audio and video in prompts of fake servers. They are not looked at: each becomes as many
// tokens as the real engine makes of it, and which tokens these are depends on its bytes, so that
// answers and cached prefixes do, too. Errors are in words for the client. Pure.

/// One medium of a request.
struct FakeMedium {
  inference::MediaKind kind = inference::MediaKind::kImage;
  std::string bytes;
  std::string digest;  ///< the client's name of it (`uuid`), else the SHA-256 of its bytes
};
template <typename T>
using MediaResult = std::expected<T, std::string>;

/// Of "data:…;base64,…" or plain base64. Servers that fetch are not pretended.
MediaResult<FakeMedium> read_medium(inference::MediaKind kind, std::string_view source);

/// Takes the media out of a conversation; {"type":"image"} (audio, video) stays in each place, or
/// for templates of texts only the placeholder as text. Refuses kinds that `model` has not.
MediaResult<std::vector<FakeMedium>> take_media(json::Value& messages, const FakeModel& model);

/// Puts the media where their placeholders are in `ids`, in order, or before everything where the
/// model has no placeholders. With `owner` the blocks' events show the placeholders, and the media
/// as extra keys, as vLLM has it; without, the tokens themselves, as SGLang's pad values.
MediaResult<void> place_media(const FakeModel& model, const std::vector<FakeMedium>& media,
                              std::vector<TokenId>& ids, BlockOwner* owner);

}  // namespace stator::fake_engine
