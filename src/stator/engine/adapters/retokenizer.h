// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::engine::adapters {

/// Token ids for text that an engine made of ids it does not tell: pieces whose bytes, one after
/// the other, are that text. They need not be the engine's own ids, so nothing but the text may be
/// read from them. Immutable after creation, thread-safe; about 60 bytes per vocabulary entry.
class Retokenizer {
 public:
  /// `tokenizer` outlives it.
  explicit Retokenizer(const tokenizer::Tokenizer& tokenizer);

  /// Appends ids for `text`. kUnsupported when the vocabulary cannot spell it.
  Status append(std::string_view text, std::vector<TokenId>& out) const;

  /// The text of a prompt, without the BOS that servers put in front by themselves.
  std::string prompt_text(std::span<const TokenId> tokens) const;

 private:
  bool spells(std::span<const TokenId> tokens, std::string_view text) const;

  const tokenizer::Tokenizer& tokenizer_;
  FlatMap<std::string, TokenId> by_bytes_;
  size_t longest_ = 0;
  std::vector<TokenId> added_in_front_;
};

}  // namespace stator::engine::adapters
