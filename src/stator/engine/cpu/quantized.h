// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "stator/engine/cpu/safetensors.h"

namespace stator::engine::cpu {

// Weights in ggml's block formats: integers with a scale per block, as GGUF files have them.
//   Q8_0  32 elements: f16 scale, 32 × i8
//   Q4_0  32 elements: f16 scale, 32 × 4 bits less 8
//   Q4_K  256 elements: f16 scale and f16 minimum, 8 × 6-bit scale and minimum, 256 × 4 bits
//   Q6_K  256 elements: 256 × 6 bits less 32, 16 × i8 scale, f16 scale

bool is_quantized(Dtype dtype);
/// Bytes of a row; `elements` is a multiple of the format's block. For plain types, too.
size_t row_bytes(Dtype dtype, size_t elements);
/// A row as f32, exactly what the format means. For plain floating types, too.
void widen_row(Dtype dtype, const std::byte* row, size_t elements, float* out);

}  // namespace stator::engine::cpu
