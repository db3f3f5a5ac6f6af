// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/finish.h"

#include <algorithm>
#include <span>

namespace stator::engine {
namespace {

using inference::FinishReason;

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

void set_finish(inference::Delta& delta, const Sequence& sequence, uint32_t max_model_len) {
  const inference::StopConditions& stop = sequence.stop;
  const TokenId token = sequence.tokens.back();
  if (sequence.output_tokens() >= stop.min_tokens) {
    if (!stop.ignore_eos && contains(stop.eos_token_ids, token)) {
      delta.finish = FinishReason::kStop;
      return;
    }
    if (contains(stop.stop_token_ids, token)) {
      delta.finish = FinishReason::kStop;
      delta.stopped_by_token = true;
      return;
    }
  }
  if (sequence.output_tokens() >= stop.max_tokens || sequence.tokens.size() >= max_model_len) {
    delta.finish = FinishReason::kLength;
  }
}

}  // namespace stator::engine
