// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/ids.h"

namespace stator::inference {

// What every generation request means below the protocol it came in: the vocabulary shared by
// frontend, wire and engines. Semantics and defaults follow vLLM.

/// How the next token is drawn. All arithmetic on f32 logits; the order of the steps is documented
/// at engine/cpu/sampler.h.
struct SamplingParams {
  float temperature = 1.0F;  ///< 0 (below 1e-5) means greedy
  float top_p = 1.0F;        ///< (0, 1], 1 = off
  int32_t top_k = 0;         ///< 0 or -1 = off
  float min_p = 0.0F;        ///< [0, 1], 0 = off
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  std::optional<int64_t> seed;  ///< same seed, prompt and parameters: same tokens
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::vector<TokenId> allowed_token_ids;  ///< no others are sampled; empty: all may be
  std::vector<std::string> bad_words;  ///< texts that are never written, as the engine reads them
  std::optional<uint32_t>
      logprobs;  ///< number of alternatives per token (0 = sampled only); none = off

  bool greedy() const { return temperature < 1e-5F; }
};

/// When a sequence ends, as far as token ids can tell. Stop strings live above this, in the
/// frontend.
struct StopConditions {
  uint32_t max_tokens = 16;  ///< over all attempts; at least 1
  uint32_t min_tokens = 0;   ///< until then neither EOS nor stop tokens are sampled
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;  ///< asked for by the client
  std::vector<TokenId> eos_token_ids;   ///< of the model
};

enum class FinishReason : uint8_t {
  kNone,    ///< not finished
  kStop,    ///< EOS, a stop token, or a stop string
  kLength,  ///< max_tokens or the context limit
  kCancelled,
  kError,
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0F;  ///< of the raw distribution, floored at -9999
  uint32_t rank = 0;     ///< 1 = most likely
};

/// Log-probabilities of one generated token. `top` is sorted by rank and may omit `sampled`.
struct TokenLogprobs {
  TokenLogprob sampled;
  std::vector<TokenLogprob> top;
};

}  // namespace stator::inference
