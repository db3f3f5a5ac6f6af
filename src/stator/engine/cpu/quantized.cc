// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/quantized.h"

#include <cstring>

#include "stator/core/assert.h"

namespace stator::engine::cpu {
namespace {

constexpr size_t kSmallBlock = 32;
constexpr size_t kLargeBlock = 256;
constexpr size_t kQ8Bytes = 34;
constexpr size_t kQ4Bytes = 18;
constexpr size_t kQ4KBytes = 144;
constexpr size_t kQ6KBytes = 210;

float read_half(const std::byte* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
uint32_t u8(std::byte byte) {
  return static_cast<uint32_t>(byte);
}
float i8(std::byte byte) {
  return static_cast<float>(static_cast<int8_t>(byte));
}

void widen_q8(const std::byte* block, float* out) {
  const float scale = read_half(block);
  for (size_t i = 0; i < kSmallBlock; ++i) {
    out[i] = scale * i8(block[2 + i]);
  }
}

void widen_q4(const std::byte* block, float* out) {
  const float scale = read_half(block);
  for (size_t i = 0; i < kSmallBlock / 2; ++i) {
    const uint32_t two = u8(block[2 + i]);
    out[i] = scale * (static_cast<float>(two & 0xFU) - 8.0F);
    out[i + kSmallBlock / 2] = scale * (static_cast<float>(two >> 4U) - 8.0F);
  }
}

/// Scale and minimum `index` of the twelve bytes that hold eight of each, 6 bits long.
void read_scale(const std::byte* packed, size_t index, float& scale, float& minimum) {
  if (index < 4) {
    scale = static_cast<float>(u8(packed[index]) & 63U);
    minimum = static_cast<float>(u8(packed[index + 4]) & 63U);
    return;
  }
  scale = static_cast<float>((u8(packed[index + 4]) & 0xFU) | (u8(packed[index - 4]) >> 6U << 4U));
  minimum = static_cast<float>((u8(packed[index + 4]) >> 4U) | (u8(packed[index]) >> 6U << 4U));
}

void widen_q4k(const std::byte* block, float* out) {
  const float scale = read_half(block);
  const float minimum = read_half(block + 2);
  const std::byte* quants = block + 16;
  for (size_t part = 0; part < 4; ++part, quants += 32, out += 64) {
    for (const size_t half : {size_t{0}, size_t{1}}) {
      float own_scale = 0;
      float own_minimum = 0;
      read_scale(block + 4, 2 * part + half, own_scale, own_minimum);
      for (size_t i = 0; i < 32; ++i) {
        const uint32_t value = half == 0 ? u8(quants[i]) & 0xFU : u8(quants[i]) >> 4U;
        out[half * 32 + i] = scale * own_scale * static_cast<float>(value) - minimum * own_minimum;
      }
    }
  }
}

void widen_q6k(const std::byte* block, float* out) {
  const std::byte* low = block;
  const std::byte* high = block + 128;
  const std::byte* scales = block + 192;
  const float scale = read_half(block + 208);
  for (size_t part = 0; part < 2; ++part, out += 128, low += 64, high += 32, scales += 8) {
    for (size_t i = 0; i < 32; ++i) {
      const uint32_t bits = u8(high[i]);
      const uint32_t values[4] = {(u8(low[i]) & 0xFU) | ((bits & 3U) << 4U),
                                  (u8(low[i + 32]) & 0xFU) | (((bits >> 2U) & 3U) << 4U),
                                  (u8(low[i]) >> 4U) | (((bits >> 4U) & 3U) << 4U),
                                  (u8(low[i + 32]) >> 4U) | (((bits >> 6U) & 3U) << 4U)};
      for (size_t k = 0; k < 4; ++k) {
        out[k * 32 + i] =
            scale * i8(scales[i / 16 + 2 * k]) * (static_cast<float>(values[k]) - 32.0F);
      }
    }
  }
}

template <typename Widen>
void widen_blocks(const std::byte* row, size_t elements, size_t block, size_t bytes, Widen widen,
                  float* out) {
  for (size_t i = 0; i < elements; i += block, row += bytes) {
    widen(row, out + i);
  }
}

}  // namespace

bool is_quantized(Dtype dtype) {
  return dtype == Dtype::kQ8_0 || dtype == Dtype::kQ4_0 || dtype == Dtype::kQ4K ||
         dtype == Dtype::kQ6K;
}

size_t row_bytes(Dtype dtype, size_t elements) {
  switch (dtype) {
    case Dtype::kQ8_0:
      return elements / kSmallBlock * kQ8Bytes;
    case Dtype::kQ4_0:
      return elements / kSmallBlock * kQ4Bytes;
    case Dtype::kQ4K:
      return elements / kLargeBlock * kQ4KBytes;
    case Dtype::kQ6K:
      return elements / kLargeBlock * kQ6KBytes;
    default:
      return elements * dtype_bytes(dtype);
  }
}

void widen_row(Dtype dtype, const std::byte* row, size_t elements, float* out) {
  switch (dtype) {
    case Dtype::kF32:
      std::memcpy(out, row, elements * sizeof(float));
      return;
    case Dtype::kF16:
      for (size_t i = 0; i < elements; ++i) {
        out[i] = read_half(row + 2 * i);
      }
      return;
    case Dtype::kBf16:
      for (size_t i = 0; i < elements; ++i) {
        uint16_t bits = 0;
        std::memcpy(&bits, row + 2 * i, sizeof(bits));
        out[i] = __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16U);
      }
      return;
    case Dtype::kQ8_0:
      return widen_blocks(row, elements, kSmallBlock, kQ8Bytes, widen_q8, out);
    case Dtype::kQ4_0:
      return widen_blocks(row, elements, kSmallBlock, kQ4Bytes, widen_q4, out);
    case Dtype::kQ4K:
      return widen_blocks(row, elements, kLargeBlock, kQ4KBytes, widen_q4k, out);
    case Dtype::kQ6K:
      return widen_blocks(row, elements, kLargeBlock, kQ6KBytes, widen_q6k, out);
    default:
      STATOR_ASSERT(false, "weights are F32, F16, BF16 or of a block format");
  }
}

}  // namespace stator::engine::cpu
