// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/handoff.h"
#include "stator/inference/pool.h"
#include "stator/inference/request.h"
#include "stator/inference/sampling.h"

namespace stator::inference {

/// New tokens of one sequence. Views into the arrays of its StepOutput.
struct Delta {
  RequestKey key;
  uint32_t offset = 0;  ///< of the first token within the whole answer, all attempts
  uint32_t token_begin = 0;
  uint32_t token_count = 0;
  uint32_t cached_tokens = 0;  ///< of the prompt, from the prefix cache; on the first delta
  uint32_t queued_us = 0;      ///< from submit to its first step, on the first delta; 0: not known
  FinishReason finish = FinishReason::kNone;
  bool stopped_by_token =
      false;  ///< kStop: by `stop_token_ids` (its id is the last token), not EOS
};

/// A request that ended without finishing. Nothing follows it for that key.
struct Failure {
  RequestKey key;
  Error error;
};

/// What a kPrefill request gives: comes with its last delta, in the same step.
struct Offer {
  RequestKey key;
  Handoff handoff;
};

/// What a request with `prompt_logprobs` gets beside its first tokens, in the same step.
struct PromptLogprobs {
  RequestKey key;
  /// Of the prompt's second token and all that follow: nothing stands before the first one.
  std::vector<TokenLogprobs> tokens;
};

/// The answer to a request with `pool`: its last word.
struct Pooled {
  RequestKey key;
  PoolAnswer answer;
};

/// What one engine step produced for one session: one message, whatever the number of sequences.
/// A delta with `finish` set, a failure or a pooled answer is the last word on its key; exactly one
/// of them comes for every accepted request that was not cancelled.
struct StepOutput {
  std::vector<Delta> deltas;
  std::vector<TokenId> tokens;          ///< of all deltas, in order
  std::vector<TokenLogprobs> logprobs;  ///< parallel to `tokens` if any delta has them, else empty
  std::vector<Failure> failures;
  std::vector<Offer> offers;
  std::vector<PromptLogprobs> prompts;
  std::vector<Pooled> pooled;

  std::span<const TokenId> tokens_of(const Delta& delta) const {
    return std::span(tokens).subspan(delta.token_begin, delta.token_count);
  }
  std::span<const TokenLogprobs> logprobs_of(const Delta& delta) const {
    return logprobs.empty() ? std::span<const TokenLogprobs>()
                            : std::span(logprobs).subspan(delta.token_begin, delta.token_count);
  }
  /// Empty for a key that got none.
  std::span<const TokenLogprobs> prompt_of(const RequestKey& key) const {
    const auto found = std::ranges::find(prompts, key, &PromptLogprobs::key);
    return found == prompts.end() ? std::span<const TokenLogprobs>() : found->tokens;
  }
};

}  // namespace stator::inference
