// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/result.h"
#include "stator/tokenizer/regex.h"

namespace stator::tokenizer {

/// Normalized text may be at most this long: replacements can grow it without bound.
inline constexpr size_t kMaxNormalizedBytes = size_t{1} << 30;

/// What happens to text before it is split, step by step. Plain data; sequences are flattened.
struct Normalizer {
  enum class UnicodeForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
  struct ToForm {
    UnicodeForm form;
  };
  struct Lowercase {};
  /// White space off the ends.
  struct Strip {
    bool left;
    bool right;
  };
  struct Prepend {
    std::string text;
  };
  struct ReplaceText {
    std::string pattern;  // not empty
    std::string content;
  };
  struct ReplaceMatches {
    Regex pattern;
    std::string content;
  };
  /// Every byte to its character of the byte alphabet.
  struct MapBytes {};
  using Step =
      std::variant<ToForm, Lowercase, Strip, Prepend, ReplaceText, ReplaceMatches, MapBytes>;

  std::vector<Step> steps;
  size_t bytes_max = kMaxNormalizedBytes;
};

/// Normalizes valid UTF-8. Returns `text` itself when nothing changes (the usual case: NFC of text
/// that is already composed is only checked), else a view into `buffer`. Errors: kTooLarge
/// (kMaxNormalizedBytes), kInvalidArgument (a regular expression gave up).
Result<std::string_view> normalize(const Normalizer& normalizer, std::string_view text,
                                   std::string& buffer);

}  // namespace stator::tokenizer
