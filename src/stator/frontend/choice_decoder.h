// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "stator/core/ids.h"
#include "stator/inference/sampling.h"
#include "stator/parsers/stop_matcher.h"
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

/// How one choice's tokens become text.
struct DecodeOptions {
  tokenizer::SkipSpecial skip_special = tokenizer::SkipSpecial::kYes;
  parsers::IncludeStop include_stop = parsers::IncludeStop::kNo;
  uint32_t min_tokens = 0;
  bool has_text = true;  ///< false: tokens are counted, and nothing is written
};

/// What came out of a batch of tokens.
struct Decoded {
  uint32_t tokens_used = 0;  ///< fewer than given when a stop string ended the choice among them
  inference::FinishReason finish = inference::FinishReason::kNone;
  std::optional<size_t> stop_string;  ///< index of the one that matched
  std::optional<TokenId> stop_token;  ///< the client's stop token that matched
};

/// Tokens → text of one choice: detokenizer, then stop strings. Pure; the tokenizer and the matcher
/// outlive it. The ending token (EOS or a stop token) is not shown; text that a stop string may
/// still swallow is held until it is certain; at the end everything is released.
class ChoiceDecoder {
 public:
  /// `stops` may be null: no stop strings.
  ChoiceDecoder(const tokenizer::Tokenizer& tokenizer, const parsers::StopMatcher* stops,
                DecodeOptions options);

  /// Appends to `text` what became certain. `finish` is the engine's, for the last of `tokens`.
  Decoded feed(std::span<const TokenId> tokens, inference::FinishReason finish,
               bool stopped_by_token, std::string& text);

  /// Counts a token that has no text.
  void skip_token() { ++generated_; }

  uint32_t generated() const { return generated_; }
  /// Text decoded so far, released or held for a stop string.
  uint64_t decoded_bytes() const { return decoded_bytes_; }

 private:
  std::optional<size_t> match(std::string_view piece, std::string& text);

  tokenizer::IncrementalDetokenizer detokenizer_;
  const parsers::StopMatcher* stops_;
  parsers::StopMatcher::State stop_state_;
  DecodeOptions options_;
  uint32_t generated_ = 0;
  uint64_t decoded_bytes_ = 0;
};

}  // namespace stator::frontend
