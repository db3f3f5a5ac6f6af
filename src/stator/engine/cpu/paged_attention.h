// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/kv_arena.h"
#include "stator/engine/cpu/thread_team.h"

namespace stator::engine::cpu {

/// Attention over the paged cache: 64 tokens a round, with a running softmax, so that memory does
/// not grow with the context. Queries of one KV head and neighbouring positions share what is read.
/// A row's result depends on its own keys and values only: rounds begin at multiples of 64 tokens,
/// and rows of a tile do not mix (kernels.h, K1). Any block size; multiples of 16 are read in
/// place. Thread-safety: one caller; the team works inside.
class PagedAttention {
 public:
  struct Shape {
    uint32_t heads = 0;
    uint32_t kv_heads = 0;
    uint32_t head_dim = 0;
    float scale = 1;
    float softcap = 0;  ///< 0: none
  };
  PagedAttention(const Shape& shape, const Kernels& kernels, ThreadTeam& team, KvArena& cache);

  /// Where a row's token stands.
  struct Row {
    uint32_t position = 0;
    std::span<const kv::BlockId> blocks;
  };
  struct Layer {
    uint32_t index = 0;
    uint32_t window = 0;           ///< keys a query sees, itself included; 0 = all before it
    const float* sinks = nullptr;  ///< per head, or none
  };
  struct Buffers {
    const float* queries = nullptr;  ///< [row][head][head_dim], rows `query_stride` apart
    int64_t query_stride = 0;
    float* out = nullptr;  ///< the same, rows `out_stride` apart
    int64_t out_stride = 0;
  };

  /// Says which rows the following run()s are about. Keys and values of all of them are stored
  /// before run().
  template <typename Rows>
  void set_rows(const Rows& rows) {
    rows_.clear();
    for (const auto& row : rows) {
      rows_.push_back({.position = row.position, .blocks = row.blocks});
    }
    cut();
  }
  void run(const Layer& layer, const Buffers& buffers);

 private:
  /// Neighbouring positions of one sequence.
  struct Run {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  /// Queries of a run: heads [head, head + heads) of each of its rows.
  struct Part {
    Run run;
    uint32_t kv_head = 0;
    uint32_t head = 0;
    uint32_t heads = 0;
  };
  struct Scratch {
    std::vector<float> queries;   // [dim][kTileRows]
    std::vector<float> out;       // [kTileRows][dim]
    std::vector<std::byte> keys;  // gathered, where blocks are no multiples of 16
    std::vector<std::byte> values;
    std::vector<float> key_scales;
    std::vector<float> value_scales;
  };

  void cut();
  void attend(const Layer& layer, const Buffers& buffers, const Part& part, Scratch& scratch);
  void point(AttentionTile& tile, const Layer& layer, const Part& part, uint32_t first) const;
  void gather(AttentionTile& tile, const Layer& layer, const Part& part, uint32_t first,
              Scratch& scratch) const;

  Shape shape_;
  const Kernels& kernels_;
  ThreadTeam& team_;
  KvArena& cache_;
  std::vector<Row> rows_;
  std::vector<Run> runs_;
  std::vector<Scratch> scratch_;  // per team member
};

}  // namespace stator::engine::cpu
