// SPDX-License-Identifier: Apache-2.0
#include "stator/text/utf8.h"

#include <simdjson.h>

namespace stator::text {

Utf8Prefix classify_utf8(std::string_view bytes) {
  using Kind = Utf8Prefix::Kind;
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) {
    return {Kind::kCharacter, 1};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {Kind::kInvalid, 1};
  }
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values beyond U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (uint32_t i = 1; i < length; ++i) {
    if (i == bytes.size()) {
      return {Kind::kIncomplete, i};
    }
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < low || byte > high) {
      return {Kind::kInvalid, i};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::kCharacter, length};
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.append({static_cast<char>(0xC0 | (code_point >> 6)), tail(0)});
  } else if ((code_point >= 0xD800 && code_point < 0xE000) || code_point > 0x10FFFF) {
    out.append(kReplacementCharacter);
  } else if (code_point < 0x10000) {
    out.append({static_cast<char>(0xE0 | (code_point >> 12)), tail(6), tail(0)});
  } else {
    out.append({static_cast<char>(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)});
  }
}

void append_lossy(std::string& out, std::string_view bytes) {
  if (is_valid_utf8(bytes)) {
    out.append(bytes);
    return;
  }
  while (!bytes.empty()) {
    const Utf8Prefix prefix = classify_utf8(bytes);
    out.append(prefix.is_character() ? bytes.substr(0, prefix.bytes) : kReplacementCharacter);
    bytes.remove_prefix(prefix.bytes);
  }
}

}  // namespace stator::text
