// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/ids.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/sampling_kernels.h"
#include "stator/inference/sampling.h"

namespace stator::engine::cpu {

// Drawing a token from f32 logits, semantics as in vLLM. The order of the steps:
//
//   0  a grammar's mask: what it does not allow is banned
//   1  raw logits are kept for log-probabilities: nothing below changes what is reported
//   -  allowed_token_ids: all others are banned; then what bad_words would end with
//   2  min_tokens: until then EOS and stop tokens are banned
//   3  logit_bias is added
//   4  penalties: repetition (tokens of prompt or output), then frequency and presence (output
//      only)
//   5  greedy: the highest logit, lowest id on ties. Otherwise
//   6  divide by the temperature
//   7  min_p: drop tokens with p < min_p · max p
//   8  top_k: keep all tokens ≥ the k-th highest
//   9  top_p: in ascending order, drop while the cumulated p ≤ 1 − top_p; the best always stays
//   10 draw: a race, argmax of logit − ln E in f32, where E is exponential and depends on (key,
//      output index, token) only
//
// Because of 10 a request that was preempted, migrated or resumed goes on with the draws it would
// have had. "Drop" and "ban" set a logit to −∞. A NaN logit counts as −∞. If nothing is left, the
// token is 0.
//
// Steps 7 to 10 look at few tokens (docs/adr/0101): blocks of 16 (kernels.h) have one hash for
// their first arrival, which bounds what their tokens can score, and the filters judge winners
// only. If a filter drops the winner, it drops everything below it, too, and the race is run again
// above it. A block that is entered is one pass of vector code (docs/adr/0108).

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

/// Step 10: when a token arrives in the race of output `index`, over all attempts of the request.
/// Exponential with mean 1, an f32. Of a block one hash gives the first arrival and whose it is;
/// the others come later by what their own hashes say.
double arrival(uint64_t key, uint64_t index, TokenId token);

// Steps 2 and 3, one function each; `logits` has one entry per vocabulary entry.

/// `generated` is the number of output tokens so far.
void ban_stop_tokens(const inference::StopConditions& stop, size_t generated,
                     std::span<float> logits);
/// allowed_token_ids. Ids outside the vocabulary are ignored.
void keep_tokens(std::span<const TokenId> tokens, std::span<float> logits);
/// Ids outside the vocabulary are ignored.
void add_logit_bias(const inference::SamplingParams& params, std::span<float> logits);

/// One token to draw. Views live for the call.
struct SampleRequest {
  std::span<float> logits;  ///< raw on entry, scratch afterwards
  std::span<const TokenId> prompt;
  std::span<const TokenId> output;  ///< generated so far
  const inference::SamplingParams* params = nullptr;
  const inference::StopConditions* stop = nullptr;  ///< may be null: no min_tokens
  uint64_t key = 0;                                 ///< of draw_key()
  bool looked_at = false;  ///< look(logits) came right before this and said that they are finite
  /// As in SequenceSlice.
  std::span<const uint64_t> allowed = {};
  bool may_end = true;
  std::span<const TokenId> banned = {};  ///< what bad_words would end with
};

struct SampleResult {
  TokenId token = 0;
  std::optional<inference::TokenLogprobs> logprobs;  ///< if the parameters ask for them
};

/// Runs all steps. Keeps scratch space of the vocabulary's size. The instruction set changes no
/// result (kernels.h, K2).
/// Thread-safety: none.
class Sampler {
 public:
  explicit Sampler(uint32_t vocab_size, const Kernels& kernels = kernels_for(detect_isa()));

  /// Whether none is infinite or no number.
  bool look(std::span<const float> logits);
  SampleResult sample(const SampleRequest& request);

  /// Log-softmax at `token`, and the `top` most likely tokens (fewer if the vocabulary is smaller),
  /// ties by lower id. Rank is 1 + the number of strictly likelier tokens. −∞ is allowed, NaN not.
  inference::TokenLogprobs logprobs(std::span<const float> raw, TokenId token, uint32_t top);
  /// Step 4. Cost is linear in the tokens of prompt and output.
  void apply_penalties(const SampleRequest& request);

 private:
  /// Tokens that the filters have not dropped: from `least` on, and above (logit, token) of the
  /// last winner that was dropped. Of equal logits the lower token is above.
  struct Cut {
    float least;
    float above;
    TokenId before = 0;
  };
  struct Draw {
    float temperature;
    uint64_t key;  // of the step
  };

  void apply_mask(const SampleRequest& request);
  /// Steps 0 to 4; whether they changed a logit behind the raw ones.
  bool prepare(const SampleRequest& request);
  void find_maxima(std::span<const float> logits);
  TokenId pick_best(std::span<const float> logits) const;
  TokenId draw(std::span<const float> logits, const EffectiveSampling& effective, uint64_t key);
  /// The winner of those that `cut` keeps; none if there are none.
  std::optional<TokenId> race(std::span<const float> logits, const Cut& cut, const Draw& draw);
  MassQuery mass_query(std::span<const float> logits, const EffectiveSampling& effective,
                       const Cut& cut) const;
  /// The k-th highest logit, 1 ≤ k ≤ their number. Needs find_maxima(logits).
  float kth_highest(std::span<const float> logits, size_t k);
  float kth_of(std::span<const float> values, size_t k);

  const SamplingKernels& kernels_;
  size_t blocks_ = 0;          // of 16 logits, those find_maxima() saw
  float highest_ = 0;          // of them; NaN if one is not finite
  float bound_ = 0;            // the highest of bounds_
  std::vector<float> maxima_;  // per block
  std::vector<float> bounds_;  // per block; −∞ once a cut keeps none of it
  /// Where one that comes third or later may score `bound`.
  struct Open {
    uint32_t block;
    float bound;
  };
  std::vector<Open> open_;
  std::vector<uint32_t> racing_;         // blocks, with room for 16 behind them
  std::vector<float> candidates_;        // scratch of kth_highest()
  std::vector<float> few_;               // scratch of kth_of()
  std::vector<uint32_t> output_counts_;  // per token; all 0 between calls
  std::vector<bool> repeated_;           // per token; all false between calls
  std::vector<float> raw_;               // copy of the logits when log-probabilities are wanted
};

}  // namespace stator::engine::cpu
