// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "stator/core/assert.h"
#include "stator/engine/cpu/quantized.h"
#include "stator/io/mapped_file.h"

namespace stator::engine::cpu {
namespace {

// Units read of one row before the next: 16 rows of 64 units stay in the first-level cache.
constexpr int64_t kUnitsAtOnce = 64;

/// to[u * 16 + lane] = from[lane][u] for `rows` rows of `units` units; other lanes stay.
template <typename Unit>
void interleave(const std::byte* from, int64_t rows, int64_t units, Unit* to) {
  for (int64_t first = 0; first < units; first += kUnitsAtOnce) {
    const int64_t count = std::min(kUnitsAtOnce, units - first);
    for (int64_t lane = 0; lane < rows; ++lane) {
      const std::byte* row = from + (lane * units + first) * int64_t{sizeof(Unit)};
      Unit* target = to + first * kLanes + lane;
      for (int64_t u = 0; u < count; ++u) {
        std::memcpy(target + u * kLanes, row + u * int64_t{sizeof(Unit)}, sizeof(Unit));
      }
    }
  }
}

int64_t padded_panels(const TensorView& part) {
  return round_up_lanes(static_cast<int64_t>(part.shape[0])) / kLanes;
}

}  // namespace

int64_t PackedMatrix::panel_bytes(const Segment& segment) const {
  return kLanes * static_cast<int64_t>(row_bytes(segment.dtype, static_cast<size_t>(inputs_)));
}

Result<PackedMatrix> PackedMatrix::pack(std::span<const TensorView> parts) {
  STATOR_ASSERT(!parts.empty(), "PackedMatrix: nothing to pack");
  PackedMatrix matrix;
  matrix.inputs_ = static_cast<int64_t>(parts.front().shape.at(1));
  for (const TensorView& part : parts) {
    STATOR_ASSERT(part.shape.size() == 2 && static_cast<int64_t>(part.shape[1]) == matrix.inputs_,
                  "PackedMatrix: parts must be matrices of equal inputs");
    STATOR_ASSERT(part.bytes.size() == part.shape[0] * row_bytes(part.dtype, part.shape[1]),
                  "PackedMatrix: bytes do not match the shape");
    const int64_t panel = matrix.panels();
    if (matrix.segments_.empty() || matrix.segments_.back().dtype != part.dtype) {
      matrix.segments_.push_back({.dtype = part.dtype, .first_panel = panel});
    }
    matrix.segments_.back().panels += padded_panels(part);
    matrix.outputs_ = panel * kLanes + static_cast<int64_t>(part.shape[0]);
  }
  // Huge pages: a step streams all weights, and page walks would cost more than the slack.
  for (Segment& segment : matrix.segments_) {
    const auto bytes = static_cast<size_t>(segment.panels * matrix.panel_bytes(segment));
    STATOR_TRY(segment.arena,
               memory::Arena::create({.bytes = bytes, .huge_pages = memory::HugePages::kAdvise}));
  }
  size_t segment = 0;
  int64_t panel = 0;
  for (const TensorView& part : parts) {
    while (panel >= matrix.segments_[segment].first_panel + matrix.segments_[segment].panels) {
      ++segment;
    }
    if (part.mapped) {
      io::MappedFile::prepare(part.bytes);
    }
    matrix.pack_part(part, panel, matrix.segments_[segment]);
    if (part.mapped) {  // or loading would take the weights' memory twice
      io::MappedFile::forget(part.bytes);
    }
    panel += padded_panels(part);
  }
  return matrix;
}

void PackedMatrix::pack_part(const TensorView& part, int64_t panel, Segment& segment) const {
  const auto rows = static_cast<int64_t>(part.shape[0]);
  const auto row_size = static_cast<int64_t>(row_bytes(part.dtype, part.shape[1]));
  std::byte* to =
      segment.arena.bytes().data() + (panel - segment.first_panel) * panel_bytes(segment);
  for (int64_t row = 0; row < rows; row += kLanes, to += panel_bytes(segment)) {
    const std::byte* from = part.bytes.data() + row * row_size;
    const int64_t count = std::min(kLanes, rows - row);
    if (part.dtype == Dtype::kF32) {
      interleave(from, count, row_size / 4, reinterpret_cast<uint32_t*>(to));
    } else {
      interleave(from, count, row_size / 2, reinterpret_cast<uint16_t*>(to));
    }
  }
}

void PackedMatrix::copy_row(int64_t output, float* out) const {
  const int64_t panel = output / kLanes;
  const auto found = std::ranges::find_if(segments_, [panel](const Segment& segment) {
    return panel < segment.first_panel + segment.panels;
  });
  STATOR_ASSERT(found != segments_.end(), "PackedMatrix: no such row");
  const std::byte* from =
      found->arena.bytes().data() + (panel - found->first_panel) * panel_bytes(*found);
  const int64_t unit = found->dtype == Dtype::kF32 ? 4 : 2;
  std::vector<std::byte> row(static_cast<size_t>(panel_bytes(*found) / kLanes));
  for (int64_t at = 0; at < static_cast<int64_t>(row.size()); at += unit) {
    std::memcpy(row.data() + at, from + at * kLanes + output % kLanes * unit,
                static_cast<size_t>(unit));
  }
  widen_row(found->dtype, row.data(), static_cast<size_t>(inputs_), out);
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
