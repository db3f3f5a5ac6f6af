// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/core/strong_id.h"

namespace stator::kv {

/// Index of a physical KV block in an engine's arena, 0 … total_blocks − 1.
using BlockId = StrongId<struct BlockTag, uint32_t>;

}  // namespace stator::kv
