// SPDX-License-Identifier: Apache-2.0
#include "stator/router/policy.h"

namespace stator::router {
namespace {

class RoundRobinPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.load = false}; }
  Choice choose(const PolicyInput& input, Random&) override {
    return {next_++ % input.size(), "next in turn"};
  }

 private:
  uint64_t next_ = 0;
};

}  // namespace

extern const PolicyInfo kRoundRobinPolicy;
const PolicyInfo kRoundRobinPolicy = {"round_robin", make<RoundRobinPolicy>};

}  // namespace stator::router
