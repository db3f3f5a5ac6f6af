// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/router/policy.h"

namespace stator::router {
namespace {

/// Keeps the promised time to the first token, and among the workers that can, computes least.
///
/// Workers whose predicted time meets `ttft_target_ms` are priced by the prefill they would have to
/// do and what it costs those decoding there; the others by how late they would be, above every one
/// of the first kind. So a prefix stays where it is cached while that is soon enough; when its
/// holders would be late it is computed where there is time, and held there, too, from then on: hot
/// prefixes are replicated as far as the promise needs, and no further.
class SloPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.overlap = true, .held = true, .rates = true}; }
  bool prices() const override { return true; }
  bool rises_with_load() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    constexpr double kLate = 1e9;  // milliseconds: more than any price of a worker in time
    const PolicyRequest& request = input.request;
    bool any_in_time = false;
    for (size_t i = 0; i < input.size(); ++i) {
      const WorkerRates::Rates& rates = input.rates[i];
      const LoadRow& load = input.load[i];
      const double prefill_ms = rates.ttft_ms_per_token * input.uncached_tokens(i);
      const double capacity = input.kv_blocks[i];
      const double beyond = capacity == 0 ? 0 : std::max(0.0, input.potential_blocks(i) - capacity);
      const double first_token_ms = rates.ttft_base_ms + prefill_ms +
                                    rates.ttft_ms_per_token * load.prefill_tokens +
                                    beyond * request.shape.block_size * rates.ttft_ms_per_token;
      const bool in_time = first_token_ms <= request.cost.ttft_target_ms;
      any_in_time = any_in_time || in_time;
      input.costs[i] = in_time ? prefill_ms + request.cost.residents_weight * load.active_requests *
                                                  (prefill_ms + rates.itl_ms_per_request)
                               : kLate + first_token_ms;
    }
    for (size_t i = 0; i < input.taint_factors.size(); ++i) {
      input.costs[i] *= input.taint_factors[i];
    }
    const size_t row = pick_by_cost(input.costs, request.cost.temperature, random).row;
    return {row, any_in_time ? "least work of those that meet the time to the first token"
                             : "nobody meets the time to the first token; the soonest"};
  }
};

}  // namespace

extern const PolicyInfo kSloPolicy;
const PolicyInfo kSloPolicy = {"slo", make<SloPolicy>};

}  // namespace stator::router
