// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/byte_alphabet.h"

#include "stator/tokenizer/unicode.h"

namespace stator::tokenizer {
namespace {

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

}  // namespace

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    append_utf8(characters_[static_cast<size_t>(byte)], character);
    byte_of_[character] = static_cast<int16_t>(byte);
  }
}

void ByteAlphabet::append_mapped(std::string_view bytes, std::string& out) const {
  for (const char byte : bytes) {
    out.append(characters_[static_cast<unsigned char>(byte)]);
  }
}

std::optional<std::string> ByteAlphabet::unmap(std::string_view text) const {
  std::string bytes;
  return append_unmapped(text, bytes) ? std::optional(std::move(bytes)) : std::nullopt;
}

bool ByteAlphabet::append_unmapped(std::string_view text, std::string& out) const {
  const size_t begin = out.size();
  out.resize(begin + text.size());  // at most one byte per byte
  char* to = out.data() + begin;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const CodePoint code_point = byte < 0x80 ? CodePoint{byte, 1} : decode_at(text, at);
    if (code_point.value >= kEnd || byte_of_[code_point.value] < 0) {
      out.resize(begin);
      return false;
    }
    *to++ = static_cast<char>(byte_of_[code_point.value]);
    at += code_point.bytes;
  }
  out.resize(static_cast<size_t>(to - out.data()));
  return true;
}

}  // namespace stator::tokenizer
