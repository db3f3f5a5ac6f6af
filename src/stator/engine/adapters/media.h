// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/media_input.h"
#include "stator/inference/request.h"
#include "stator/json/writer.h"

namespace stator::engine::adapters {

// How requests with images, audio and video are put to engine servers. The bytes travel with the
// request: a server is never given a client's URL to fetch.

/// "data:image/png;base64,…"
std::string to_data_url(const inference::MediaBlob& blob);

/// How parts of a chat look to a server.
enum class PartStyle : uint8_t {
  kVllm,    ///< image_url, audio_url and video_url, each with the digest as its `uuid`
  kOpenAi,  ///< image_url and input_audio, nothing that its API does not know
};

/// Writes `messages` and, for kVllm, all else that makes the prompt: `tools`, `documents`,
/// `chat_template_kwargs`, `add_generation_prompt`, `continue_final_message`. kUnsupported for what
/// the style has no words for: video, and tools, for kOpenAi.
Status write_chat(json::Writer& json, const inference::MediaInput& media, PartStyle style);

/// The prompt with one token for each medium, as templates and tokenizers make it.
std::vector<TokenId> collapse_media(const inference::EngineRequest& request);

/// Whether the answer may be as long as the context allows: then it is left to the engine, which
/// alone knows how long the prompt becomes.
bool fills_context(const inference::EngineRequest& request, uint32_t max_model_len);

}  // namespace stator::engine::adapters
