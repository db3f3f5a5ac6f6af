// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/blocks/block_hash.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/inference/media_input.h"
#include "stator/media/blob.h"
#include "stator/media/fetcher_service.h"

namespace stator::frontend {

// Requests with images, audio and video: what may be sent where, and the prompt that routing and
// counting see. Pure but for the budget.

/// Whether the model's engines take what the request has, and not too much of it. The error says
/// which part, and what to set.
api::ApiStatus check_media(const api::ChatInput& chat, const ServedModel& model,
                           const media::MediaConfig& config);

/// The media of a request, as far as they came with it.
struct MediaBatch {
  std::vector<media::BlobPtr> blobs;  ///< by part; null: to be fetched
  std::vector<media::Wanted> wanted;  ///< those, in order
};
/// Reads data: URLs, and drops their texts from `chat`.
api::ApiResult<MediaBatch> read_inline_media(api::ChatInput& chat, const media::MediaConfig& config,
                                             net::ByteBudget* budget);
/// Fills the gaps with what was fetched, in the order of `wanted`.
void add_fetched(MediaBatch& batch, std::vector<media::BlobPtr> fetched);
/// kTooLarge beyond MediaConfig::request_bytes_max.
api::ApiStatus check_total(const api::ChatInput& chat, const MediaBatch& batch,
                           const media::MediaConfig& config);

/// What fetching found, as the client is told.
api::ApiError to_api_error(media::LoadError error);

/// A prompt with media.
struct MediaPrompt {
  tokenizer::PromptIds ids;  ///< every medium as many placeholders as are known to become of it
  std::string text;          ///< as the model's template writes it
  std::shared_ptr<const inference::MediaInput> media;
};
/// `text` is the rendered prompt. `context`: see PromptEncoder::encode_text.
struct MediaPromptContext {
  const PromptEncoder& encoder;
  const ServedModel& model;
  PromptEncoder::TextOptions options;
  WallTime now;
  const CancelToken* cancel = nullptr;
};
api::ApiResult<MediaPrompt> make_media_prompt(const api::ChatInput& chat,
                                              std::vector<media::BlobPtr> blobs,
                                              const MediaPromptContext& context);
/// The text in which each medium stands as the template writes it, or as its placeholder where the
/// template knows texts only.
api::ApiResult<std::string> render_with_media(const api::ChatInput& chat,
                                              const MediaPromptContext& context);

/// What a receipt tells of media: kind, hash and place of each.
std::string describe_media(const inference::MediaInput& media);

/// Hashes of all full blocks of `tokens`, in which a block that a medium's tokens touch also has
/// that medium's hash, as engines with multimodal caches have it. A medium of unknown length
/// counts as one token; one that is nowhere to be found belongs to the first block.
std::vector<blocks::SequenceHash> hash_media_blocks(std::span<const TokenId> tokens,
                                                    std::span<const inference::MediaItem> items,
                                                    uint32_t block_size, uint64_t seed);

}  // namespace stator::frontend
