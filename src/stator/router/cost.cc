// SPDX-License-Identifier: Apache-2.0
#include "stator/router/cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stator/core/assert.h"

namespace stator::router {

CostConfig apply(const CostConfig& config, const CostOverride& override) {
  CostConfig result = config;
  result.overlap_credit = override.overlap_credit.value_or(config.overlap_credit);
  result.prefill_load_scale = override.prefill_load_scale.value_or(config.prefill_load_scale);
  result.temperature = override.temperature.value_or(config.temperature);
  result.shared_multiplier = override.shared_multiplier.value_or(config.shared_multiplier);
  result.ttft_target_ms = override.ttft_target_ms.value_or(config.ttft_target_ms);
  return result;
}

double compute_decode_cost(const CostConfig& config, const CostInputs& worker) {
  const double credit = config.overlap_credit * worker.device_overlap +
                        config.host_weight * worker.host_extension +
                        config.disk_weight * worker.disk_extension;
  return std::max(0.0, worker.decode_blocks - credit) +
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

Pick pick_by_cost(std::span<const double> costs, double temperature, Random& random) {
  STATOR_ASSERT(!costs.empty(), "picking needs a candidate");
  if (temperature > 0) {
    const std::vector<double> probabilities = softmax_of_costs(costs, temperature);
    double draw = random.uniform();
    for (size_t i = 0; i < probabilities.size(); ++i) {
      draw -= probabilities[i];
      if (draw < 0) {
        return {i, false};
      }
    }
    return {probabilities.size() - 1, false};
  }
  Pick best;
  double best_cost = std::numeric_limits<double>::infinity();
  uint64_t equal = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] < best_cost) {
      best.row = i;
      best_cost = costs[i];
      equal = 1;
    } else if (costs[i] == best_cost && random.below(++equal) == 0) {
      best.row = i;  // reservoir: each of the equal ones with the same probability
    }
  }
  best.tied = equal > 1;
  return best;
}

}  // namespace stator::router
