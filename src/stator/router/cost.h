// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/random.h"

namespace stator::router {

/// Weights of the reference cost (NVIDIA Dynamo's default policy).
struct CostConfig {
  double overlap_credit = 1.0;        ///< what a cached device block is worth, in blocks
  double overlap_credit_decay = 0.0;  ///< how fast queued prefill devalues the credit
  double prefill_load_scale = 1.0;
  double active_request_weight = 0.0;  ///< per running request, in blocks
  double host_weight = 0.75;
  double disk_weight = 0.25;
  double shared_multiplier = 0.0;
  double temperature = 0.0;  ///< softmax over normalised costs; 0 = the cheapest
};

/// One worker as the cost function sees it; everything in blocks unless named otherwise.
struct CostInputs {
  double device_overlap = 0;
  double host_extension = 0;  ///< further leading blocks in host memory
  double disk_extension = 0;  ///< further ones on disk or in the object store
  double shared_beyond = 0;   ///< in a shared cache, beyond the device overlap
  double active_prefill_tokens = 0;
  double decode_blocks = 0;  ///< potential: this request included
  double active_requests = 0;
};

/// The request's part.
struct CostRequest {
  uint32_t prompt_tokens = 0;
  uint32_t block_size = 1;
};

/// Prompt tokens that need no prefill on this worker.
double cached_tokens(const CostConfig& config, const CostInputs& worker,
                     const CostRequest& request);

/// The reference cost: lower is better.
///   scale · max(0, raw_blocks − credit) + decode_blocks + a · active_requests
/// `min_active_prefill_tokens` is the minimum over the eligible workers; it anchors the decay.
double compute_cost(const CostConfig& config, const CostInputs& worker, const CostRequest& request,
                    double min_active_prefill_tokens);

/// Probabilities ∝ exp(−((cost − min)/(max − min))/temperature); uniform when all costs are equal.
std::vector<double> softmax_of_costs(std::span<const double> costs, double temperature);

/// Index of the chosen cost. Temperature 0: the minimum, ties broken uniformly; else one draw from
/// softmax_of_costs. `costs` must not be empty; a NaN never wins over a number.
size_t pick_by_cost(std::span<const double> costs, double temperature, Random& random);

}  // namespace stator::router
