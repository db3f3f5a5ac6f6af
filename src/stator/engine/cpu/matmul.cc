// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/matmul.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "stator/core/assert.h"
#include "stator/engine/cpu/quantized.h"

namespace stator::engine::cpu {
namespace {

// A tile of 12 rows × 512 inputs is 24 KiB and stays in the first-level cache, a block of 128
// outputs × 512 inputs is 256 KiB and stays in the second while all row tiles pass over it.
// Stopping the sum at 512 and going on from memory later changes no bit: a stored f32 is exact.
constexpr int64_t kDepthAtOnce = 512;

// Widening a block costs about what four tiles lose by widening in registers (94 of 106 GFLOP/s).
constexpr int64_t kTilesWithoutWidening = 4;

int64_t tile_count(int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

/// Row tiles of nearly equal height: 13 rows are 7 and 6, not 12 and 1.
int64_t tile_begin(int64_t rows, int64_t tile) {
  return rows * tile / tile_count(rows);
}

template <typename T>
void grow(std::vector<T>& scratch, int64_t count) {
  scratch.resize(std::max(scratch.size(), static_cast<size_t>(count)));
}

using MultiplyQuantized = void (*)(const QuantizedTile& tile);

MultiplyQuantized quantized_kernel(const Kernels& kernels, Dtype dtype) {
  switch (dtype) {
    case Dtype::kQ8_0:
      return kernels.multiply_q8_0;
    case Dtype::kQ4_0:
      return kernels.multiply_q4_0;
    case Dtype::kQ4K:
      return kernels.multiply_q4_k;
    case Dtype::kQ6K:
      return kernels.multiply_q6_k;
    default:
      break;
  }
  STATOR_ASSERT(false, "Matmul: weights of a type without a kernel");
}

/// Weights in blocks of 256 meet activations with a scale per 256.
bool has_long_blocks(Dtype dtype) {
  return dtype == Dtype::kQ4K || dtype == Dtype::kQ6K;
}

}  // namespace

struct Matmul::Job {
  const PackedMatrix& weights;
  const PackedMatrix::Segment& segment;
  const float* rows;  // packed: tile after tile, inside a tile input after input
  int64_t row_count;
  float* out;  // of the segment's first output
  int64_t out_stride;

  const std::byte* panel(int64_t index) const {
    return segment.arena.bytes().data() + index * weights.panel_bytes(segment);
  }
};

Matmul::Matmul(const Kernels& kernels, ThreadTeam& team)
    : kernels_(kernels), team_(team), scratch_(team.size()) {}

void Matmul::run(const Rows& rows, const PackedMatrix& weights, float* out, int64_t out_stride) {
  if (rows.count == 0) {
    return;
  }
  bool packed = false;
  std::optional<bool> quantized;  // and whether for long blocks
  for (const PackedMatrix::Segment& segment : weights.segments()) {
    Job job{.weights = weights,
            .segment = segment,
            .rows = nullptr,
            .row_count = rows.count,
            .out = out + segment.first_panel * kLanes,
            .out_stride = out_stride};
    const int64_t blocks = (segment.panels + kBlockPanels - 1) / kBlockPanels;
    const auto panels_of = [&](int64_t block) {
      return std::min(kBlockPanels, segment.panels - block * kBlockPanels);
    };
    if (is_quantized(segment.dtype)) {
      const bool long_blocks = has_long_blocks(segment.dtype);
      if (std::exchange(quantized, long_blocks) != long_blocks) {
        quantize_rows(rows, weights.inputs(), long_blocks);
      }
      team_.run(blocks, [&](int64_t block, uint32_t /*member*/) {
        run_quantized_block(job, block * kBlockPanels, panels_of(block));
      });
      continue;
    }
    if (rows.count > 1 && !std::exchange(packed, true)) {  // one row is its own packed form
      pack_rows(rows, weights.inputs());
    }
    job.rows = rows.count > 1 ? packed_rows_.data() : rows.data;
    team_.run(blocks, [&](int64_t block, uint32_t member) {
      run_block(job, block * kBlockPanels, panels_of(block), member);
    });
  }
}

void Matmul::pack_rows(const Rows& rows, int64_t depth) {
  grow(packed_rows_, rows.count * depth);
  team_.run(tile_count(rows.count), [&](int64_t tile, uint32_t /*member*/) {
    const int64_t begin = tile_begin(rows.count, tile);
    const int64_t height = tile_begin(rows.count, tile + 1) - begin;
    float* to = packed_rows_.data() + begin * depth;
    for (int64_t row = 0; row < height; ++row) {
      const float* from = rows.data + (begin + row) * rows.stride;
      for (int64_t k = 0; k < depth; ++k) {
        to[k * height + row] = from[k];
      }
    }
  });
}

void Matmul::quantize_rows(const Rows& rows, int64_t depth, bool long_blocks) {
  const int64_t quads = depth / 4;
  const int64_t blocks = depth / kQuantBlock;
  const int64_t halves = depth / kQuantHalf;
  grow(quads_, rows.count * quads);
  grow(scales_, rows.count * blocks);
  grow(sums_, rows.count * halves);
  const auto quantize = long_blocks ? kernels_.quantize_long : kernels_.quantize;
  team_.run(tile_count(rows.count), [&](int64_t tile, uint32_t member) {
    Scratch& scratch = scratch_[member];
    grow(scratch.quads, quads);
    grow(scratch.scales, blocks);
    grow(scratch.sums, halves);
    const int64_t begin = tile_begin(rows.count, tile);
    const int64_t height = tile_begin(rows.count, tile + 1) - begin;
    for (int64_t row = 0; row < height; ++row) {
      quantize(rows.data + (begin + row) * rows.stride, depth,
               {.quads = scratch.quads.data(),
                .scales = scratch.scales.data(),
                .sums = scratch.sums.data()});
      const auto put = [&](const auto& from, int64_t count, auto& all) {
        auto* to = all.data() + begin * count + row;
        for (int64_t i = 0; i < count; ++i) {
          to[i * height] = from[static_cast<size_t>(i)];
        }
      };
      put(scratch.quads, quads, quads_);
      put(scratch.scales, blocks, scales_);
      put(scratch.sums, halves, sums_);
    }
  });
}

void Matmul::run_quantized_block(const Job& job, int64_t first_panel, int64_t panels) {
  const int64_t depth = job.weights.inputs();
  const int64_t tiles = tile_count(job.row_count);
  const MultiplyQuantized multiply = quantized_kernel(kernels_, job.segment.dtype);
  QuantizedTile tile{.panel_stride = job.weights.panel_bytes(job.segment),
                     .panel_count = panels,
                     .out_stride = job.out_stride};
  for (int64_t k = 0; k < depth; k += kDepthAtOnce) {
    tile.depth = std::min(kDepthAtOnce, depth - k);
    tile.accumulate = k > 0;
    tile.weights =
        job.panel(first_panel) +
        kLanes * static_cast<int64_t>(row_bytes(job.segment.dtype, static_cast<size_t>(k)));
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = tile_begin(job.row_count, t);
      tile.row_count = tile_begin(job.row_count, t + 1) - begin;
      tile.row_stride = tile.row_count;
      const auto at = [&](int64_t elements) {
        return begin * (depth / elements) + k / elements * tile.row_count;
      };
      tile.quads = quads_.data() + at(4);
      tile.scales = scales_.data() + at(kQuantBlock);
      tile.sums = sums_.data() + at(kQuantHalf);
      tile.out = job.out + begin * job.out_stride + first_panel * kLanes;
      multiply(tile);
    }
  }
}

void Matmul::run_block(const Job& job, int64_t first_panel, int64_t panels, uint32_t member) {
  const int64_t depth = job.weights.inputs();
  const int64_t tiles = tile_count(job.row_count);
  // Halves are widened inside the product for few tiles, and once per block for many.
  const bool halves = job.segment.dtype != Dtype::kF32;
  const bool bf16 = job.segment.dtype == Dtype::kBf16;
  const bool widen = halves && tiles > kTilesWithoutWidening;
  std::vector<float>& widened = scratch_[member].widened;
  if (widen) {
    grow(widened, kBlockPanels * kDepthAtOnce * kLanes);
  }
  const auto multiply = widen || !halves ? kernels_.multiply_f32
                        : bf16           ? kernels_.multiply_bf16
                                         : kernels_.multiply_f16;
  MultiplyTile tile{.panel_count = panels, .out_stride = job.out_stride};
  for (int64_t k = 0; k < depth; k += kDepthAtOnce) {
    tile.depth = std::min(kDepthAtOnce, depth - k);
    tile.accumulate = k > 0;
    tile.panel_stride = depth * kLanes;
    tile.weights = job.panel(first_panel) + k * kLanes * (halves ? 2 : 4);
    if (widen) {
      const auto* from = static_cast<const uint16_t*>(tile.weights);
      for (int64_t p = 0; p < panels; ++p) {
        (bf16 ? kernels_.widen_bf16 : kernels_.widen_f16)(from + p * tile.panel_stride,
                                                          tile.depth * kLanes,
                                                          widened.data() + p * tile.depth * kLanes);
      }
      tile.weights = widened.data();
      tile.panel_stride = tile.depth * kLanes;
    }
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t begin = tile_begin(job.row_count, t);
      tile.row_count = tile_begin(job.row_count, t + 1) - begin;
      tile.row_stride = tile.row_count;
      tile.rows = job.rows + begin * depth + k * tile.row_count;
      tile.out = job.out + begin * job.out_stride + first_panel * kLanes;
      multiply(tile);
    }
  }
}

}  // namespace stator::engine::cpu
