// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stator/core/result.h"

namespace stator::perf {

/// A kind of GPU in the nodes it is sold in. Peaks are dense and per GPU, from vendors' sheets.
struct SystemSpec {
  std::string_view name;  ///< "h200_sxm"
  double memory_bytes_per_s = 0;
  double memory_bytes = 0;
  double bfloat16_flops = 0;
  double fp8_flops = 0;  ///< 0: the lane is missing, work goes through bfloat16
  double fp4_flops = 0;
  double watts = 0;
  uint32_t sm_version = 0;
  uint32_t gpus_per_node = 8;
  double intra_node_bytes_per_s = 0;  ///< per GPU, one way
  double inter_node_bytes_per_s = 0;
  uint32_t gpus_per_rack = 0;  ///< 0: no fabric beyond the node
  double inter_rack_bytes_per_s = 0;
  double other_bytes = 3.5 * (1ULL << 30);  ///< driver, context, framework
  double p2p_latency_s = 1e-5;

  /// Between `gpus` that work together: the slowest link on the way.
  double link_bytes_per_s(uint32_t gpus) const;
  /// What the communication library keeps for a group of `ranks`.
  static double communication_bytes(uint32_t ranks);
};

std::span<const SystemSpec> systems();
/// By name, also "h200" for "h200_sxm" and in either case. kNotFound lists the names.
Result<SystemSpec> find_system(std::string_view name);

/// How weights, or KV, are stored and multiplied.
struct QuantMode {
  enum class Lane : uint8_t { kBfloat16, kFp8, kFp4 };
  std::string_view name;
  double bytes = 2;  ///< per element, scales included
  Lane lane = Lane::kBfloat16;
};
/// "bfloat16", "fp8", "fp8_block", "fp8_static", "nvfp4", "nvfp4_wo", "int8_wo", "int4_wo",
/// "w4afp8", "w4a16_mxfp4", "w4a8_mxfp4_mxfp8"; kInvalidArgument lists them.
Result<QuantMode> find_quant(std::string_view name);
/// Peak of a lane; bfloat16's where the GPU lacks it.
double flops_of(const SystemSpec& system, const QuantMode& mode);

}  // namespace stator::perf
