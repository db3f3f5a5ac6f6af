// SPDX-License-Identifier: Apache-2.0
#include "stator/router/policy.h"

namespace stator::router {
namespace {

/// Two different workers at random, the one with fewer requests (Mitzenmacher 2001).
class PowerOfTwoPolicy final : public Policy {
 public:
  Choice choose(const PolicyInput& input, Random& random) override {
    const size_t first = random.below(input.size());
    if (input.size() == 1) {
      return {first, "the only one"};
    }
    size_t second = random.below(input.size() - 1);
    second += second >= first ? 1 : 0;
    const bool second_is_lighter =
        input.load[second].active_requests < input.load[first].active_requests;
    return {second_is_lighter ? second : first, "the lighter of two drawn at random"};
  }
};

}  // namespace

extern const PolicyInfo kPowerOfTwoPolicy;
const PolicyInfo kPowerOfTwoPolicy = {"power_of_two", make<PowerOfTwoPolicy>};

}  // namespace stator::router
