// SPDX-License-Identifier: Apache-2.0
#include "stator/router/policy.h"

namespace stator::router {
namespace {

/// Prompt tokens to compute times batch size: no weights to tune (LMetric).
class LmetricPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.overlap = true}; }
  bool prices() const override { return true; }
  bool rises_with_load() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    for (size_t i = 0; i < input.size(); ++i) {
      // One more of each, so that a full cache hit or an idle worker does not hide the other term.
      const double tokens = input.load[i].prefill_tokens + input.uncached_tokens(i) + 1;
      input.costs[i] = tokens * (input.load[i].active_requests + 1);
    }
    for (size_t i = 0; i < input.taint_factors.size(); ++i) {
      input.costs[i] *= input.taint_factors[i];
    }
    return {pick_by_cost(input.costs, input.request.cost.temperature, random).row,
            "least prompt tokens to compute times requests in flight"};
  }
};

}  // namespace

extern const PolicyInfo kLmetricPolicy;
const PolicyInfo kLmetricPolicy = {"lmetric", make<LmetricPolicy>};

}  // namespace stator::router
