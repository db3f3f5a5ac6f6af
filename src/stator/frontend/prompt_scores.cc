// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prompt_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace stator::frontend {
namespace {

// Of one prompt: half of what a worker lets wait for a frontend (8 MiB).
constexpr size_t kPromptLogprobsBytesMax = size_t{4} << 20;

}  // namespace

api::ApiStatus apply_prompt_logprobs(GenerationPlan& plan, std::optional<uint32_t> alternatives) {
  plan.echo_logprobs = !plan.echo.empty() && plan.sampling.logprobs.has_value();
  if (!plan.echo_logprobs && !alternatives) {
    return {};
  }
  const std::string name = alternatives ? "prompt_logprobs" : "echo";
  const std::string_view wish = alternatives ? "prompt_logprobs" : "echo with logprobs";
  if (!plan.model->prompt_logprobs) {
    return api::unsupported_error(name,
                                  fmt::format("{} is not supported: this model's engine does not "
                                              "report log-probabilities of prompts",
                                              wish));
  }
  if (alternatives) {
    plan.shown_alternatives = plan.sampling.logprobs.value_or(0);
    plan.sampling.logprobs = std::max(*plan.shown_alternatives, *alternatives);
    plan.prompt_alternatives = alternatives;
  }
  const size_t tokens_max =
      kPromptLogprobsBytesMax / (sizeof(inference::TokenLogprobs) +
                                 *plan.sampling.logprobs * sizeof(inference::TokenLogprob));
  for (const auto& prompt : plan.prompts) {
    if (prompt.size() > tokens_max) {
      return api::validation_error(
          name, fmt::format("{} {} is for prompts of at most {} tokens, not {}", wish,
                            *plan.sampling.logprobs, tokens_max, prompt.size()));
    }
  }
  plan.prompt_logprobs = true;
  return {};
}

api::ApiStatus check_prompt_logprobs(const api::GenerateOptions& options,
                                     const protocols::Protocol* protocol) {
  if (protocol == nullptr || !options.prompt_logprobs) {
    return {};
  }
  if (protocol->plain) {
    return api::unsupported_error("prompt_logprobs",
                                  "prompt_logprobs is for chat and text completions: ask there");
  }
  if (!options.nvext.wants_extra_field("prompt_logprobs")) {
    return api::unsupported_error("prompt_logprobs",
                                  "prompt_logprobs come in nvext here: ask nvext.extra_fields for "
                                  "prompt_logprobs, too");
  }
  return {};
}

void apply_best_of(GenerationPlan& plan, uint32_t best_of) {
  if (best_of <= plan.choices_per_prompt) {
    return;
  }
  plan.best_choices = plan.choices_per_prompt;
  plan.choices_per_prompt = best_of;
  plan.answer.choices = static_cast<uint32_t>(plan.prompts.size()) * best_of;
  if (!plan.sampling.logprobs) {
    plan.sampling.logprobs = 0;
  }
}

}  // namespace stator::frontend
