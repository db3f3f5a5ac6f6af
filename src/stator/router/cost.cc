// SPDX-License-Identifier: Apache-2.0
#include "stator/router/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

double effective_overlap(const CostConfig& config, const CostInputs& worker) {
  return worker.device_overlap + config.host_weight * worker.host_extension +
         config.disk_weight * worker.disk_extension;
}

}  // namespace

double cached_tokens(const CostConfig& config, const CostInputs& worker,
                     const CostRequest& request) {
  return std::round(effective_overlap(config, worker) * request.block_size);
}

double compute_cost(const CostConfig& config, const CostInputs& worker, const CostRequest& request,
                    double min_active_prefill_tokens) {
  const double block = request.block_size;
  const double request_blocks = std::max(1.0, std::ceil(request.prompt_tokens / block));
  const double cached = cached_tokens(config, worker, request);
  const double raw_tokens =
      worker.active_prefill_tokens + std::max(0.0, request.prompt_tokens - cached) + cached;
  const double excess =
      (worker.active_prefill_tokens - min_active_prefill_tokens) / block / request_blocks;
  const double decay =
      config.overlap_credit_decay == 0 ? 1.0 : 1.0 / (1.0 + config.overlap_credit_decay * excess);
  const double credit = config.overlap_credit * decay * worker.device_overlap +
                        config.host_weight * worker.host_extension +
                        config.disk_weight * worker.disk_extension +
                        config.shared_multiplier * worker.shared_beyond;
  const double adjusted = std::max(0.0, raw_tokens / block - credit);
  return config.prefill_load_scale * adjusted + worker.decode_blocks +
         config.active_request_weight * worker.active_requests;
}

std::vector<double> softmax_of_costs(std::span<const double> costs, double temperature) {
  const auto [low, high] = std::ranges::minmax(costs);
  std::vector<double> weights(costs.size(), 1.0);
  if (high > low) {
    for (size_t i = 0; i < costs.size(); ++i) {
      weights[i] = std::exp(-((costs[i] - low) / (high - low)) / temperature);
    }
  }
  double total = 0;
  for (const double weight : weights) {
    total += weight;
  }
  for (double& weight : weights) {
    weight /= total;
  }
  return weights;
}

size_t pick_by_cost(std::span<const double> costs, double temperature, Random& random) {
  STATOR_ASSERT(!costs.empty(), "picking needs a candidate");
  if (temperature > 0) {
    const std::vector<double> probabilities = softmax_of_costs(costs, temperature);
    double draw = random.uniform();
    for (size_t i = 0; i < probabilities.size(); ++i) {
      draw -= probabilities[i];
      if (draw < 0) {
        return i;
      }
    }
    return probabilities.size() - 1;
  }
  size_t best = 0;
  double best_cost = std::numeric_limits<double>::infinity();
  uint64_t equal = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] < best_cost) {
      best = i;
      best_cost = costs[i];
      equal = 1;
    } else if (costs[i] == best_cost && random.below(++equal) == 0) {
      best = i;  // reservoir: each of the equal ones with the same probability
    }
  }
  return best;
}

}  // namespace stator::router
