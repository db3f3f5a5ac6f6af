// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/packed_matrix.h"
#include "stator/engine/cpu/thread_team.h"

namespace stator::engine::cpu {

/// Activation rows times weights, for the whole engine. Holds the scratch space this needs, which
/// grows to the largest product seen. Why not a library: docs/adr/0003-cpu-engine-matmul.md; what
/// quantized weights meet: docs/adr/0080-weights-stay-in-their-type.md.
/// Thread-safety: one caller at a time; the team works inside.
class Matmul {
 public:
  Matmul(const Kernels& kernels, ThreadTeam& team);

  struct Rows {
    const float* data = nullptr;
    int64_t stride = 0;
    int64_t count = 0;
  };
  /// out[r][o] = Σ_i rows[r][i] · weights[o][i] for all padded outputs; `out_stride` ≥
  /// padded_outputs(). Bit-equal for a row whatever the other rows, the row count and the team
  /// (K1).
  void run(const Rows& rows, const PackedMatrix& weights, float* out, int64_t out_stride);

 private:
  struct Job;
  void pack_rows(const Rows& rows, int64_t depth);
  void quantize_rows(const Rows& rows, int64_t depth, bool long_blocks);
  void run_block(const Job& job, int64_t first_panel, int64_t panels, uint32_t member);
  void run_quantized_block(const Job& job, int64_t first_panel, int64_t panels);

  const Kernels& kernels_;
  ThreadTeam& team_;
  std::vector<float> packed_rows_;
  // Quantized rows: tile after tile, inside a tile four inputs after four (block after block).
  std::vector<int32_t> quads_;
  std::vector<float> scales_;
  std::vector<int32_t> sums_;
  struct Scratch {
    std::vector<float> widened;  // a block of weights as f32
    std::vector<int32_t> quads;  // one quantized row
    std::vector<float> scales;
    std::vector<int32_t> sums;
  };
  std::vector<Scratch> scratch_;  // per team member
};

}  // namespace stator::engine::cpu
