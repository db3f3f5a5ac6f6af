// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/engine/core/sequence.h"

namespace stator::engine {

/// Decides whether `delta`'s last token ends its sequence, which already contains the token.
void set_finish(inference::Delta& delta, const Sequence& sequence, uint32_t max_model_len);

}  // namespace stator::engine
