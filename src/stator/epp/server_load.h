// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stator::epp {

/// What a model server says of itself when its metrics are scraped, summed over its ranks.
struct ServerLoad {
  double waiting = 0;                 ///< requests that have not begun
  double running = 0;                 ///< requests that have
  std::optional<double> cache_usage;  ///< share of its KV cache in use, 0 to 1; none: it is silent
  double cache_blocks = 0;            ///< that its KV cache has; 0: it does not say
  uint32_t adapters_max = 0;          ///< LoRA adapters at once; 0: it does not say
  std::vector<std::string> adapters;  ///< that run or wait there
  friend bool operator==(const ServerLoad&, const ServerLoad&) = default;
};

/// The metrics of vLLM, SGLang, TensorRT-LLM under Triton, llama.cpp and Stator, by the model
/// server protocol of the Gateway API Inference Extension. Nothing if none of them is there. Values
/// that cannot be (negative, not finite) count as 0; of adapters the first 1,000 are kept.
std::optional<ServerLoad> read_server_load(std::string_view metrics);

}  // namespace stator::epp
