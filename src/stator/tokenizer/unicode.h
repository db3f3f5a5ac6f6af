// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/text/utf8.h"

namespace stator::tokenizer {

using text::append_lossy;
using text::append_utf8;
using text::classify_utf8;
using text::CodePoint;
using text::decode_at;
using text::is_valid_utf8;
using text::kReplacementCharacter;
using text::previous_boundary;
using text::Utf8Prefix;

/// Bits of a code point. The members come from the reference library itself (see
/// testdata/make_unicode_data.py), because its parts follow different Unicode versions.
enum UnicodeClass : uint32_t {
  kLetter = 1U << 0,             ///< \p{L}
  kNumber = 1U << 1,             ///< \p{N}
  kSpace = 1U << 2,              ///< White_Space: with U+0085, without U+180E and U+001C…1F
  kMark = 1U << 3,               ///< \p{M}
  kPunctuation = 1U << 4,        ///< \p{P}
  kSymbol = 1U << 5,             ///< \p{S}
  kUpper = 1U << 6,              ///< \p{Lu}\p{Lt}
  kLower = 1U << 7,              ///< \p{Ll}
  kHan = 1U << 8,                ///< \p{Han}
  kWord = 1U << 9,               ///< \w of single_word and the Whitespace pre-tokenizer
  kDigit = 1U << 10,             ///< what the Digits pre-tokenizer splits on
  kPunctuationSplit = 1U << 11,  ///< what the Punctuation pre-tokenizer splits on
  kNfcActive = 1U << 12,         ///< NFC may change, move or compose it with what stands before it
  kNewline = 1U << 13,           ///< CR and LF
  kNfdActive = 1U << 14,         ///< the same for the other normalization forms
  kNfkcActive = 1U << 15,
  kNfkdActive = 1U << 16,
  kBertControl = 1U << 17,     ///< what BERT's text cleaning removes
  kNonspacingMark = 1U << 18,  ///< what BERT's accent stripping removes
  kGraphemeExtend = 1U << 20,  ///< in one grapheme with what stands before it
  kCombiningMark = 1U << 19,   ///< what the StripAccents normalizer removes
};

/// All classes of all code points in pages of 64, equal pages stored once: the characters of one
/// script touch a kilobyte or two. Built once per process in about a millisecond.
class UnicodeTable {
 public:
  static const UnicodeTable& get();
  uint32_t flags(char32_t code_point) const {
    return pages_[page_of_[code_point / kPageCodePoints]][code_point % kPageCodePoints];
  }
  uint32_t ascii_flags(unsigned char byte) const { return ascii_[byte]; }

 private:
  static constexpr uint32_t kPageCodePoints = 64;
  using Page = std::array<uint32_t, kPageCodePoints>;

  UnicodeTable();
  std::vector<Page> pages_;
  std::array<uint16_t, 0x110000 / kPageCodePoints> page_of_{};
  std::array<uint32_t, 128> ascii_{};
};

/// Lower case of the code point as Rust's standard library has it, where that is one code point.
char32_t to_lower(char32_t code_point);

/// Number of the script as the UnicodeScripts pre-tokenizer groups them; kAnyScript goes with any
/// other, such as the space.
inline constexpr uint8_t kAnyScript = 0;
uint8_t script_of(char32_t code_point);

}  // namespace stator::tokenizer
