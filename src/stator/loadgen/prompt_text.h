// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::tokenizer {
class Tokenizer;
}

namespace stator::loadgen {

/// Makes text of a wanted number of tokens out of common English words, most of which are one token
/// each in most vocabularies. Equal keys give equal text, so equal prefixes are really equal. The
/// text is lower-case words with a space before each: it needs no escaping in JSON. Thread-safe.
class PromptText {
 public:
  /// Without a tokenizer a word counts as a token.
  PromptText();
  /// With one, only words that are one token in running text are used, and their number is right
  /// for the tokenizer; kUnsupported when it knows too few of the words.
  static Result<PromptText> create(const tokenizer::Tokenizer& tokenizer);

  /// Appends `tokens` tokens of the text that belongs to `key`.
  void append(uint64_t key, uint32_t tokens, std::string& out) const;

 private:
  std::vector<std::string_view> words_;  // each with its space; literals
};

}  // namespace stator::loadgen
