// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "stator/core/ids.h"

namespace stator::engine::cpu {

/// Guesses what follows from what followed before: answers often repeat parts of their prompts.
/// A guess costs rows of a step that is bound by memory anyway, and never changes what is sampled.
struct PromptLookup {
  uint32_t tokens = 0;       ///< guessed at once, at most; 0: never
  uint32_t match_least = 2;  ///< tokens at the end that must have stood there before
  uint32_t match_most = 4;   ///< longer matches are looked for first
};

/// The tokens that followed the latest earlier occurrence of the longest end of `tokens`; a view of
/// `tokens`, empty where there is none. Looks at no more than the last `kLookupWindow` tokens.
inline constexpr size_t kLookupWindow = 16'384;
std::span<const TokenId> look_up(std::span<const TokenId> tokens, const PromptLookup& lookup);

}  // namespace stator::engine::cpu
