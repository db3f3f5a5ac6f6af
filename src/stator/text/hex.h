// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::text {

inline constexpr uint32_t kNoHexDigit = UINT32_MAX;

/// 0 to 15 for a hex digit of either case, else kNoHexDigit.
constexpr uint32_t hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return static_cast<uint32_t>(c - '0');
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? static_cast<uint32_t>(lower - 'a') + 10 : kNoHexDigit;
}

}  // namespace stator::text
