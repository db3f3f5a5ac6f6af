// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"

namespace stator::engine {

/// The model's tokens of a text, without tokens that mark its beginning or end.
using TextEncoder = std::function<Result<std::vector<TokenId>>(std::string_view)>;

/// SamplingParams::bad_words as tokens, as vLLM reads them: a word is its tokens, and those it has
/// behind a space unless these are more, or begin with the same one. Whatever of the answer is all
/// of a word but its last token must not go on with that.
/// Thread-safety: none.
class BadWords {
 public:
  explicit BadWords(TextEncoder encoder) : encoder_(std::move(encoder)) {}

  /// The tokens that must not follow `output`, into `banned`. Errors are the encoder's;
  /// kUnsupported without one.
  Status find_banned(const std::vector<std::string>& words, std::span<const TokenId> output,
                     std::vector<TokenId>& banned);

 private:
  using Sequences = std::vector<std::vector<TokenId>>;
  struct Known {
    std::vector<std::string> words;
    std::shared_ptr<const Sequences> sequences;
  };
  static constexpr size_t kKnownMax = 64;

  Result<std::shared_ptr<const Sequences>> sequences_of(const std::vector<std::string>& words);

  TextEncoder encoder_;
  std::vector<Known> known_;  // lists of words, the latest last
};

}  // namespace stator::engine
