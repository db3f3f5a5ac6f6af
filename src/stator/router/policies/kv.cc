// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/router/policy.h"

namespace stator::router {
namespace {

/// The reference cost: cached prefix against load. See cost.h.
class KvPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.overlap = true, .held = true}; }
  bool prices() const override { return true; }
  bool rises_with_load() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    const CostConfig config = input.request.cost;
    double min_prefill = input.load.front().prefill_tokens;
    for (const LoadRow& row : input.load) {
      min_prefill = std::min(min_prefill, row.prefill_tokens);
    }
    const CostTerms terms(config, input.request.shape, min_prefill);
    const std::span<double> costs = input.costs;
    for (size_t i = 0; i < costs.size(); ++i) {
      costs[i] = terms.cost({.device_overlap = static_cast<double>(input.overlap_blocks[i]),
                             .shared_beyond = input.shared_beyond(i),
                             .active_prefill_tokens = input.load[i].prefill_tokens,
                             .decode_blocks = input.potential_blocks(i),
                             .active_requests = input.load[i].active_requests});
    }
    for (size_t i = 0; i < input.lower_tiers.size(); ++i) {
      costs[i] =
          terms.cost({.device_overlap = static_cast<double>(input.overlap_blocks[i]),
                      .host_extension = static_cast<double>(input.lower_tiers[i].host_blocks),
                      .disk_extension = static_cast<double>(input.lower_tiers[i].disk_blocks),
                      .shared_beyond = input.shared_beyond(i),
                      .active_prefill_tokens = input.load[i].prefill_tokens,
                      .decode_blocks = input.potential_blocks(i),
                      .active_requests = input.load[i].active_requests});
    }
    for (size_t i = 0; i < input.taint_factors.size(); ++i) {
      costs[i] *= input.taint_factors[i];
    }
    const Pick pick = pick_by_cost(costs, config.temperature, random);
    return {pick.row, explain_cheapest(input, pick)};
  }
};

}  // namespace

extern const PolicyInfo kKvPolicy;
const PolicyInfo kKvPolicy = {"kv", make<KvPolicy>};

}  // namespace stator::router
