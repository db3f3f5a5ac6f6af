// SPDX-License-Identifier: Apache-2.0
#include "stator/router/policy.h"

#include <algorithm>
#include <array>

namespace stator::router {
namespace {

/// The reference cost: cached prefix against load.
class KvPolicy final : public Policy {
 public:
  explicit KvPolicy(const CostConfig& config) : config_(config) {}
  std::string_view name() const override { return "kv"; }
  bool needs_overlap() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    double min_prefill =
        static_cast<double>(input.candidates[input.eligible.front()].active_prefill_tokens);
    for (const size_t i : input.eligible) {
      min_prefill =
          std::min(min_prefill, static_cast<double>(input.candidates[i].active_prefill_tokens));
    }
    std::vector<double> costs;
    costs.reserve(input.eligible.size());
    uint32_t best_overlap = 0;
    for (const size_t i : input.eligible) {
      ReceiptCandidate& candidate = input.candidates[i];
      candidate.cost =
          compute_cost(config_, inputs_of(candidate, input.request), input.request, min_prefill);
      best_overlap = std::max(best_overlap, candidate.overlap_blocks);
      costs.push_back(candidate.cost);
    }
    const size_t chosen = input.eligible[pick_by_cost(costs, config_.temperature, random)];
    return {chosen, reason(input.candidates[chosen].overlap_blocks, best_overlap,
                           std::ranges::count(costs, input.candidates[chosen].cost) > 1)};
  }

 private:
  static CostInputs inputs_of(const ReceiptCandidate& candidate, const CostRequest& request) {
    const uint32_t blocks = (request.prompt_tokens + request.block_size - 1) / request.block_size;
    CostInputs inputs;
    inputs.device_overlap = candidate.overlap_blocks;
    inputs.active_prefill_tokens = static_cast<double>(candidate.active_prefill_tokens);
    inputs.decode_blocks =
        static_cast<double>(candidate.active_blocks) + blocks - candidate.overlap_blocks;
    inputs.active_requests = static_cast<double>(candidate.active_requests);
    return inputs;
  }

  static std::string_view reason(uint32_t overlap, uint32_t best_overlap, bool tied) {
    if (overlap > 0 && overlap == best_overlap) {
      return tied ? "lowest cost, shared with another; holds the longest cached prefix"
                  : "lowest cost; holds the longest cached prefix";
    }
    if (best_overlap > 0) {
      return "lowest cost; another holds a longer prefix but is busier";
    }
    return tied ? "lowest cost, tie broken at random; no worker has this prefix cached"
                : "lowest cost; no worker has this prefix cached";
  }

  CostConfig config_;
};

class RoundRobinPolicy final : public Policy {
 public:
  std::string_view name() const override { return "round_robin"; }
  Choice choose(const PolicyInput& input, Random&) override {
    return {input.eligible[next_++ % input.eligible.size()], "next in turn"};
  }

 private:
  uint64_t next_ = 0;
};

class RandomPolicy final : public Policy {
 public:
  std::string_view name() const override { return "random"; }
  Choice choose(const PolicyInput& input, Random& random) override {
    return {input.eligible[random.below(input.eligible.size())], "drawn at random"};
  }
};

class LeastLoadedPolicy final : public Policy {
 public:
  std::string_view name() const override { return "least_loaded"; }
  Choice choose(const PolicyInput& input, Random& random) override {
    std::vector<double> loads;
    loads.reserve(input.eligible.size());
    for (const size_t i : input.eligible) {
      loads.push_back(static_cast<double>(input.candidates[i].active_requests));
    }
    return {input.eligible[pick_by_cost(loads, 0, random)], "fewest requests in flight"};
  }
};

class PowerOfTwoPolicy final : public Policy {
 public:
  std::string_view name() const override { return "power_of_two"; }
  Choice choose(const PolicyInput& input, Random& random) override {
    const size_t first = input.eligible[random.below(input.eligible.size())];
    const size_t second = input.eligible[random.below(input.eligible.size())];
    const bool second_is_lighter =
        input.candidates[second].active_requests < input.candidates[first].active_requests;
    return {second_is_lighter ? second : first, "the lighter of two drawn at random"};
  }
};

/// The caller names the worker; the router has already narrowed the eligible ones to it.
class DirectPolicy final : public Policy {
 public:
  std::string_view name() const override { return "direct"; }
  Choice choose(const PolicyInput& input, Random&) override {
    return {input.eligible.front(), "named by the request"};
  }
};

struct Row {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(const CostConfig&);
};

template <typename T>
std::unique_ptr<Policy> make_plain(const CostConfig&) {
  return std::make_unique<T>();
}

constexpr std::array<Row, 6> kPolicies = {{
    {"kv",
     [](const CostConfig& cost) -> std::unique_ptr<Policy> {
       return std::make_unique<KvPolicy>(cost);
     }},
    {"round_robin", make_plain<RoundRobinPolicy>},
    {"random", make_plain<RandomPolicy>},
    {"least_loaded", make_plain<LeastLoadedPolicy>},
    {"power_of_two", make_plain<PowerOfTwoPolicy>},
    {"direct", make_plain<DirectPolicy>},
}};

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Row& row : kPolicies) {
    names.emplace_back(row.name);
  }
  return names;
}

std::unique_ptr<Policy> make_policy(std::string_view name, const CostConfig& cost) {
  const auto row = std::ranges::find(kPolicies, name, &Row::name);
  return row == kPolicies.end() ? nullptr : row->make(cost);
}

}  // namespace stator::router
