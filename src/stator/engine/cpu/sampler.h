// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/ids.h"
#include "stator/inference/sampling.h"

namespace stator::engine::cpu {

// Drawing a token from f32 logits, semantics as in vLLM. The order of the steps:
//
//   0  a grammar's mask: what it does not allow is banned
//   1  raw logits are kept for log-probabilities: nothing below changes what is reported
//   2  min_tokens: until then EOS and stop tokens are banned
//   3  logit_bias is added
//   4  penalties: repetition (tokens of prompt or output), then frequency and presence (output
//   only) 5  greedy: the highest logit, lowest id on ties. Otherwise 6  divide by the temperature
//   7  min_p: drop tokens with p < min_p · max p
//   8  top_k: keep all tokens ≥ the k-th highest
//   9  top_p: in ascending order, drop while the cumulated p ≤ 1 − top_p; the best always stays
//   10 draw: a Gumbel race, argmax of logit + g, where g depends on (key, output index, token) only
//
// Because of 10 a request that was preempted, migrated or resumed goes on with the draws it would
// have had. "Drop" and "ban" set a logit to −∞. A NaN logit counts as −∞. If nothing is left, the
// token is 0.

/// Sampling parameters after normalisation: temperature below 1e-5 is greedy and switches the
/// filters off, below 0.01 it is raised to 0.01; top_k −1 becomes 0.
struct EffectiveSampling {
  bool greedy = false;
  float temperature = 1.0F;
  float top_p = 1.0F;
  uint32_t top_k = 0;
  float min_p = 0.0F;
};
EffectiveSampling normalize_sampling(const inference::SamplingParams& params);

/// What the draws of one request are keyed with: its seed, or without one (absent or −1) a mix of
/// the runner's seed and the sequence's id.
uint64_t draw_key(const inference::SamplingParams& params, uint64_t runner_seed, uint64_t sequence);

// The steps, one function each; `logits` has one entry per vocabulary entry.

/// Step 1. Log-softmax of the raw logits at `token`, and the `top` most likely tokens (fewer if the
/// vocabulary is smaller), ties by lower id. Rank is 1 + the number of strictly likelier tokens.
inference::TokenLogprobs compute_logprobs(std::span<const float> raw, TokenId token, uint32_t top);
/// Step 0. EOS and stop tokens are allowed if `may_end`, whatever their bits; EOS never with
/// ignore_eos.
void apply_mask(std::span<const uint64_t> allowed, bool may_end,
                const inference::StopConditions* stop, std::span<float> logits);
/// Step 2. `generated` is the number of output tokens so far.
void ban_stop_tokens(const inference::StopConditions& stop, size_t generated,
                     std::span<float> logits);
/// Step 3. Ids outside the vocabulary are ignored.
void add_logit_bias(const inference::SamplingParams& params, std::span<float> logits);
/// Steps 7 to 9, on logits already divided by the temperature.
void apply_min_p(float min_p, std::span<float> logits);
void apply_top_k(uint32_t top_k, std::span<float> logits);
void apply_top_p(float top_p, std::span<float> logits);
/// Whether none is infinite or no number.
bool all_finite(std::span<const float> logits);
/// The highest logit, lowest id on ties.
TokenId pick_best(std::span<const float> logits);
/// Step 10. `index` counts the output tokens of the request from 0, over all its attempts.
TokenId draw(std::span<const float> logits, uint64_t key, uint64_t index);

/// One token to draw. Views live for the call.
struct SampleRequest {
  std::span<float> logits;  ///< raw on entry, scratch afterwards
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;  ///< generated so far
  const inference::SamplingParams* params = nullptr;
  const inference::StopConditions* stop = nullptr;  ///< may be null: no min_tokens
  uint64_t key = 0;                                 ///< of draw_key()
  bool finite = false;  ///< all_finite(logits): they need no second look
  /// As in SequenceSlice.
  std::span<const uint64_t> allowed = {};
  bool may_end = true;
};

struct SampleResult {
  TokenId token = 0;
  std::optional<inference::TokenLogprobs> logprobs;  ///< if the parameters ask for them
};

/// Runs all steps. Keeps scratch space of the vocabulary's size.
/// Thread-safety: none.
class Sampler {
 public:
  explicit Sampler(uint32_t vocab_size);
  SampleResult sample(const SampleRequest& request);

  /// Step 4. Cost is linear in the tokens of prompt and output.
  void apply_penalties(const SampleRequest& request);

 private:
  std::vector<uint32_t> output_counts_;  // per token; all 0 between calls
  std::vector<bool> repeated_;           // per token; all false between calls
  std::vector<float> raw_;               // copy of the logits when log-probabilities are wanted
};

}  // namespace stator::engine::cpu
