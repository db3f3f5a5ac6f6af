// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/matmul.h"

#include <algorithm>

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

}  // namespace

struct Matmul::Job {
  const PackedMatrix& weights;
  const float* rows;  // packed: tile after tile, inside a tile input after input
  int64_t row_count;
  float* out;
  int64_t out_stride;
};

Matmul::Matmul(const Kernels& kernels, ThreadTeam& team)
    : kernels_(kernels), team_(team), widened_(team.size()) {}

void Matmul::run(const Rows& rows, const PackedMatrix& weights, float* out, int64_t out_stride) {
  if (rows.count == 0) {
    return;
  }
  Job job{.weights = weights,
          .rows = rows.data,
          .row_count = rows.count,
          .out = out,
          .out_stride = out_stride};
  if (rows.count > 1) {  // one row is its own packed form
    pack_rows(rows, weights.inputs());
    job.rows = packed_rows_.data();
  }
  const int64_t blocks = (weights.panels() + kBlockPanels - 1) / kBlockPanels;
  team_.run(blocks, [&](int64_t block, uint32_t member) { run_block(job, block, member); });
}

void Matmul::pack_rows(const Rows& rows, int64_t depth) {
  const auto floats = static_cast<size_t>(rows.count * depth);
  if (packed_rows_.size() < floats) {
    packed_rows_.resize(floats);
  }
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

void Matmul::run_block(const Job& job, int64_t block, uint32_t member) {
  const PackedMatrix& weights = job.weights;
  const int64_t depth = weights.inputs();
  const int64_t first_panel = block * kBlockPanels;
  const int64_t panels = std::min(kBlockPanels, weights.panels() - first_panel);
  const int64_t tiles = tile_count(job.row_count);
  // bf16 is widened inside the product for few tiles, and once per block for many.
  const bool bf16 = weights.format() == WeightFormat::kBf16;
  const bool widen = bf16 && tiles > kTilesWithoutWidening;
  std::vector<float>& widened = widened_[member];
  if (widen) {
    widened.resize(static_cast<size_t>(kBlockPanels * kDepthAtOnce * kLanes));
  }
  MultiplyTile tile{.panel_count = panels, .out_stride = job.out_stride};
  for (int64_t k = 0; k < depth; k += kDepthAtOnce) {
    tile.depth = std::min(kDepthAtOnce, depth - k);
    tile.accumulate = k > 0;
    tile.panel_stride = depth * kLanes;
    if (bf16) {
      tile.weights = static_cast<const uint16_t*>(weights.panel(first_panel)) + k * kLanes;
    } else {
      tile.weights = static_cast<const float*>(weights.panel(first_panel)) + k * kLanes;
    }
    if (widen) {
      const auto* from = static_cast<const uint16_t*>(tile.weights);
      for (int64_t p = 0; p < panels; ++p) {
        kernels_.widen_bf16(from + p * tile.panel_stride, tile.depth * kLanes,
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
      if (bf16 && !widen) {
        kernels_.multiply_bf16(tile);
      } else {
        kernels_.multiply_f32(tile);
      }
    }
  }
}

}  // namespace stator::engine::cpu
