// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace stator::tokenizer {

/// What a value of `tokenizer.ggml.pre` stands for in byte-level vocabularies.
struct GgufSplit {
  std::span<const std::string_view> expressions;  ///< one Split step after the other
  bool ignore_merges = false;                     ///< a piece that is a token is that token
  bool adds_bos = false;                          ///< unless the file says otherwise
};

/// Nothing for a name that we do not know (or cannot split like).
const GgufSplit* find_gguf_split(std::string_view name);

}  // namespace stator::tokenizer
