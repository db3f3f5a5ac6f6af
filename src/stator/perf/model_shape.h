// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/result.h"

namespace stator::perf {

/// What of a decoder-only transformer decides how long it computes.
struct ModelShape {
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t intermediate = 0;  ///< of a dense layer, or of one expert
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t vocabulary = 0;
  uint32_t experts = 0;  ///< 0: dense
  uint32_t experts_per_token = 0;
};

/// Reads a Hugging Face config.json, or the one in a folder. kNotFound, or kInvalidArgument naming
/// the field that is missing or wrong.
Result<ModelShape> read_model_shape(const std::string& path);
Result<ModelShape> parse_model_shape(std::string_view json, std::string_view name);

}  // namespace stator::perf
