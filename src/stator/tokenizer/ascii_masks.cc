// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/ascii_masks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stator::tokenizer {
namespace {

void classify_portable(const char* text, AsciiMasks& masks) {
  masks = {};
  for (size_t i = 0; i < kMaskBytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const uint64_t bit = uint64_t{1} << i;
    const auto between = [byte](unsigned first, unsigned last) {
      return byte >= first && byte <= last;
    };
    masks.letter |= between('a', 'z') || between('A', 'Z') ? bit : 0;
    masks.capital |= between('A', 'Z') ? bit : 0;
    masks.digit |= between('0', '9') ? bit : 0;
    masks.space |= byte == ' ' || between('\t', '\r') ? bit : 0;
    masks.newline |= byte == '\r' || byte == '\n' ? bit : 0;
    masks.blank |= byte == ' ' ? bit : 0;
    masks.quote |= byte == '\'' ? bit : 0;
    masks.control |= between(0, 8) || between(0x0E, 0x1F) || byte == 0x7F ? bit : 0;
    masks.other |= byte >= 0x80 ? bit : 0;
  }
}

#if defined(__x86_64__)

// Signed comparisons: bytes from 0x80 on are negative, so they are in no ASCII range.

void classify_sse2(const char* text, AsciiMasks& masks) {
  masks = {};
  const auto set1 = [](char c) { return _mm_set1_epi8(c); };
  for (size_t i = 0; i < kMaskBytes; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + i));
    const auto between = [&](__m128i value, char first, char last) {
      return _mm_and_si128(_mm_cmpgt_epi8(value, set1(static_cast<char>(first - 1))),
                           _mm_cmplt_epi8(value, set1(static_cast<char>(last + 1))));
    };
    const auto put = [i](uint64_t& mask, __m128i chosen) {
      mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(chosen))) << i;
    };
    const __m128i blank = _mm_cmpeq_epi8(bytes, set1(' '));
    put(masks.letter, between(_mm_or_si128(bytes, set1(0x20)), 'a', 'z'));
    put(masks.capital, between(bytes, 'A', 'Z'));
    put(masks.digit, between(bytes, '0', '9'));
    const __m128i lines = between(bytes, '\t', '\r');
    put(masks.space, _mm_or_si128(blank, lines));
    put(masks.control, _mm_andnot_si128(lines, _mm_or_si128(between(bytes, '\0', 0x1F),
                                                            _mm_cmpeq_epi8(bytes, set1(0x7F)))));
    put(masks.newline,
        _mm_or_si128(_mm_cmpeq_epi8(bytes, set1('\r')), _mm_cmpeq_epi8(bytes, set1('\n'))));
    put(masks.blank, blank);
    put(masks.quote, _mm_cmpeq_epi8(bytes, set1('\'')));
    put(masks.other, bytes);
  }
}

__attribute__((target("avx2"))) void classify_avx2(const char* text, AsciiMasks& masks) {
  masks = {};
  for (size_t i = 0; i < kMaskBytes; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + i));
    const auto is = [&](char c) __attribute__((target("avx2"))) {
      return _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(c));
    };
    const auto between = [](__m256i value, char first, char last) __attribute__((target("avx2"))) {
      return _mm256_andnot_si256(
          _mm256_cmpgt_epi8(value, _mm256_set1_epi8(last)),
          _mm256_cmpgt_epi8(value, _mm256_set1_epi8(static_cast<char>(first - 1))));
    };
    const auto put = [i](uint64_t& mask, __m256i chosen) __attribute__((target("avx2"))) {
      mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(chosen))) << i;
    };
    const __m256i blank = is(' ');
    put(masks.letter, between(_mm256_or_si256(bytes, _mm256_set1_epi8(0x20)), 'a', 'z'));
    put(masks.capital, between(bytes, 'A', 'Z'));
    put(masks.digit, between(bytes, '0', '9'));
    const __m256i lines = between(bytes, '\t', '\r');
    put(masks.space, _mm256_or_si256(blank, lines));
    put(masks.control,
        _mm256_andnot_si256(lines, _mm256_or_si256(between(bytes, '\0', 0x1F), is(0x7F))));
    put(masks.newline, _mm256_or_si256(is('\r'), is('\n')));
    put(masks.blank, blank);
    put(masks.quote, is('\''));
    put(masks.other, bytes);
  }
}

__attribute__((target("avx512f,avx512bw"))) void classify_avx512(const char* text,
                                                                 AsciiMasks& masks) {
  const __m512i bytes = _mm512_loadu_si512(text);
  const __m512i from_letter =
      _mm512_sub_epi8(_mm512_or_si512(bytes, _mm512_set1_epi8(0x20)), _mm512_set1_epi8('a'));
  const __m512i from_capital = _mm512_sub_epi8(bytes, _mm512_set1_epi8('A'));
  const __m512i from_digit = _mm512_sub_epi8(bytes, _mm512_set1_epi8('0'));
  const __m512i from_tab = _mm512_sub_epi8(bytes, _mm512_set1_epi8('\t'));
  masks.letter = _mm512_cmplt_epu8_mask(from_letter, _mm512_set1_epi8(26));
  masks.capital = _mm512_cmplt_epu8_mask(from_capital, _mm512_set1_epi8(26));
  masks.digit = _mm512_cmplt_epu8_mask(from_digit, _mm512_set1_epi8(10));
  masks.blank = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(' '));
  const __mmask64 lines = _mm512_cmplt_epu8_mask(from_tab, _mm512_set1_epi8(5));
  masks.space = masks.blank | lines;
  masks.control = ~lines & (_mm512_cmplt_epu8_mask(bytes, _mm512_set1_epi8(0x20)) |
                            _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(0x7F)));
  masks.newline = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\r')) |
                  _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\n'));
  masks.quote = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\''));
  masks.other = _mm512_movepi8_mask(bytes);
}

SimdLevel detect_level() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bw")) {
    return SimdLevel::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? SimdLevel::kAvx2 : SimdLevel::kSse2;
}

#else

SimdLevel detect_level() {
  return SimdLevel::kPortable;
}

#endif

}  // namespace

SimdLevel simd_level() {
  static const SimdLevel level = detect_level();
  return level;
}

ClassifyAscii ascii_classifier(SimdLevel level) {
  switch (level) {
    case SimdLevel::kPortable:
      break;
#if defined(__x86_64__)
    case SimdLevel::kSse2:
      return classify_sse2;
    case SimdLevel::kAvx2:
      return classify_avx2;
    case SimdLevel::kAvx512:
      return classify_avx512;
#else
    default:
      break;
#endif
  }
  return classify_portable;
}

}  // namespace stator::tokenizer
