// SPDX-License-Identifier: Apache-2.0
#include "stator/core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stator {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
/// Bytes per stream of a round of three.
constexpr size_t kStride = 4096;

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    }
    table[i] = value;
  }
  return table;
}();

uint32_t by_table(const std::byte* data, size_t count, uint32_t crc) {
  for (size_t i = 0; i < count; ++i) {
    crc = kTable[(crc ^ std::to_integer<uint32_t>(data[i])) & 0xFF] ^ (crc >> 8);
  }
  return crc;
}

#if defined(__x86_64__)

/// What `kStride` zero bytes make of a CRC register: linear in its bits, so four tables of bytes.
struct Shift {
  std::array<std::array<uint32_t, 256>, 4> tables;
  uint32_t operator()(uint32_t crc) const {
    return tables[0][crc & 0xFF] ^ tables[1][(crc >> 8) & 0xFF] ^ tables[2][(crc >> 16) & 0xFF] ^
           tables[3][crc >> 24];
  }
};

const Shift& shift() {
  static const Shift made = [] {
    const std::array<std::byte, kStride> zeros{};
    std::array<uint32_t, 32> of_bit{};
    for (uint32_t bit = 0; bit < 32; ++bit) {
      of_bit[bit] = by_table(zeros.data(), zeros.size(), 1U << bit);
    }
    Shift out{};
    for (uint32_t byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        for (uint32_t bit = 0; bit < 8; ++bit) {
          out.tables[byte][value] ^= ((value >> bit) & 1) != 0 ? of_bit[byte * 8 + bit] : 0;
        }
      }
    }
    return out;
  }();
  return made;
}

uint64_t word(const std::byte* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The instruction has a latency of three cycles and a throughput of one: three streams fill it.
__attribute__((target("sse4.2"))) uint32_t by_instruction(const std::byte* data, size_t count,
                                                          uint32_t crc) {
  while (count >= 3 * kStride) {
    uint64_t a = crc;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kStride; i += 8) {
      a = _mm_crc32_u64(a, word(data + i));
      b = _mm_crc32_u64(b, word(data + kStride + i));
      c = _mm_crc32_u64(c, word(data + 2 * kStride + i));
    }
    const Shift& over = shift();
    crc =
        over(over(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
    data += 3 * kStride;
    count -= 3 * kStride;
  }
  uint64_t wide = crc;
  for (; count >= 8; count -= 8, data += 8) {
    wide = _mm_crc32_u64(wide, word(data));
  }
  crc = static_cast<uint32_t>(wide);
  for (; count > 0; --count, ++data) {
    crc = _mm_crc32_u8(crc, std::to_integer<uint8_t>(*data));
  }
  return crc;
}

#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (instruction) {
    return ~by_instruction(bytes.data(), bytes.size(), ~before);
  }
#endif
  return ~by_table(bytes.data(), bytes.size(), ~before);
}

}  // namespace stator
