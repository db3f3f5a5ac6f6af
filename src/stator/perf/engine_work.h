// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/perf/model_config.h"

namespace stator::perf {

/// What one forward pass computes, on one rank of attention.
struct EnginePass {
  double context_requests = 0;  ///< prompts, or chunks of them
  double context_tokens = 0;    ///< prompt tokens computed, in all
  double context_prefix = 0;    ///< tokens before them, of each request
  double decode_requests = 0;   ///< sequences that get a token
  double decode_context = 0;    ///< tokens of each
};

/// A product with fixed weights: time grows with rows. Already multiplied by how often it occurs.
struct FixedProduct {
  double math_per_row = 0, traffic = 0, traffic_per_row = 0;
  double n = 0, k = 0, count = 0;
  std::string_view dtype;
};

/// One kind of attention: milliseconds at the speed of light.
struct AttentionWork {
  AttentionKind kind = AttentionKind::kFull;
  double count = 0, window = 0;                  // keys at most; 0: all
  double keys_per_token = 1, local = 0;          // beside them, the last tokens' own
  double context_math = 0;                       // per pair of tokens
  double context_traffic = 0;                    // per new token
  double decode_math = 0;                        // per token of context
  double decode_traffic = 0;                     // the same
  double decode_fixed = 0;                       // per sequence
  double heads = 0, kv_heads = 0, head_dim = 0;  // of a rank, to be looked up; 0: never
  /// Keys that a query sees after so many tokens.
  double keys_of(double tokens) const {
    const double keys = tokens * keys_per_token;
    return (window > 0 && window < keys ? window : keys) + (local < tokens ? local : tokens);
  }
  /// Of one layer of it times `count`, at the speed of light.
  double ms(const EnginePass& pass) const;
};
/// KV that each sequence has of at most so many tokens.
struct KvWindow {
  double bytes_per_token = 0, tokens = 0;
};

}  // namespace stator::perf
