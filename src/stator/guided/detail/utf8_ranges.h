// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace stator::guided {

struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;
};

/// Calls body(span of ByteRange) for sequences of byte ranges that together encode exactly the
/// characters from `first` to `last`, surrogates left out (the method of RE2 and rust's
/// utf8-ranges: cut where lengths change, then where continuation bytes are not full ranges).
template <typename Body>
void for_each_utf8_range(uint32_t first, uint32_t last, const Body& body) {
  if (first > last) {
    return;
  }
  constexpr uint32_t kFirstSurrogate = 0xD800;
  constexpr uint32_t kLastSurrogate = 0xDFFF;
  if (first <= kLastSurrogate && last >= kFirstSurrogate) {
    if (first < kFirstSurrogate) {
      for_each_utf8_range(first, kFirstSurrogate - 1, body);
    }
    if (last > kLastSurrogate) {
      for_each_utf8_range(kLastSurrogate + 1, last, body);
    }
    return;
  }
  for (const uint32_t limit : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (first <= limit && limit < last) {
      for_each_utf8_range(first, limit, body);
      for_each_utf8_range(limit + 1, last, body);
      return;
    }
  }
  const uint32_t length = last <= 0x7F ? 1 : last <= 0x7FF ? 2 : last <= 0xFFFF ? 3 : 4;
  for (uint32_t i = 1; i < length; ++i) {
    const uint32_t mask = (1U << (6 * i)) - 1;
    if ((first & ~mask) != (last & ~mask)) {
      if ((first & mask) != 0) {
        for_each_utf8_range(first, first | mask, body);
        for_each_utf8_range((first | mask) + 1, last, body);
        return;
      }
      if ((last & mask) != mask) {
        for_each_utf8_range(first, (last & ~mask) - 1, body);
        for_each_utf8_range(last & ~mask, last, body);
        return;
      }
    }
  }
  constexpr std::array<uint32_t, 5> kLead = {0, 0x00, 0xC0, 0xE0, 0xF0};
  std::array<ByteRange, 4> bytes;
  for (uint32_t i = 0; i < length; ++i) {
    const uint32_t shift = 6 * (length - 1 - i);
    const uint32_t mask = i == 0 ? 0xFF : 0x3F;
    const uint32_t mark = i == 0 ? kLead[length] : 0x80;
    bytes[i] = {static_cast<uint8_t>(mark | ((first >> shift) & mask)),
                static_cast<uint8_t>(mark | ((last >> shift) & mask))};
  }
  body(std::span<const ByteRange>(bytes).first(length));
}

}  // namespace stator::guided
