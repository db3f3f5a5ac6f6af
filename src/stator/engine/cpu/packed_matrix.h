// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/safetensors.h"
#include "stator/memory/arena.h"

namespace stator::engine::cpu {

/// A weight matrix [outputs, inputs] as the kernels want it: panels of 16 outputs, inside a panel
/// the rows as the file has them, interleaved element by element (F32) or two bytes by two bytes
/// (F16, BF16 and block formats). Nothing is widened: a matrix takes as many bytes as in its file.
///
/// Matrices of equal inputs can be stacked (q over k over v: one product instead of three). Each
/// part begins at a panel of its own, so its outputs are padded with zero rows to a multiple of 16;
/// neighbours of one type form one segment, others segments of their own.
///
/// I1  Immutable after packing; may be read by any number of threads.
class PackedMatrix {
 public:
  /// Panels of one type.
  struct Segment {
    Dtype dtype = Dtype::kF32;
    int64_t first_panel = 0;
    int64_t panels = 0;
    memory::Arena arena;
  };

  PackedMatrix() noexcept = default;

  /// Each part must be [outputs, inputs] of dtype F32, F16, BF16 or a block format with as many
  /// bytes as that needs; asserted, the loader has checked.
  static Result<PackedMatrix> pack(std::span<const TensorView> parts);

  /// Of all parts, the padding between them included, but not that of the last.
  int64_t outputs() const { return outputs_; }
  int64_t padded_outputs() const { return round_up_lanes(outputs_); }
  int64_t inputs() const { return inputs_; }
  int64_t panels() const { return padded_outputs() / kLanes; }
  std::span<const Segment> segments() const { return segments_; }
  /// Bytes from one panel of a segment to the next.
  int64_t panel_bytes(const Segment& segment) const;
  /// One row, widened to f32: an embedding lookup. `out` has inputs() floats.
  void copy_row(int64_t output, float* out) const;

 private:
  void pack_part(const TensorView& part, int64_t panel, Segment& segment) const;

  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  std::vector<Segment> segments_;
};

/// A tensor's elements as f32. Same demands as PackedMatrix::pack.
std::vector<float> to_floats(const TensorView& tensor);

}  // namespace stator::engine::cpu
