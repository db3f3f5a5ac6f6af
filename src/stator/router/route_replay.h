// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/router/receipt.h"
#include "stator/router/router.h"

namespace stator::router {

/// One request of a trace.
struct ReplayRequest {
  double arrival_ms = 0;
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  std::vector<uint64_t> blocks;  ///< content of each full block of the prompt, in order
};

/// A fleet of equal workers that do nothing but take time: prompts one after another at a fixed
/// speed, answers beside each other at a speed that falls with their number.
struct ReplayFleet {
  uint32_t workers = 8;
  uint32_t block_size = 512;  ///< tokens
  uint32_t kv_blocks = 4096;  ///< per worker; least recently used prompts' blocks go first
  double prefill_ms_per_token = 0.1;
  double itl_base_ms = 10;
  double itl_ms_per_request = 0.2;
  double speedup = 1;  ///< of arrivals
};

struct ReplayFigures {
  std::string policy;
  uint64_t requests = 0;
  uint64_t refused = 0;
  uint64_t prompt_tokens = 0;
  uint64_t computed_tokens = 0;  ///< of them, not found in the chosen worker's cache
  uint64_t evicted_blocks = 0;
  double ttft_mean_ms = 0, ttft_p50_ms = 0, ttft_p99_ms = 0;
  double imbalance = 0;  ///< most computed tokens of a worker ÷ mean
  double makespan_s = 0;
  std::vector<WorkerKey> choices;  ///< per request, in order; a refused one has worker 0

  double hit_rate() const {
    return prompt_tokens == 0
               ? 0
               : 1 - static_cast<double>(computed_tokens) / static_cast<double>(prompt_tokens);
  }
};

/// Routes a trace with the production Router, index and load book on simulated time. `config.mode`
/// is the policy. Requests must be sorted by arrival. The same input gives the same figures.
/// kInvalidArgument as Router::create.
Result<ReplayFigures> replay_trace(std::span<const ReplayRequest> requests,
                                   const RouterConfig& config, const ReplayFleet& fleet);

/// The worker that a policy would have chosen on what a receipt saw. Candidates that were excluded
/// stay so. What receipts do not hold (learned speeds, blocks in use by others) counts as unknown.
/// kInvalidArgument for an unknown policy, or a receipt without eligible candidates.
Result<WorkerKey> replay_receipt(const Receipt& receipt, std::string_view policy, Random& random);

}  // namespace stator::router
