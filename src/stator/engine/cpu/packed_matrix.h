// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/safetensors.h"
#include "stator/memory/arena.h"

namespace stator::engine::cpu {

/// How weights lie in memory. bf16 stays bf16 (half the bytes to stream when decoding); f16 is
/// widened to f32 once, exactly, and so are block formats (Q8_0, …).
enum class WeightFormat : uint8_t { kF32, kBf16 };

/// A weight matrix [outputs, inputs] as the kernels want it: panels of 16 outputs, inside a panel
/// input after input. One step of the inner loop then loads one contiguous vector. Outputs are
/// padded with zero rows to a multiple of 16.
///
/// I1  Immutable after packing; may be read by any number of threads.
class PackedMatrix {
 public:
  PackedMatrix() noexcept = default;

  /// Stacks matrices of equal inputs on top of each other (q over k over v: one product instead of
  /// three). Each must be [outputs, inputs] of dtype F32, F16, BF16 or a block format with as many
  /// bytes as that needs; asserted, the loader has checked. Stacked parts other than the last need
  /// outputs that are a multiple of 16. bf16 only if every part is.
  static Result<PackedMatrix> pack(std::span<const TensorView> parts);

  int64_t outputs() const { return outputs_; }
  int64_t padded_outputs() const { return round_up_lanes(outputs_); }
  int64_t inputs() const { return inputs_; }
  WeightFormat format() const { return format_; }
  int64_t panels() const { return padded_outputs() / kLanes; }
  /// First element of a panel; float or uint16_t by format().
  const void* panel(int64_t index) const;
  /// One row, widened to f32: an embedding lookup. `out` has inputs() floats.
  void copy_row(int64_t output, float* out) const;

 private:
  void pack_bf16(const TensorView& part, int64_t first_output, uint16_t* target) const;
  void pack_floats(const TensorView& part, int64_t first_output, float* target) const;

  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  WeightFormat format_ = WeightFormat::kF32;
  memory::Arena arena_;
};

/// A tensor's elements as f32. Same demands as PackedMatrix::pack.
std::vector<float> to_floats(const TensorView& tensor);

}  // namespace stator::engine::cpu
