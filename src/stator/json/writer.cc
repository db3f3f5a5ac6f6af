// SPDX-License-Identifier: Apache-2.0
#include "stator/json/writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "stator/json/detail/byte_scan.h"
#include "stator/text/utf8.h"

namespace stator::json {
namespace {

void append_unicode_escape(std::string& out, uint32_t code_unit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::array<char, 6> escape = {'\\',
                                      'u',
                                      kHex[(code_unit >> 12) & 0xF],
                                      kHex[(code_unit >> 8) & 0xF],
                                      kHex[(code_unit >> 4) & 0xF],
                                      kHex[code_unit & 0xF]};
  out.append(escape.data(), escape.size());
}

void append_ascii_special(std::string& out, char byte) {
  switch (byte) {
    case '"':
      out.append("\\\"", 2);
      return;
    case '\\':
      out.append("\\\\", 2);
      return;
    case '\n':
      out.append("\\n", 2);
      return;
    case '\r':
      out.append("\\r", 2);
      return;
    case '\t':
      out.append("\\t", 2);
      return;
    case '\b':
      out.append("\\b", 2);
      return;
    case '\f':
      out.append("\\f", 2);
      return;
    default:
      append_unicode_escape(out, static_cast<uint8_t>(byte));
  }
}

// One character from 0x80 up, or a broken unit. Returns its length in the input.
size_t append_non_ascii(std::string& out, std::string_view text, size_t at) {
  const text::Utf8Prefix unit = text::classify_utf8(text.substr(at));
  const std::string_view bytes = text.substr(at, unit.bytes);
  if (!unit.is_character()) {
    out.append(text::kReplacementCharacter);
  } else if (bytes == "\xE2\x80\xA8") {
    append_unicode_escape(out, 0x2028);
  } else if (bytes == "\xE2\x80\xA9") {
    append_unicode_escape(out, 0x2029);
  } else if (bytes == "\xC2\x85") {
    append_unicode_escape(out, 0x85);
  } else {
    out.append(bytes);
  }
  return unit.bytes;
}

template <typename Number>
void append_number(std::string& out, Number number) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), static_cast<size_t>(end - digits.data()));
}

}  // namespace

void append_escaped(std::string& out, std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = find_run_end<StopAt::kSpecialOrNonAscii>(text, at);
    out.append(text.data() + at, end - at);
    at = end;
    while (at < text.size()) {
      const auto byte = static_cast<uint8_t>(text[at]);
      if (byte >= 0x80) {
        at += append_non_ascii(out, text, at);
      } else if (byte < 0x20 || byte == '"' || byte == '\\') {
        append_ascii_special(out, text[at]);
        ++at;
      } else {
        break;
      }
    }
  }
}

void append_string(std::string& out, std::string_view text) {
  out.push_back('"');
  append_escaped(out, text);
  out.push_back('"');
}

Writer& Writer::key_escaped(std::string_view text) {
  separate();
  append_string(out_, text);
  out_.push_back(':');
  comma_ = false;
  return *this;
}

Writer& Writer::value(double number) {
  if (!std::isfinite(number)) {
    return null();
  }
  separate();
  append_number(out_, number);
  return *this;
}

Writer& Writer::value(float number) {
  if (!std::isfinite(number)) {
    return null();
  }
  separate();
  append_number(out_, number);
  return *this;
}

Writer& Writer::integer(int64_t number) {
  separate();
  append_number(out_, number);
  return *this;
}

Writer& Writer::unsigned_integer(uint64_t number) {
  separate();
  append_number(out_, number);
  return *this;
}

}  // namespace stator::json
