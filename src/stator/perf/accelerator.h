// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "stator/core/result.h"

namespace stator::perf {

/// What weights, activations and KV are kept in.
enum class Precision : uint8_t { kBfloat16, kFp8, kFp4 };
/// Bytes of one element, with its share of scales.
double bytes_of(Precision precision);
/// "bfloat16", "fp8", "fp4"; kInvalidArgument for any other word.
Result<Precision> find_precision(std::string_view name);
std::string_view name_of(Precision precision);

/// Peaks of one accelerator, from its vendor's data sheet, dense.
struct Accelerator {
  std::string_view name;
  double memory_bytes_per_s = 0;
  double bfloat16_flops = 0;
  double fp8_flops = 0;  ///< 0: computes fp8 weights in bfloat16
  double fp4_flops = 0;
  double link_bytes_per_s = 0;  ///< to its neighbours in the node, one way

  double flops(Precision precision) const;
};

/// One of the known ones; kNotFound names them.
Result<Accelerator> find_accelerator(std::string_view name);

}  // namespace stator::perf
