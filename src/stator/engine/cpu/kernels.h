// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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
// K2  kAvx2, kAvx512 and kAvx512Vnni agree bit for bit: same order, fused multiply-add in all.
//     kBaseline has no fused instruction and rounds twice, so it agrees with them only to rounding.
// K3  Weights of block formats (Q8_0, …) meet activations rounded to 8-bit integers, with a scale
//     per 32 or 256 as llama.cpp rounds them: the products of a block are summed exactly, as
//     integers.

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
  kBaseline,    ///< whatever the build targets
  kAvx2,        ///< AVX2, FMA and F16C
  kAvx512,      ///< AVX-512 F, BW, VL, DQ
  kAvx512Vnni,  ///< the same and VNNI
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

/// Elements of a quantized row of activations that have a scale, and those that have a sum.
inline constexpr int64_t kQuantBlock = 32;
inline constexpr int64_t kQuantHalf = 16;
/// Elements that share a scale where weights are blocks of 256.
inline constexpr int64_t kLongBlock = 256;

/// The same for weights of a block format and quantized activations. A panel holds the rows of 16
/// outputs as the file has them, interleaved by two bytes: unit u of output j is at [u * 16 + j].
struct QuantizedTile {
  const int32_t* quads = nullptr;  ///< inputs 4i to 4i + 3 of row r: quads[i * row_stride + r]
  const float* scales = nullptr;   ///< of block b of row r: scales[b * row_stride + r]
  const int32_t* sums = nullptr;   ///< what the integers of half h sum to: sums[h * row_stride + r]
  int64_t row_count = 0;           ///< 1 … kTileRows
  int64_t row_stride = 0;
  const std::byte* weights = nullptr;
  int64_t panel_stride = 0;  ///< in bytes
  int64_t panel_count = 0;   ///< 1 … kBlockPanels
  int64_t depth = 0;         ///< how many inputs: whole blocks of the weights' format
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;
};

/// A row of activations as integers from −127 to 127.
struct QuantizedRow {
  int32_t* quads = nullptr;  ///< four integers each, the first in the lowest byte
  float* scales = nullptr;   ///< per 32
  int32_t* sums = nullptr;   ///< per 16
};

/// How elements of the KV cache are stored.
enum class KvType : uint8_t {
  kF32,
  kF16,
  kBf16,
  kInt8,  ///< with a scale per token and head, for keys and values
};
std::string_view to_string(KvType type);

/// Tokens that one round of attention looks at, from a multiple of it on.
inline constexpr int64_t kAttentionTokens = 64;

/// One round of attention of up to kTileRows queries (of one KV head) over 64 tokens, of which each
/// query sees [begin, end). Softmax goes on from round to round: `state` holds the maximum so far
/// and the sum of e^(score − maximum), `out` what the values sum to with these weights.
struct AttentionTile {
  const float* queries = nullptr;  ///< element (d, r) at [d * kTileRows + r]
  int64_t rows = 0;
  int64_t dim = 0;  ///< a multiple of 16
  float scale = 1;
  float softcap = 0;                    ///< 0: none
  struct Tokens {                       ///< 16 tokens
    const void* keys = nullptr;         ///< element (d, t) at [d * key_stride + t]
    const void* values = nullptr;       ///< element (t, d) at [t * dim + d]
    const float* key_scales = nullptr;  ///< per token; kInt8
    const float* value_scales = nullptr;
  };
  Tokens tokens[kAttentionTokens / kLanes];
  int64_t key_stride = 0;
  int64_t count = 0;               ///< tokens that exist, 1 … 64
  const int64_t* begin = nullptr;  ///< per row, within 0 and 64
  const int64_t* end = nullptr;
  float* maxima = nullptr;  ///< per row
  float* sums = nullptr;
  float* out = nullptr;  ///< row r at [r * out_stride]
  int64_t out_stride = 0;
};

/// A row of keys or values of one head inside a KV block.
struct HeadRows {
  const float* data = nullptr;
  int64_t stride = 0;  ///< floats from one token to the next
  int64_t count = 0;   ///< tokens
  int64_t dim = 0;     ///< head_dim, a multiple of 16
};

/// Vectors have room for a multiple of 16, and behind `count` they hold zeros; nothing needs
/// alignment.
struct Kernels {
  Isa isa = Isa::kBaseline;
  void (*multiply_f32)(const MultiplyTile& tile) = nullptr;
  void (*multiply_bf16)(const MultiplyTile& tile) = nullptr;
  void (*multiply_f16)(const MultiplyTile& tile) = nullptr;
  void (*widen_bf16)(const uint16_t* in, int64_t count, float* out) = nullptr;
  void (*widen_f16)(const uint16_t* in, int64_t count, float* out) = nullptr;
  /// `count` floats, a multiple of 32. NaN or infinity makes the scale of its block NaN.
  void (*quantize)(const float* x, int64_t count, const QuantizedRow& out) = nullptr;
  /// The same with a scale per 256, of which `count` is a multiple: for Q4_K and Q6_K.
  void (*quantize_long)(const float* x, int64_t count, const QuantizedRow& out) = nullptr;
  void (*multiply_q8_0)(const QuantizedTile& tile) = nullptr;
  void (*multiply_q4_0)(const QuantizedTile& tile) = nullptr;
  void (*multiply_q4_k)(const QuantizedTile& tile) = nullptr;
  void (*multiply_q6_k)(const QuantizedTile& tile) = nullptr;
  /// By KvType.
  void (*attend[4])(const AttentionTile& tile) = {};
  /// Stores `dim` floats as elements of that type, `stride` elements apart; returns the scale
  /// (kInt8; else 1).
  float (*store_kv[4])(const float* x, int64_t dim, void* to, int64_t stride) = {};
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
