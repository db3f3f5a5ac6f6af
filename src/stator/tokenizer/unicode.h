// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stator::tokenizer {

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

struct CodePoint {
  char32_t value;
  uint32_t bytes;  ///< 1 to 4
};

/// The code point at `text[at]`; the text must be valid UTF-8 and `at` a character boundary inside
/// it.
[[gnu::always_inline]] constexpr CodePoint decode_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return {lead, 1};
  }
  if (lead < 0xE0) {
    return {static_cast<char32_t>(((lead & 0x1F) << 6) | (byte(1) & 0x3F)), 2};
  }
  if (lead < 0xF0) {
    return {
        static_cast<char32_t>(((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F)),
        3};
  }
  return {static_cast<char32_t>(((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) |
                                ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F)),
          4};
}

/// Start of the character that ends before `at`; `at` > 0, valid UTF-8.
inline size_t previous_boundary(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

/// Lower case of the code point as Rust's standard library has it, where that is one code point.
char32_t to_lower(char32_t code_point);

/// Number of the script as the UnicodeScripts pre-tokenizer groups them; kAnyScript goes with any
/// other, such as the space.
inline constexpr uint8_t kAnyScript = 0;
uint8_t script_of(char32_t code_point);

void append_utf8(char32_t code_point, std::string& out);

bool is_valid_utf8(std::string_view text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// How the bytes at the start of a string go on as UTF-8.
struct Utf8Prefix {
  enum class Kind : uint8_t { kCharacter, kInvalid, kIncomplete } kind;
  uint32_t bytes;  ///< of the character, or of the maximal subpart that one U+FFFD stands for
};

/// Classifies the start of non-empty `bytes` (WHATWG decoding, Unicode 15 §3.9 table 3-7).
Utf8Prefix classify_utf8(std::string_view bytes);

/// Appends `bytes` as UTF-8, one U+FFFD per maximal subpart that is not.
void append_lossy(std::string_view bytes, std::string& out);

}  // namespace stator::tokenizer
