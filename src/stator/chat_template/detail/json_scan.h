// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stator::chat_template::detail {

/// What ends or interrupts a run of plain characters in a JSON string: quote, backslash, control.
inline bool is_json_special(char c) {
  return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
}

/// Where the run of plain characters that starts at byte `at` ends; text.size() at the latest.
/// Most of a request and of a prompt is such runs, so they go by 16 bytes where the machine can.
inline size_t plain_run_end(std::string_view text, size_t at) {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i control = _mm_set1_epi8(0x1F);
  for (; text.size() - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
    const __m128i special =
        _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                     _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
    if (const auto mask = static_cast<unsigned>(_mm_movemask_epi8(special)); mask != 0) {
      return at + static_cast<size_t>(std::countr_zero(mask));
    }
  }
#endif
  while (at < text.size() && !is_json_special(text[at])) {
    ++at;
  }
  return at;
}

}  // namespace stator::chat_template::detail
