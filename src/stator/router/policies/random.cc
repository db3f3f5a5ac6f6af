// SPDX-License-Identifier: Apache-2.0
#include "stator/core/random.h"
#include "stator/router/policy.h"

namespace stator::router {
namespace {

class RandomPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.load = false}; }
  Choice choose(const PolicyInput& input, Random& random) override {
    return {random.below(input.size()), "drawn at random"};
  }
};

}  // namespace

extern const PolicyInfo kRandomPolicy;
const PolicyInfo kRandomPolicy = {"random", make<RandomPolicy>};

}  // namespace stator::router
