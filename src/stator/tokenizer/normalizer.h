// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/result.h"
#include "stator/tokenizer/byte_trie.h"
#include "stator/tokenizer/charsmap.h"
#include "stator/tokenizer/regex.h"

namespace stator::tokenizer {

/// Normalized text may be at most this long: replacements can grow it without bound. Nor may it be
/// longer than kMaxNormalizedGrowth times the text and kSpareNormalizedBytes; NFKC, which grows
/// text most of all that is in use, makes 18 characters of one.
inline constexpr size_t kMaxNormalizedBytes = size_t{1} << 30;
inline constexpr size_t kMaxNormalizedGrowth = 64;
inline constexpr size_t kSpareNormalizedBytes = size_t{1} << 20;

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
  /// Without the characters of some Unicode classes.
  struct RemoveClass {
    uint32_t unicode_classes;
  };
  /// BERT's cleaning: control characters away, white space to spaces.
  struct CleanText {};
  /// A space before and after every Chinese ideograph.
  struct IsolateIdeographs {};
  /// The translation toolkits' cleaning: a fixed list of controls away, another to spaces.
  struct Nmt {};
  /// What SentencePiece does itself before its model sees the text: longest replacements first,
  /// spaces to U+2581.
  struct SentencePiece {
    std::optional<Charsmap> charsmap;
    bool adds_prefix;       ///< a space before the text
    bool collapses_spaces;  ///< also off the ends
    ByteTrie kept = {};     ///< texts that the charsmap leaves alone
  };
  using Step =
      std::variant<ToForm, Lowercase, Strip, Prepend, ReplaceText, ReplaceMatches, MapBytes,
                   RemoveClass, CleanText, IsolateIdeographs, Nmt, Charsmap, SentencePiece>;

  std::vector<Step> steps;
  size_t bytes_max = kMaxNormalizedBytes;
};

struct Normalized {
  std::string_view text;
  bool keeps_start = true;  ///< its first character comes from the first of the input
};

/// Normalizes valid UTF-8. Returns `text` itself when nothing changes (the usual case: NFC of text
/// that is already composed is only checked), else a view into `buffer`. Errors: kTooLarge
/// (the limits above), kInvalidArgument (a regular expression gave up).
Result<Normalized> normalize(const Normalizer& normalizer, std::string_view text,
                             std::string& buffer);

}  // namespace stator::tokenizer
