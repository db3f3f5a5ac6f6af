// SPDX-License-Identifier: Apache-2.0
#include "stator/text/base64.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace stator::text {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoDigit = 0xFF;

constexpr std::array<uint8_t, 256> make_values() {
  std::array<uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<uint8_t>(i);
  }
  return values;
}
constexpr std::array<uint8_t, 256> kValues = make_values();

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) {
    text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) {
    return std::nullopt;
  }
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : text) {
    const uint8_t value = kValues[static_cast<unsigned char>(digit)];
    if (value == kNoDigit) {
      return std::nullopt;
    }
    bits = (bits << 6) | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
  }
  return bytes;
}

void append_base64(std::string& out, std::string_view bytes) {
  const size_t begin = out.size();
  out.resize(begin + (bytes.size() + 2) / 3 * 4, '=');
  char* to = out.data() + begin;
  const auto at = [bytes](size_t i) {
    return i < bytes.size() ? uint32_t{static_cast<unsigned char>(bytes[i])} : 0U;
  };
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const uint32_t bits = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    const size_t digits = bytes.size() - i > 2 ? 4 : bytes.size() - i + 1;
    for (size_t digit = 0; digit < digits; ++digit) {
      to[digit] = kDigits[(bits >> (18 - 6 * digit)) & 63];
    }
    to += 4;
  }
}

}  // namespace stator::text
