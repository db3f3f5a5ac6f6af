// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/result.h"
#include "stator/inference/media.h"
#include "stator/media/data_url.h"
#include "stator/media/media_config.h"
#include "stator/net/byte_budget.h"

namespace stator::media {

using BlobPtr = std::shared_ptr<const inference::MediaBlob>;

/// Looks at what came: its kind by its own bytes, where these tell, else by what its sender said;
/// an image's size by its header; its digest. The blob holds its place in `budget`, which outlives
/// it, as long as anybody has it; null: no budget. Errors, in words that follow the part's path:
/// kInvalidArgument (another kind of file, an image without a size or with too many pixels),
/// kTooLarge, kOverloaded (no room in the budget). About 2 ms per MiB.
Result<BlobPtr> make_blob(inference::MediaKind kind, RawMedia raw, const MediaConfig& config,
                          net::ByteBudget* budget);

}  // namespace stator::media
