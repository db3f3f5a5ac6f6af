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

/// So many bytes are looked at together, where the machine can.
inline constexpr size_t kScanBytes = 16;

#if defined(__SSE2__)
inline __m128i load_scanned(const char* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

/// A bit for each byte that is special.
inline unsigned special_bits(__m128i bytes) {
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i control = _mm_set1_epi8(0x1F);
  const __m128i special =
      _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                   _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
  return static_cast<unsigned>(_mm_movemask_epi8(special));
}
#endif

/// Where the run of plain characters that starts at byte `at` ends; text.size() at the latest.
/// Most of a request and of a prompt is such runs.
inline size_t plain_run_end(std::string_view text, size_t at) {
#if defined(__SSE2__)
  for (; text.size() - at >= kScanBytes; at += kScanBytes) {
    if (const unsigned bits = special_bits(load_scanned(text.data() + at)); bits != 0) {
      return at + static_cast<size_t>(std::countr_zero(bits));
    }
  }
#endif
  while (at < text.size() && !is_json_special(text[at])) {
    ++at;
  }
  return at;
}

/// Copies that run to `out` and returns its end. `out` has room for kScanBytes beyond the run:
/// what stands there afterwards is no part of it. Runs between escapes are short, so this copies
/// before it knows how much.
inline size_t copy_plain_run(std::string_view text, size_t at, char* out) {
#if defined(__SSE2__)
  for (; text.size() - at >= kScanBytes; at += kScanBytes, out += kScanBytes) {
    const __m128i bytes = load_scanned(text.data() + at);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
    if (const unsigned bits = special_bits(bytes); bits != 0) {
      return at + static_cast<size_t>(std::countr_zero(bits));
    }
  }
#endif
  while (at < text.size() && !is_json_special(text[at])) {
    *out++ = text[at++];
  }
  return at;
}

}  // namespace stator::chat_template::detail
