// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::engine {

/// Prompts whose first tokens have another KV than those of shorter prompts that begin alike: RoPE
/// that turns all of a text otherwise once it is long (dynamic, longrope).
struct LongPrompts {
  uint32_t longer_than = UINT32_MAX;  ///< in tokens; by default none are
  bool by_length = false;             ///< and those of each length another
};

}  // namespace stator::engine
