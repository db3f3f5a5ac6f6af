// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stator::json {

enum class StopAt : uint8_t {
  kSpecial,            ///< '"', '\\' and bytes below 0x20
  kSpecialOrNonAscii,  ///< the same and bytes from 0x80
};

/// Index of the first byte at or after `from` that ends a run of plain string content, or
/// text.size(). 16 bytes per step with SSE2 (the baseline of x86-64), else 8.
template <StopAt kStop>
inline size_t find_run_end(std::string_view text, size_t from) {
  const char* data = text.data();
  size_t at = from;
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i space = _mm_set1_epi8(0x20);
  for (; at + 16 <= text.size(); at += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + at));
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash));
    if constexpr (kStop == StopAt::kSpecialOrNonAscii) {
      // Signed compare: bytes from 0x80 are negative, hence below the space, too.
      hit = _mm_or_si128(hit, _mm_cmplt_epi8(block, space));
    } else {
      // Unsigned "below 0x20" is "max(block, 0x20) differs from block".
      const __m128i plain = _mm_cmpeq_epi8(_mm_max_epu8(block, space), block);
      hit = _mm_or_si128(hit, _mm_andnot_si128(plain, _mm_set1_epi8(-1)));
    }
    const auto mask = static_cast<uint32_t>(_mm_movemask_epi8(hit));
    if (mask != 0) {
      return at + static_cast<size_t>(std::countr_zero(mask));
    }
  }
#else
  // Bit tricks on 8 bytes (Mycroft): may only report a block too early, the tail loop decides.
  constexpr uint64_t kOnes = 0x0101010101010101ULL;
  constexpr uint64_t kHigh = 0x8080808080808080ULL;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, sizeof(word));
    const uint64_t quote = word ^ (kOnes * '"');
    const uint64_t backslash = word ^ (kOnes * '\\');
    uint64_t hit = ((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) |
                   ((word - kOnes * 0x20) & ~word);
    if constexpr (kStop == StopAt::kSpecialOrNonAscii) {
      hit |= word;
    }
    if ((hit & kHigh) != 0) {
      break;
    }
  }
#endif
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(data[at]);
    if (byte == '"' || byte == '\\' || byte < 0x20 ||
        (kStop == StopAt::kSpecialOrNonAscii && byte >= 0x80)) {
      return at;
    }
  }
  return at;
}

}  // namespace stator::json
