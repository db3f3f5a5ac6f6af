// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace stator::tokenizer {

/// GPT-2's reversible map of the 256 bytes to printable characters, in which byte-level
/// vocabularies are written: printable Latin-1 stands for itself, the rest for U+0100 and up ("Ġ"
/// is the space).
class ByteAlphabet {
 public:
  static const ByteAlphabet& get();

  /// The character of one byte, as UTF-8 of 1 or 2 bytes.
  std::string_view character(unsigned char byte) const { return characters_[byte]; }

  /// Appends `bytes` written in the alphabet.
  void append_mapped(std::string_view bytes, std::string& out) const;

  /// The bytes that valid UTF-8 `text` spells, or nothing if a character is not of the alphabet.
  std::optional<std::string> unmap(std::string_view text) const;

  /// The same, appended to `out`; false, and nothing appended, instead of nothing.
  bool append_unmapped(std::string_view text, std::string& out) const;

 private:
  ByteAlphabet();
  static constexpr char32_t kEnd = 0x144;  // one past the last character used
  std::array<std::string, 256> characters_;
  std::array<int16_t, kEnd> byte_of_;  // -1: not in the alphabet
};

}  // namespace stator::tokenizer
