// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "stator/router/policy.h"

namespace stator::router {
namespace {

/// First the kind of device with the least load per capacity, load / (count · weight), then the
/// least loaded worker of that kind. For fleets that mix accelerators and plain CPUs.
class DeviceAwarePolicy final : public Policy {
 public:
  bool prices() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    struct Kind {
      double requests = 0;
      double count = 0;
    };
    std::array<Kind, 2> kinds;  // plain, accelerated
    for (size_t i = 0; i < input.size(); ++i) {
      Kind& kind = kinds[input.worker(i).facts.accelerated ? 1 : 0];
      kind.requests += input.load[i].active_requests;
      kind.count += 1;
    }
    const auto load_of = [&](size_t kind, double weight) {
      return kinds[kind].count == 0 ? kUnavailable
                                    : kinds[kind].requests / (kinds[kind].count * weight);
    };
    const bool accelerated =
        load_of(1, input.request.cost.accelerator_weight) <= load_of(0, 1) && kinds[1].count > 0;
    for (size_t i = 0; i < input.size(); ++i) {
      input.costs[i] = input.worker(i).facts.accelerated == accelerated
                           ? input.load[i].active_requests
                           : kUnavailable;
    }
    return {pick_by_cost(input.costs, 0, random).row,
            accelerated ? "fewest requests in flight among the accelerators"
                        : "fewest requests in flight among the CPUs"};
  }

 private:
  static constexpr double kUnavailable = 1e18;  // finite, so that receipts can show it
};

}  // namespace

extern const PolicyInfo kDeviceAwarePolicy;
const PolicyInfo kDeviceAwarePolicy = {"device_aware_weighted", make<DeviceAwarePolicy>};

}  // namespace stator::router
