// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/ids.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/kv_arena.h"
#include "stator/engine/cpu/lora.h"
#include "stator/engine/cpu/lora_math.h"
#include "stator/engine/cpu/matmul.h"
#include "stator/engine/cpu/model.h"
#include "stator/engine/cpu/paged_attention.h"
#include "stator/engine/cpu/rope.h"
#include "stator/engine/cpu/thread_team.h"

namespace stator::engine::cpu {

/// One token to compute.
struct ForwardRow {
  TokenId token = 0;
  uint32_t position = 0;                ///< within its sequence
  uint32_t prompt_tokens = 0;           ///< of its sequence
  std::span<const kv::BlockId> blocks;  ///< of its sequence; positions before it are filled in
  const LoraAdapter* adapter = nullptr;
};

/// The transformer: turns rows into hidden states and their KV, then hidden states into logits.
///
///   forward.run(rows);                        // writes KV of every row
///   forward.logits({{4, 9}}, logits.data());  // of rows 4 and 9 only
///
/// I1  What a row gives depends only on its sequence up to that row: not on the other rows, on how
///     rows were split over calls, or on the team. Every reduction has a fixed order (kernels.h,
///     K1).
/// Thread-safety: one caller. `model` and `team` outlive this; `cache` too.
class Forward {
 public:
  struct Parts {
    const Model& model;
    const Kernels& kernels;
    ThreadTeam& team;
    KvArena& cache;
  };
  explicit Forward(const Parts& parts);

  /// Most rows of one run(): bounds the scratch memory (about 60 bytes × rows × hidden size).
  static constexpr size_t kRowsMax = 256;

  /// Rows of one sequence come in order of position, and no earlier position may be missing.
  void run(std::span<const ForwardRow> rows);

  /// Logits after the given rows of the last run(). `out` has logits_stride() floats per index.
  void logits(std::span<const uint32_t> row_indices, float* out);
  /// The hidden state behind the final norm of a row of the last run(): hidden_size floats.
  void hidden(uint32_t row_index, float* out) const;
  /// vocab_size rounded up to whole vectors; the padding is 0.
  int64_t logits_stride() const { return model_.weights.head().padded_outputs(); }

 private:
  /// Floats of a row of scratch, each padded with zeros to whole vectors.
  struct Sizes {
    int64_t hidden;
    int64_t query;  // all heads
    int64_t key;    // all KV heads
    int64_t inner;
  };
  using Place = LoraMath::Place;

  /// A projection of an expert.
  struct Which {
    uint32_t layer;
    uint32_t expert;
    LoraTarget target;
  };

  void embed(std::span<const ForwardRow> rows);
  /// Whether the layer's window has a rotation of its own.
  size_t rope_of(uint32_t layer) const {
    return model_.config.window_rope && model_.config.sliding_window[layer] != 0 ? 1 : 0;
  }
  void attention(uint32_t layer, std::span<const ForwardRow> rows);
  void store_key_value(uint32_t layer, const ForwardRow& row, int64_t index);
  void mlp(uint32_t layer, std::span<const ForwardRow> rows);
  void experts(uint32_t layer, std::span<const ForwardRow> rows);
  void choose_experts(uint32_t layer, std::span<const ForwardRow> rows);
  void run_expert(uint32_t layer, uint32_t index, std::span<const ForwardRow> rows);
  void adapt_expert(const Which& which, std::span<const ForwardRow> rows, const Place& place);
  void adapt_embedding(std::span<const ForwardRow> rows);
  /// Adds what the rows' adapters say of one projection.
  void adapt(uint32_t layer, LoraTarget target, std::span<const ForwardRow> rows,
             const Place& place);
  /// gate = activation of gate and up, side by side in `row`.
  void activate(float* row, int64_t inner) const;
  void normalize(const std::vector<float>& weight, int64_t rows);
  void add_to_stream(const std::vector<float>& bias, const std::vector<float>& norm, int64_t rows);
  /// Calls body(row) for all rows, in parallel.
  template <typename Body>
  void each_row(int64_t rows, const Body& body) {
    team_.run(rows, [&body](int64_t row, uint32_t /*member*/) { body(row); });
  }

  const Model& model_;
  const Kernels& kernels_;
  ThreadTeam& team_;
  KvArena& cache_;
  Matmul matmul_;
  LoraMath lora_;
  PagedAttention paged_;
  Sizes sizes_;
  std::vector<RopeTable> ropes_;  // of all layers, or of full and of windowed ones
  bool adapters_ = false;         // any row has one
  // Row-major scratch, one row per ForwardRow.
  size_t capacity_rows_ = 0;
  std::vector<float> stream_;  // residual stream, [hidden]
  std::vector<float> normed_;  // [hidden]
  std::vector<float> query_key_value_;
  std::vector<float> attended_;              // [query]
  std::vector<float> projected_;             // [hidden]
  std::vector<float> gate_up_;               // [2 · inner]
  std::vector<std::vector<float>> cosines_;  // per rope, [pairs]
  std::vector<std::vector<float>> sines_;
  struct Choice {
    int64_t row = 0;
    uint32_t expert = 0;
    float weight = 0;
  };
  std::vector<float> router_scores_;              // [experts]
  std::vector<Choice> choices_;                   // of all rows, by expert, then row
  std::vector<float> expert_rows_;                // [hidden] of the rows of one expert
  std::vector<float> expert_gates_;               // [2 · inner of an expert]
  std::vector<float> expert_out_;                 // [hidden]
  std::vector<const LoraAdapter*> row_adapters_;  // of the last run(); empty if no row has one
};

}  // namespace stator::engine::cpu
