// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "stator/core/ids.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

// What models for pairs and vectors expect around the ids of their texts ([CLS] … [SEP]), with room
// made by cutting texts, never by cutting those.

inline constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

/// Ids of a text, encoded without special tokens, and what the post-processor puts around it; of
/// more than `ids_max` the text's end is left out.
std::vector<TokenId> frame_text(const Tokenizer& tokenizer, std::span<const TokenId> text,
                                size_t ids_max = kNoLimit);

struct FramedPair {
  std::vector<TokenId> ids;
  uint32_t first_length = 0;  ///< ids before the second text: those of token type 0
};
/// The same of two texts; of too many the longer text gives first, as the reference's
/// "longest_first" does.
FramedPair frame_pair(const Tokenizer& tokenizer, std::span<const TokenId> first,
                      std::span<const TokenId> second, size_t ids_max = kNoLimit);

}  // namespace stator::tokenizer
