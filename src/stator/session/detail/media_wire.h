// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/result.h"
#include "stator/inference/media_input.h"
#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::session::wire {

/// Images and the like of a request, with their bytes.
void encode_media(const inference::MediaInput& media, worker::v1::MediaInput& out);
/// `tokens`: how many the request has. kCorrupt for what breaks MediaInput's own rules, kTooLarge
/// beyond kMediaBytesMax.
Result<std::shared_ptr<const inference::MediaInput>> decode_media(const worker::v1::MediaInput& in,
                                                                  size_t tokens);

}  // namespace stator::session::wire
