// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace stator::engine::cpu {

// The arithmetic of the CPU engine: a table of plain functions, one table per instruction set,
// chosen once at start. The bodies are written once (detail/kernels.inc) and compiled per set.
//
// K1  Each output element is computed by one thread in one fixed order that depends on nothing but
//     the element's own inputs: a product sums over k from 0 upwards into one f32, a reduction
//     over a vector keeps 16 partial sums (element i goes to partial i mod 16) and adds them as a
//     fixed tree. Tiling, batch size and thread count therefore cannot change a bit.
// K2  kAvx2 and kAvx512 agree bit for bit: same order, fused multiply-add in both. kBaseline has no
//     fused instruction and rounds twice, so it agrees with them only to rounding.

/// Width of a weight panel and of every reduction: f32 lanes.
inline constexpr int64_t kLanes = 16;
/// Most activation rows one multiply_* call takes.
inline constexpr int64_t kTileRows = 12;
/// Weight panels per unit of parallel work: 128 output columns.
inline constexpr int64_t kBlockPanels = 8;

/// Rounds up to whole vectors: how all activation rows are padded.
constexpr int64_t round_up_lanes(int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

enum class Isa : uint8_t {
  kBaseline,  ///< whatever the build targets
  kAvx2,      ///< AVX2 and FMA
  kAvx512,    ///< AVX-512 F, BW, VL, DQ
};
std::string_view to_string(Isa isa);

/// out[r][16·p + j] (+)= Σ_k rows[k][r] · weights[p][k][j], for r < row_count, p < panel_count.
struct MultiplyTile {
  const float* rows = nullptr;  ///< element (k, r) at rows[k * row_stride + r]
  int64_t row_count = 0;        ///< 1 … kTileRows
  int64_t row_stride = 0;
  const void* weights = nullptr;  ///< panel p, element (k, j) at [p * panel_stride + k * 16 + j]
  int64_t panel_stride = 0;       ///< in elements
  int64_t panel_count = 0;        ///< 1 … kBlockPanels
  int64_t depth = 0;              ///< how many k
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;  ///< continue from `out` (exactly as if the loop over k had not stopped)
};

/// A row of keys or values of one head inside a KV block.
struct HeadRows {
  const float* data = nullptr;
  int64_t stride = 0;  ///< floats from one token to the next
  int64_t count = 0;   ///< tokens
  int64_t dim = 0;     ///< head_dim, a multiple of 16
};

/// All lengths are multiples of 16 unless stated; nothing needs alignment.
struct Kernels {
  Isa isa = Isa::kBaseline;
  void (*multiply_f32)(const MultiplyTile& tile) = nullptr;
  void (*multiply_bf16)(const MultiplyTile& tile) = nullptr;
  void (*widen_bf16)(const uint16_t* in, int64_t count, float* out) = nullptr;
  /// out = x / sqrt(mean(x²) + epsilon) · weight; out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t count, float epsilon,
                   float* out) = nullptr;
  /// x += y.
  void (*add)(float* x, const float* y, int64_t count) = nullptr;
  /// gate = gate / (1 + e^−gate) · up.
  void (*silu_multiply)(float* gate, const float* up, int64_t count) = nullptr;
  /// gate = gelu(gate) · up, gelu in its tanh form.
  void (*gelu_multiply)(float* gate, const float* up, int64_t count) = nullptr;
  /// gate = min(gate, limit) · σ(1.702 · that) · (clamp(up, ±limit) + 1).
  void (*clamped_swiglu)(float* gate, const float* up, float limit, int64_t count) = nullptr;
  /// x = cap · tanh(x / cap). Any count, but x has room for a multiple of 16.
  void (*softcap)(float* x, float cap, int64_t count) = nullptr;
  /// x += factor · y.
  void (*add_scaled)(float* x, const float* y, float factor, int64_t count) = nullptr;
  /// scores[t] = scale · (query · keys[t]). Any key count.
  void (*dot_keys)(const float* query, const HeadRows& keys, float scale, float* scores) = nullptr;
  /// Replaces scores by e^(score − max) and returns their sum. Any count, but scores has room for a
  /// multiple of 16, and the padding becomes 0.
  float (*exp_scores)(float* scores, int64_t count) = nullptr;
  /// out += Σ_t weights[t] · values[t], in order of t.
  void (*add_values)(const float* weights, const HeadRows& values, float* out) = nullptr;
  /// x *= factor.
  void (*scale)(float* x, float factor, int64_t count) = nullptr;
};

/// The best set this CPU can run.
Isa detect_isa();
/// Whether this CPU (and this build) can run it.
bool supports(Isa isa);
/// The table for a set that supports() allows. Static storage.
const Kernels& kernels_for(Isa isa);

}  // namespace stator::engine::cpu
