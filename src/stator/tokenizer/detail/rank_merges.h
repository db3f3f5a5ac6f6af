// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/tokenizer/bpe_model.h"

namespace stator::tokenizer {

/// A vocabulary in which the pair is merged that gives the most important token, however that token
/// is cut in two (tiktoken, SentencePiece): fills spec.merges with all cuts of all tokens whose
/// both halves are tokens, too. `ranks` are those of spec.vocab[i], less is more important, equal
/// ones go from left to right; kNoMerge: nothing merges into this token.
inline constexpr uint32_t kNoMerge = UINT32_MAX;
void add_merges_by_rank(const std::vector<uint32_t>& ranks, BpeSpec& spec);

}  // namespace stator::tokenizer
