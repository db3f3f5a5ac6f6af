// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/router/policy.h"

namespace stator::router {
namespace {

// An answer whose length nobody said: a typical chat turn.
constexpr double kOutputTokensGuess = 200;

/// Cost in milliseconds, from the speeds learned for each worker: the time to this request's first
/// token there, its own decode time, and what it costs those already decoding there: their tokens
/// wait while its prompt is computed, and every later step has one more sequence. Blocks beyond the
/// worker's memory are charged as prompt that will have to be computed again.
class PredictedLatencyPolicy final : public Policy {
 public:
  PolicyNeeds needs() const override { return {.overlap = true, .held = true, .rates = true}; }
  bool prices() const override { return true; }

  Choice choose(const PolicyInput& input, Random& random) override {
    const PolicyRequest& request = input.request;
    const double output =
        request.expected_output_tokens > 0 ? request.expected_output_tokens : kOutputTokensGuess;
    for (size_t i = 0; i < input.size(); ++i) {
      const WorkerRates::Rates& rates = input.rates[i];
      const LoadRow& load = input.load[i];
      const double prefill_ms = rates.ttft_ms_per_token * input.uncached_tokens(i);
      const double first_token_ms =
          rates.ttft_base_ms + prefill_ms + rates.ttft_ms_per_token * load.prefill_tokens;
      const double decode_ms =
          output * (rates.itl_base_ms + rates.itl_ms_per_request * (load.active_requests + 1));
      const double damage_ms =
          load.active_requests * (prefill_ms + output * rates.itl_ms_per_request);
      const double capacity = input.worker(i).facts.total_kv_blocks;
      const double beyond = capacity == 0 ? 0 : std::max(0.0, input.potential_blocks(i) - capacity);
      input.costs[i] = first_token_ms + request.cost.residents_weight * (decode_ms + damage_ms) +
                       beyond * request.shape.block_size * rates.ttft_ms_per_token;
    }
    for (size_t i = 0; i < input.taint_factors.size(); ++i) {
      input.costs[i] *= input.taint_factors[i];
    }
    return {pick_by_cost(input.costs, request.cost.temperature, random).row,
            "least time to its first token and least delay for those running there"};
  }
};

}  // namespace

extern const PolicyInfo kPredictedLatencyPolicy;
const PolicyInfo kPredictedLatencyPolicy = {"predicted_latency", make<PredictedLatencyPolicy>};

}  // namespace stator::router
