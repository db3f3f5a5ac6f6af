// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// How the bytes at the start of a string go on as UTF-8.
struct Utf8Prefix {
  enum class Kind : uint8_t { kCharacter, kInvalid, kIncomplete } kind;
  uint32_t bytes;  ///< of the character, or of the maximal subpart that one U+FFFD stands for

  bool is_character() const { return kind == Kind::kCharacter; }
};

/// Classifies the start of non-empty `bytes` as the WHATWG decoder does (Unicode 15 §3.9, table
/// 3-7), so that one U+FFFD per unit that is no character gives what browsers and Python give.
Utf8Prefix classify_utf8(std::string_view bytes);

/// Whether all of `text` is UTF-8. Vectorised.
bool is_valid_utf8(std::string_view text);

/// Appends the encoding of a code point; surrogates and values above U+10FFFF become U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

/// Appends `bytes`, one U+FFFD per maximal subpart that is not UTF-8.
void append_lossy(std::string& out, std::string_view bytes);

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

constexpr bool is_high_surrogate(uint32_t unit) {
  return unit >= 0xD800 && unit < 0xDC00;
}
constexpr bool is_low_surrogate(uint32_t unit) {
  return unit >= 0xDC00 && unit < 0xE000;
}
/// The code point that a pair of UTF-16 units stands for.
constexpr char32_t join_surrogates(uint32_t high, uint32_t low) {
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

}  // namespace stator::text
