// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stator::parsers {

/// Up to four bytes to be searched for, sixteen places at a time. Markers begin with one or two
/// different bytes in nearly all families; see `ByteSet` for larger sets.
class FewBytes {
 public:
  static constexpr size_t kMost = 4;

  constexpr FewBytes() = default;
  constexpr explicit FewBytes(std::string_view bytes) {
    for (const char c : bytes) {
      add(c);
    }
  }
  /// A fifth different byte makes the set useless: `complete` tells.
  constexpr void add(char c) {
    if (count_ < kMost) {
      for (size_t i = count_; i < kMost; ++i) {  // the places left repeat it
        blocks_[i].fill(c);
      }
    }
    ++count_;
  }
  constexpr bool complete() const { return count_ > 0 && count_ <= kMost; }

  static constexpr size_t kBlock = 16;

  /// Where the first of them stands at or behind `from`; the text's size if there is none.
  size_t find_in(std::string_view text, size_t from = 0) const {
    size_t at = from;
#if defined(__SSE2__)
    for (; at + kBlock <= text.size(); at += kBlock) {
      if (const uint32_t found = find_in_block(text.data() + at); found != 0) {
        return at + static_cast<size_t>(std::countr_zero(found));
      }
    }
#endif
    while (at < text.size() && !contains(text[at])) {
      ++at;
    }
    return at < text.size() ? at : text.size();
  }

  constexpr bool contains(char c) const {
    return c == blocks_[0][0] || c == blocks_[1][0] || c == blocks_[2][0] || c == blocks_[3][0];
  }

 private:
#if defined(__SSE2__)
  /// A bit for every one of 16 places that has one of the bytes.
  uint32_t find_in_block(const char* text) const {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text));
    __m128i found = _mm_setzero_si128();
    for (const auto& wanted : blocks_) {
      const __m128i same = _mm_load_si128(reinterpret_cast<const __m128i*>(wanted.data()));
      found = _mm_or_si128(found, _mm_cmpeq_epi8(block, same));
    }
    return static_cast<uint32_t>(_mm_movemask_epi8(found));
  }
#endif

  alignas(kBlock) std::array<std::array<char, kBlock>, kMost> blocks_{};  // each one byte repeated
  size_t count_ = 0;
};

}  // namespace stator::parsers
