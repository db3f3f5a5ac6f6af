// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "stator/core/assert.h"

namespace stator::engine::cpu {
namespace {

uint16_t read_u16(const std::byte* from) {
  uint16_t value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Element `index` of a tensor, exactly.
float read_float(const TensorView& tensor, size_t index) {
  const std::byte* from = tensor.bytes.data() + index * dtype_bytes(tensor.dtype);
  switch (tensor.dtype) {
    case Dtype::kF32: {
      float value = 0;
      std::memcpy(&value, from, sizeof(value));
      return value;
    }
    case Dtype::kBf16:
      return __builtin_bit_cast(float, static_cast<uint32_t>(read_u16(from)) << 16U);
    case Dtype::kF16:
      return static_cast<float>(__builtin_bit_cast(_Float16, read_u16(from)));
    default:
      STATOR_ASSERT(false, "weights are F32, F16 or BF16");
  }
}

/// What goes into the packed form: bf16 bits as they are, anything else as f32.
template <typename Store>
Store read_element(const TensorView& tensor, size_t index);
template <>
float read_element<float>(const TensorView& tensor, size_t index) {
  return read_float(tensor, index);
}
template <>
uint16_t read_element<uint16_t>(const TensorView& tensor, size_t index) {
  return read_u16(tensor.bytes.data() + index * sizeof(uint16_t));
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
    STATOR_ASSERT(part.bytes.size() == part.shape[0] * part.shape[1] * dtype_bytes(part.dtype),
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
      matrix.pack_part(part, first_output, reinterpret_cast<uint16_t*>(data));
    } else {
      matrix.pack_part(part, first_output, reinterpret_cast<float*>(data));
    }
    first_output += static_cast<int64_t>(part.shape[0]);
  }
  return matrix;
}

template <typename Store>
void PackedMatrix::pack_part(const TensorView& part, int64_t first_output, Store* target) const {
  const auto rows = static_cast<int64_t>(part.shape[0]);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t output = first_output + row;
    Store* to = target + output / kLanes * inputs_ * kLanes + output % kLanes;
    for (int64_t input = 0; input < inputs_; ++input) {
      to[input * kLanes] = read_element<Store>(part, static_cast<size_t>(row * inputs_ + input));
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
  std::vector<float> values(tensor.bytes.size() / dtype_bytes(tensor.dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = read_float(tensor, i);
  }
  return values;
}

}  // namespace stator::engine::cpu
