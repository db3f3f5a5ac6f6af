// SPDX-License-Identifier: Apache-2.0
#include "stator/access/detail/base64url.h"

#include <array>
#include <cstdint>

namespace stator::access::detail {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr uint8_t kNone = 64;

constexpr std::array<uint8_t, 256> make_values() {
  std::array<uint8_t, 256> values{};
  values.fill(kNone);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<uint8_t>(i);
  }
  return values;
}
constexpr auto kValues = make_values();

}  // namespace

std::string encode_base64url(std::string_view bytes) {
  std::string out;
  uint32_t held = 0;
  uint32_t bits = 0;
  for (const char c : bytes) {
    held = held << 8 | static_cast<unsigned char>(c);
    bits += 8;
    for (; bits >= 6; bits -= 6) {
      out += kDigits[held >> (bits - 6) & 63];
    }
    held &= 255;
  }
  if (bits > 0) {
    out += kDigits[held << (6 - bits) & 63];
  }
  return out;
}

std::optional<std::string> decode_base64url(std::string_view text) {
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t held = 0;
  uint32_t bits = 0;
  for (const char c : text) {
    const uint8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNone) {
      return std::nullopt;
    }
    held = held << 6 | value;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>(held >> bits);
      held &= (1U << bits) - 1;
    }
  }
  if (bits >= 6 || held != 0) {
    return std::nullopt;
  }
  return out;
}

}  // namespace stator::access::detail
