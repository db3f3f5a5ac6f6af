// SPDX-License-Identifier: Apache-2.0
#include "stator/router/policy.h"

namespace stator::router {
namespace {

class LeastLoadedPolicy final : public Policy {
 public:
  bool prices() const override { return true; }
  bool rises_with_load() const override { return true; }
  Choice choose(const PolicyInput& input, Random& random) override {
    for (size_t i = 0; i < input.size(); ++i) {
      input.costs[i] = input.load[i].active_requests;
    }
    return {pick_by_cost(input.costs, 0, random).row, "fewest requests in flight"};
  }
};

}  // namespace

extern const PolicyInfo kLeastLoadedPolicy;
const PolicyInfo kLeastLoadedPolicy = {"least_loaded", make<LeastLoadedPolicy>};

}  // namespace stator::router
