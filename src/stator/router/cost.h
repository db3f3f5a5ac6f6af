// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/random.h"

namespace stator::router {

/// Weights that policies use; the first part is the reference cost (NVIDIA Dynamo's default).
struct CostConfig {
  double overlap_credit = 1.0;        ///< what a cached device block is worth, in blocks
  double overlap_credit_decay = 0.0;  ///< how fast queued prefill devalues the credit
  double prefill_load_scale = 1.0;
  double active_request_weight = 0.0;  ///< per running request, in blocks
  double host_weight = 0.75;
  double disk_weight = 0.25;
  double shared_multiplier = 0.0;
  double temperature = 0.0;  ///< softmax over normalised costs; 0 = the cheapest

  double accelerator_weight = 8.0;  ///< device_aware_weighted: one accelerator is so many CPUs
  double residents_weight = 0.1;    ///< predicted_latency: delay of those who run
  double ttft_target_ms = 1000;     ///< dual_map: beyond it a prefix counts as hot
};

/// What one request may change (`nvext.router_config_override`); unset = the operator's value.
struct CostOverride {
  std::optional<double> overlap_credit;
  std::optional<double> prefill_load_scale;
  std::optional<double> temperature;
  std::optional<double> shared_multiplier;
  std::optional<double> ttft_target_ms;
  std::optional<bool> assume_kv_reuse;       ///< false: its blocks are shared with nobody
  std::optional<bool> track_prefill_tokens;  ///< false: its prompt is no work to come
};
CostConfig apply(const CostConfig& config, const CostOverride& override);

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
  bool track_prefill = true;  ///< false: the prompt is computed elsewhere and costs nothing here
};

/// Prompt tokens that need no prefill on this worker.
inline double cached_tokens(const CostConfig& config, const CostInputs& worker,
                            const CostRequest& request) {
  const double overlap = worker.device_overlap + config.host_weight * worker.host_extension +
                         config.disk_weight * worker.disk_extension;
  return std::floor(overlap * request.block_size + 0.5);
}

/// The reference cost with what is the same for all workers computed once: lower is better.
///   scale · max(0, raw_blocks − credit) + decode_blocks + a · active_requests
/// Plain arithmetic, so that a loop over workers becomes vector instructions.
class CostTerms {
 public:
  /// `min_active_prefill_tokens` is the minimum over the eligible workers; it anchors the decay.
  CostTerms(const CostConfig& config, const CostRequest& request, double min_active_prefill_tokens)
      : config_(config),
        request_(request),
        prompt_tokens_(request.prompt_tokens),
        per_block_(1.0 / request.block_size),
        min_prefill_(min_active_prefill_tokens),
        raw_per_token_(request.track_prefill ? per_block_ : 0),
        excess_per_token_(raw_per_token_ /
                          std::max(1.0, std::ceil(prompt_tokens_ / request.block_size))) {}

  double cost(const CostInputs& worker) const {
    const double cached = cached_tokens(config_, worker, request_);
    const double raw_tokens =
        worker.active_prefill_tokens + std::max(0.0, prompt_tokens_ - cached) + cached;
    const double excess = (worker.active_prefill_tokens - min_prefill_) * excess_per_token_;
    const double decay = 1.0 / (1.0 + config_.overlap_credit_decay * excess);
    const double credit = config_.overlap_credit * decay * worker.device_overlap +
                          config_.host_weight * worker.host_extension +
                          config_.disk_weight * worker.disk_extension +
                          config_.shared_multiplier * worker.shared_beyond;
    const double adjusted = std::max(0.0, raw_tokens * raw_per_token_ - credit);
    return config_.prefill_load_scale * adjusted + worker.decode_blocks +
           config_.active_request_weight * worker.active_requests;
  }

 private:
  CostConfig config_;
  CostRequest request_;
  double prompt_tokens_;
  double per_block_;
  double min_prefill_;
  double raw_per_token_;
  double excess_per_token_;
};

/// The reference cost of a worker that only decodes, whose prompt was computed elsewhere:
///   max(0, decode_blocks − credit) + a · active_requests
double compute_decode_cost(const CostConfig& config, const CostInputs& worker);

/// Probabilities ∝ exp(−((cost − min)/(max − min))/temperature); uniform when all costs are equal.
std::vector<double> softmax_of_costs(std::span<const double> costs, double temperature);

struct Pick {
  size_t row = 0;
  bool tied = false;  ///< another had the same cost
};

/// The chosen cost. Temperature 0: the minimum, ties broken uniformly; else one draw from
/// softmax_of_costs. `costs` must not be empty; a NaN never wins over a number.
Pick pick_by_cost(std::span<const double> costs, double temperature, Random& random);

}  // namespace stator::router
