// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::api {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// What stands at one place of a byte string.
struct Utf8Unit {
  uint32_t bytes = 1;  ///< length of the character, or of the maximal broken subpart
  bool valid = false;
};

/// Looks at `text[at]` and what follows. `at` < text.size(). Broken input is measured as the WHATWG
/// decoder does it, so that replacing each broken unit by U+FFFD matches browsers and Python.
Utf8Unit utf8_unit(std::string_view text, size_t at);

/// Appends the encoding of a code point; surrogates and values above U+10FFFF become U+FFFD.
void append_utf8(std::string& out, uint32_t code_point);

/// Whether all of `text` is UTF-8. Vectorised.
bool is_valid_utf8(std::string_view text);

/// A copy in which every broken unit is U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace stator::api
