// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/prompt_lookup.h"

#include <algorithm>

namespace stator::engine::cpu {

std::span<const TokenId> look_up(std::span<const TokenId> tokens, const PromptLookup& lookup) {
  const std::span<const TokenId> window = tokens.last(std::min(tokens.size(), kLookupWindow));
  for (size_t length = lookup.match_most; length >= std::max(lookup.match_least, 1U); --length) {
    if (window.size() <= length) {
      continue;
    }
    const std::span<const TokenId> end = window.last(length);
    for (size_t at = window.size() - length; at-- > 0;) {
      if (std::ranges::equal(window.subspan(at, length), end)) {
        const std::span<const TokenId> rest = window.subspan(at + length);
        return rest.first(std::min<size_t>(rest.size(), lookup.tokens));
      }
    }
  }
  return {};
}

}  // namespace stator::engine::cpu
