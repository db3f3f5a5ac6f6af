// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

  /// Appends `tokens` tokens of the text that belongs to `key`; fewer tokens are a prefix of more.
  void append(uint64_t key, uint32_t tokens, std::string& out) const;

 private:
  static constexpr size_t kPhraseWords = 4;
  /// Words copied as one block of fixed size, of which only `ends[k - 1]` bytes count for k words.
  struct Phrase {
    std::array<char, 60> text{};
    std::array<uint8_t, kPhraseWords> ends{};
  };
  explicit PromptText(std::vector<std::string_view> words);

  std::vector<std::string_view> words_;  // each with its space; literals
  std::vector<Phrase> phrases_;
};

}  // namespace stator::loadgen
