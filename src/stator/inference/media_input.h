// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/inference/media.h"

namespace stator::inference {

/// One image, recording or video of a request and the tokens that stand for it.
struct MediaItem {
  /// Shared with the frontend's cache and the other choices of the request; never null.
  std::shared_ptr<const MediaBlob> blob;
  std::string detail;
  uint32_t token_begin = 0;  ///< in EngineRequest::tokens
  /// Placeholder tokens that stand for it; 0: the frontend does not know how many the engine will
  /// make of it.
  uint32_t token_count = 0;
};

/// What a request with media says beside its tokens, in the forms that engines take. Engines
/// render, expand and hash by themselves; the tokens of such a request serve routing and counting.
struct MediaInput {
  /// Members of a chat request that make the prompt, a JSON object: `messages`, in which each
  /// medium is a part {"type":"image"} (audio, video) in the order of `items`, and where given
  /// `tools`, `documents`, `chat_template_kwargs`, `add_generation_prompt`,
  /// `continue_final_message`.
  std::string chat_json;
  /// The rendered prompt around the media: one piece more than `items`. Empty: not known.
  std::vector<std::string> pieces;
  std::vector<MediaItem> items;
};

}  // namespace stator::inference
