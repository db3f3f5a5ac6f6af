// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/router/policy.h"

namespace stator::router {
namespace {

// An answer whose length nobody said: a typical chat turn.
constexpr double kOutputTokensGuess = 200;
// A KV token is read by every step of such an answer; that takes about a third of the time that
// computing it takes. A half or the double of it changes what simulations find by 2 %.
constexpr double kReadingWeight = 0.3;

/// Cost in milliseconds, by the prefill speed learned for each worker: what everybody will wait
/// longer because the request goes there.
///
///   speed · ( queued + uncached                    its own first token
///     + residents_weight · ( running · uncached    their tokens wait while its prompt is computed
///                          + reading · KV tokens ) every decode step reads all of them
///     + KV tokens beyond the worker's memory )     that will have to be computed again
///
/// Times between tokens are learned, too, but say more about what a worker does at the moment than
/// about how it will do: read here, they made equal workers look different.
class PredictedLatencyPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.overlap = true, .held = true, .rates = true}; }
  bool prices() const override { return true; }
  bool rises_with_load() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    const PolicyRequest& request = input.request;
    const CostConfig& config = request.cost;
    const double block_size = request.shape.block_size;
    const double prompt = request.shape.track_prefill ? request.shape.prompt_tokens : 0;
    const double output =
        request.expected_output_tokens > 0 ? request.expected_output_tokens : kOutputTokensGuess;
    const double reading =
        config.residents_weight * kReadingWeight * output / kOutputTokensGuess * block_size;
    const double per_request = config.active_request_weight * block_size;
    for (size_t i = 0; i < input.size(); ++i) {
      const LoadRow& load = input.load[i];
      const double cached = config.overlap_credit * input.cached_tokens(i);
      const double uncached = std::max(0.0, prompt - cached);
      const double blocks = input.potential_blocks(i);
      const double room = input.kv_blocks[i];
      const double beyond = room > 0 ? std::max(0.0, blocks - room) : 0;
      const double tokens =
          config.prefill_load_scale * (load.prefill_tokens + uncached + beyond * block_size) +
          load.active_requests * (config.residents_weight * uncached + per_request) +
          reading * blocks;
      input.costs[i] = input.rates[i].ttft_ms_per_token * tokens;
    }
    for (size_t i = 0; i < input.taint_factors.size(); ++i) {
      input.costs[i] *= input.taint_factors[i];
    }
    const Pick pick = pick_by_cost(input.costs, config.temperature, random);
    return {pick.row, explain_cheapest(input, pick)};
  }
};

}  // namespace

extern const PolicyInfo kPredictedLatencyPolicy;
const PolicyInfo kPredictedLatencyPolicy = {"predicted_latency", make<PredictedLatencyPolicy>};

}  // namespace stator::router
