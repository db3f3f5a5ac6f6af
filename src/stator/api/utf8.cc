// SPDX-License-Identifier: Apache-2.0
#include <simdjson.h>

#include "stator/api/detail/utf8.h"

namespace stator::api {
namespace {

struct LeadByte {
  uint32_t length;     // of the whole character; 0 = cannot start one
  uint8_t second_min;  // allowed range of the second byte: excludes overlong forms, surrogates
  uint8_t second_max;  // and values above U+10FFFF (Unicode table 3-7)
};

LeadByte classify(uint8_t lead) {
  if (lead < 0x80) {
    return {1, 0, 0};
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return {2, 0x80, 0xBF};
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    const uint8_t low = lead == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : 0xBF;
    return {3, low, high};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const uint8_t low = lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;
    return {4, low, high};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Unit utf8_unit(std::string_view text, size_t at) {
  const LeadByte lead = classify(static_cast<uint8_t>(text[at]));
  if (lead.length <= 1) {
    return {1, lead.length == 1};
  }
  uint8_t low = lead.second_min;
  uint8_t high = lead.second_max;
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) {
      return {i, false};
    }
    const auto byte = static_cast<uint8_t>(text[at + i]);
    if (byte < low || byte > high) {
      return {i, false};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {lead.length, true};
}

void append_utf8(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else if ((code_point >= 0xD800 && code_point <= 0xDFFF) || code_point > 0x10FFFF) {
    out.append(kReplacementCharacter);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    out.push_back(static_cast<char>(0x80 | ((code_point >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((code_point >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
  }
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + kReplacementCharacter.size());
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Unit unit = utf8_unit(text, at);
    out.append(unit.valid ? text.substr(at, unit.bytes) : kReplacementCharacter);
    at += unit.bytes;
  }
  return out;
}

}  // namespace stator::api
