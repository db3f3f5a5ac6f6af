// SPDX-License-Identifier: Apache-2.0
#include "stator/text/base64.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace stator::text {
namespace {

constexpr uint8_t kNoDigit = 0xFF;

struct Alphabet {
  constexpr explicit Alphabet(std::string_view all) : digits(all) {
    values.fill(kNoDigit);
    for (size_t i = 0; i < digits.size(); ++i) {
      values[static_cast<unsigned char>(digits[i])] = static_cast<uint8_t>(i);
    }
  }

  std::string_view digits;
  std::array<uint8_t, 256> values{};
};
constexpr Alphabet kStandard("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
constexpr Alphabet kUrl("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_");

struct Decoded {
  std::string bytes;
  uint32_t left = 0;  // the last digit's bits that no byte took
};

/// Of digits alone; nothing where one is foreign, or one stands where no byte begins.
std::optional<Decoded> decode(std::string_view text, const Alphabet& alphabet) {
  if (text.size() % 4 == 1) {
    return std::nullopt;
  }
  Decoded decoded;
  decoded.bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : text) {
    const uint8_t value = alphabet.values[static_cast<unsigned char>(digit)];
    if (value == kNoDigit) {
      return std::nullopt;
    }
    bits = (bits << 6) | value;
    count += 6;
    if (count >= 8) {
      count -= 8;
      decoded.bytes.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
  }
  decoded.left = bits & ((1U << count) - 1);
  return decoded;
}

void append(std::string& out, std::string_view bytes, const Alphabet& alphabet) {
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
      to[digit] = alphabet.digits[(bits >> (18 - 6 * digit)) & 63];
    }
    to += 4;
  }
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) {
    text.remove_suffix(1);
  }
  auto decoded = decode(text, kStandard);
  return decoded ? std::optional(std::move(decoded->bytes)) : std::nullopt;
}

void append_base64(std::string& out, std::string_view bytes) {
  append(out, bytes, kStandard);
}

std::string encode_base64url(std::string_view bytes, Padding padding) {
  std::string out;
  append(out, bytes, kUrl);
  while (padding == Padding::kNone && out.ends_with('=')) {
    out.pop_back();
  }
  return out;
}

std::optional<std::string> decode_base64url(std::string_view text) {
  auto decoded = decode(text, kUrl);
  return decoded && decoded->left == 0 ? std::optional(std::move(decoded->bytes)) : std::nullopt;
}

}  // namespace stator::text
