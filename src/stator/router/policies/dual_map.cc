// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>

#include "stator/core/random.h"
#include "stator/router/policy.h"

namespace stator::router {
namespace {

// Requests that agree in these leading blocks go to the same two workers: a system prompt's worth.
constexpr size_t kPrefixBlocks = 16;
// Odd, with bits set all over: 2^64 divided by the golden ratio and by e.
constexpr std::array<uint64_t, 2> kFactors = {0x9E3779B97F4A7C15ULL, 0x5E2D58D8B3BCDF1BULL};

/// Every prefix has two homes, chosen by hashing, so that it is cached twice and not everywhere;
/// the one that answers sooner gets the request, unless both would miss the target for the first
/// token: then the prefix is hot, and the soonest of all workers takes it (DualMap).
class DualMapPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.overlap = true, .rates = true}; }
  bool prices() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    for (size_t i = 0; i < input.size(); ++i) {
      const WorkerRates::Rates& rates = input.rates[i];
      input.costs[i] =
          rates.ttft_base_ms +
          rates.ttft_ms_per_token * (input.load[i].prefill_tokens + input.uncached_tokens(i));
    }
    if (input.request.sequences.empty()) {
      return {pick_by_cost(input.costs, 0, random).row,
              "soonest first token; the prompt is too short to have a home"};
    }
    const std::array homes = find_homes(input);
    const size_t home = input.costs[homes[1]] < input.costs[homes[0]] ? homes[1] : homes[0];
    if (input.costs[home] <= input.request.cost.ttft_target_ms) {
      return {home, "the sooner of the prefix's two homes"};
    }
    return {pick_by_cost(input.costs, 0, random).row,
            "soonest first token; both homes of the prefix would miss the target"};
  }

 private:
  /// Rendezvous hashing: a worker that joins or leaves moves only the prefixes it wins or had. Both
  /// hashes are well mixed already, so one multiplication gives each choice an order of its own.
  static std::array<size_t, 2> find_homes(const PolicyInput& input) {
    const auto blocks =
        input.request.sequences.first(std::min(kPrefixBlocks, input.request.sequences.size()));
    const uint64_t prefix = mix64(blocks.back().value());
    std::array<uint64_t, 2> best = {0, 0};
    std::array<size_t, 2> homes = {0, 0};
    for (size_t i = 0; i < input.size(); ++i) {
      const uint64_t meeting = prefix ^ input.key_hashes[i];
      for (size_t choice = 0; choice < homes.size(); ++choice) {
        const uint64_t weight = meeting * kFactors[choice];
        if (weight >= best[choice]) {
          best[choice] = weight;
          homes[choice] = i;
        }
      }
    }
    return homes;
  }
};

}  // namespace

extern const PolicyInfo kDualMapPolicy;
const PolicyInfo kDualMapPolicy = {"dual_map", make<DualMapPolicy>};

}  // namespace stator::router
