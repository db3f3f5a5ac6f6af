// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/step_merge.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stator::session::detail {

void merge_step(inference::StepOutput& into, inference::StepOutput from) {
  if (into.deltas.empty() && into.failures.empty() && into.pooled.empty()) {
    into = std::move(from);
    return;
  }
  const auto shift = static_cast<uint32_t>(into.tokens.size());
  // Log-probabilities are parallel to the tokens or absent: one side may need empty ones.
  if (!into.logprobs.empty() || !from.logprobs.empty()) {
    into.logprobs.resize(into.tokens.size());
    from.logprobs.resize(from.tokens.size());
    std::ranges::move(from.logprobs, std::back_inserter(into.logprobs));
  }
  into.tokens.insert(into.tokens.end(), from.tokens.begin(), from.tokens.end());
  for (inference::Delta& delta : from.deltas) {
    delta.token_begin += shift;
    into.deltas.push_back(delta);
  }
  std::ranges::move(from.failures, std::back_inserter(into.failures));
  std::ranges::move(from.offers, std::back_inserter(into.offers));
  std::ranges::move(from.prompts, std::back_inserter(into.prompts));
  std::ranges::move(from.pooled, std::back_inserter(into.pooled));
}

void drop_lone_parts(inference::StepOutput& step) {
  const auto is_lone = [&step](const auto& part) {
    return std::ranges::find(step.deltas, part.key, &inference::Delta::key) == step.deltas.end();
  };
  std::erase_if(step.offers, is_lone);
  std::erase_if(step.prompts, is_lone);
}

namespace {

size_t bytes_of(const std::vector<inference::TokenLogprobs>& all) {
  size_t bytes = all.size() * sizeof(inference::TokenLogprobs);
  for (const inference::TokenLogprobs& logprobs : all) {
    bytes += logprobs.top.size() * sizeof(inference::TokenLogprob);
  }
  return bytes;
}

}  // namespace

size_t step_bytes(const inference::StepOutput& step) {
  size_t bytes = sizeof(step) + step.deltas.size() * sizeof(inference::Delta) +
                 step.tokens.size() * sizeof(TokenId) + bytes_of(step.logprobs);
  for (const inference::Failure& failure : step.failures) {
    bytes += sizeof(failure) + failure.error.message().size();
  }
  for (const inference::Offer& offer : step.offers) {
    bytes += sizeof(offer) + offer.handoff.kind.size() + offer.handoff.payload.size();
  }
  for (const inference::PromptLogprobs& prompt : step.prompts) {
    bytes += sizeof(prompt) + bytes_of(prompt.tokens);
  }
  for (const inference::Pooled& pooled : step.pooled) {
    bytes += sizeof(pooled) + pooled.answer.values.size() * sizeof(float) +
             pooled.answer.rows.size() * sizeof(uint32_t);
  }
  return bytes;
}

}  // namespace stator::session::detail
