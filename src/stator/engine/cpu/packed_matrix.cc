// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "stator/core/assert.h"
#include "stator/engine/cpu/quantized.h"

namespace stator::engine::cpu {
namespace {

uint16_t read_u16(const std::byte* from) {
  uint16_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

size_t format_bytes(WeightFormat format) {
  return format == WeightFormat::kBf16 ? 2 : 4;
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(std::span<const TensorView> parts) {
  STATOR_ASSERT(!parts.empty(), "PackedMatrix: nothing to pack");
  PackedMatrix matrix;
  matrix.format_ = WeightFormat::kBf16;
  matrix.inputs_ = static_cast<int64_t>(parts.front().shape.at(1));
  for (const TensorView& part : parts) {
    STATOR_ASSERT(part.shape.size() == 2 && static_cast<int64_t>(part.shape[1]) == matrix.inputs_,
                  "PackedMatrix: parts must be matrices of equal inputs");
    STATOR_ASSERT(part.bytes.size() == part.shape[0] * row_bytes(part.dtype, part.shape[1]),
                  "PackedMatrix: bytes do not match the shape");
    STATOR_ASSERT(matrix.outputs_ % kLanes == 0, "PackedMatrix: a panel cannot span two parts");
    matrix.outputs_ += static_cast<int64_t>(part.shape[0]);
    if (part.dtype != Dtype::kBf16) {
      matrix.format_ = WeightFormat::kF32;
    }
  }
  const auto elements = static_cast<size_t>(matrix.padded_outputs() * matrix.inputs_);
  // Huge pages: a step streams all weights, and page walks would cost more than the slack.
  STATOR_TRY(matrix.arena_, memory::Arena::create({.bytes = elements * format_bytes(matrix.format_),
                                                   .huge_pages = memory::HugePages::kAdvise}));
  int64_t first_output = 0;
  for (const TensorView& part : parts) {
    std::byte* data = matrix.arena_.bytes().data();
    if (matrix.format_ == WeightFormat::kBf16) {
      matrix.pack_bf16(part, first_output, reinterpret_cast<uint16_t*>(data));
    } else {
      matrix.pack_floats(part, first_output, reinterpret_cast<float*>(data));
    }
    first_output += static_cast<int64_t>(part.shape[0]);
  }
  return matrix;
}

void PackedMatrix::pack_bf16(const TensorView& part, int64_t first_output, uint16_t* target) const {
  const auto rows = static_cast<int64_t>(part.shape[0]);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t output = first_output + row;
    uint16_t* to = target + output / kLanes * inputs_ * kLanes + output % kLanes;
    const std::byte* from = part.bytes.data() + row * inputs_ * int64_t{sizeof(uint16_t)};
    for (int64_t input = 0; input < inputs_; ++input) {
      to[input * kLanes] = read_u16(from + input * int64_t{sizeof(uint16_t)});
    }
  }
}

void PackedMatrix::pack_floats(const TensorView& part, int64_t first_output, float* target) const {
  const auto rows = static_cast<int64_t>(part.shape[0]);
  const size_t stride = row_bytes(part.dtype, static_cast<size_t>(inputs_));
  std::vector<float> widened(static_cast<size_t>(inputs_));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t output = first_output + row;
    float* to = target + output / kLanes * inputs_ * kLanes + output % kLanes;
    widen_row(part.dtype, part.bytes.data() + static_cast<size_t>(row) * stride, widened.size(),
              widened.data());
    for (int64_t input = 0; input < inputs_; ++input) {
      to[input * kLanes] = widened[static_cast<size_t>(input)];
    }
  }
}

const void* PackedMatrix::panel(int64_t index) const {
  const auto elements = static_cast<size_t>(index * inputs_ * kLanes);
  return arena_.bytes().data() + elements * format_bytes(format_);
}

void PackedMatrix::copy_row(int64_t output, float* out) const {
  const void* from = panel(output / kLanes);
  const int64_t lane = output % kLanes;
  for (int64_t input = 0; input < inputs_; ++input) {
    const int64_t index = input * kLanes + lane;
    out[input] =
        format_ == WeightFormat::kF32
            ? static_cast<const float*>(from)[index]
            : __builtin_bit_cast(
                  float, static_cast<uint32_t>(static_cast<const uint16_t*>(from)[index]) << 16U);
  }
}

std::vector<float> to_floats(const TensorView& tensor) {
  size_t elements = 1;
  for (const uint64_t extent : tensor.shape) {
    elements *= extent;
  }
  std::vector<float> values(elements);
  widen_row(tensor.dtype, tensor.bytes.data(), elements, values.data());
  return values;
}

}  // namespace stator::engine::cpu
