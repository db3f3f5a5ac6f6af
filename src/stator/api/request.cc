// SPDX-License-Identifier: Apache-2.0
#include "stator/api/request.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "stator/api/request_parser.h"

namespace stator::api {
namespace {

ApiStatus check_ids(std::span<const TokenId> ids, uint32_t vocab_size, std::string_view param) {
  const auto bad = std::ranges::find_if(ids, [&](TokenId id) { return id >= vocab_size; });
  if (vocab_size == 0 || bad == ids.end()) {
    return {};
  }
  return validation_error(std::string(param),
                          fmt::format("{} has token id {}, which is out of vocabulary: the "
                                      "model's vocabulary ends at {}",
                                      param, *bad, vocab_size - 1));
}

}  // namespace

inference::SamplingParams SamplingOptions::resolve(
    const inference::SamplingParams& defaults) const {
  inference::SamplingParams params = defaults;
  params.temperature = temperature.value_or(defaults.temperature);
  params.top_p = top_p.value_or(defaults.top_p);
  params.top_k = top_k.value_or(defaults.top_k);
  params.min_p = min_p.value_or(defaults.min_p);
  params.presence_penalty = presence_penalty.value_or(defaults.presence_penalty);
  params.frequency_penalty = frequency_penalty.value_or(defaults.frequency_penalty);
  params.repetition_penalty = repetition_penalty.value_or(defaults.repetition_penalty);
  if (seed) {
    params.seed = seed;
  }
  if (!logit_bias.empty()) {
    params.logit_bias = logit_bias;
  }
  params.allowed_token_ids = allowed_token_ids;
  params.bad_words = bad_words;
  if (logprobs) {
    params.logprobs = logprobs;
  }
  return params;
}

bool Nvext::wants_extra_field(std::string_view name) const {
  return std::ranges::find(extra_fields, name) != extra_fields.end();
}

bool Nvext::wants_annotation(std::string_view name) const {
  return std::ranges::any_of(annotations, [&](std::string_view annotation) {
    return annotation.starts_with(name) &&
           (annotation.size() == name.size() || annotation[name.size()] == ':');
  });
}

inference::StopConditions GenerateOptions::stop_conditions(
    uint32_t default_max_tokens, std::vector<TokenId> eos_token_ids) const {
  return {.max_tokens = max_tokens.value_or(default_max_tokens),
          .min_tokens = min_tokens.value_or(0),
          .ignore_eos = ignore_eos,
          .stop_token_ids = stop_token_ids,
          .eos_token_ids = std::move(eos_token_ids)};
}

ApiStatus check_token_ids(const GenerateOptions& options, uint32_t vocab_size) {
  STATOR_CHECK(check_ids(options.nvext.token_data, vocab_size, "nvext.token_data"));
  STATOR_CHECK(check_ids(options.stop_token_ids, vocab_size, "stop_token_ids"));
  for (const auto& [token, bias] : options.sampling.logit_bias) {
    STATOR_CHECK(check_ids({&token, 1}, vocab_size, "logit_bias"));
  }
  STATOR_CHECK(check_ids(options.sampling.allowed_token_ids, vocab_size, "allowed_token_ids"));
  return {};
}

ApiStatus check_token_ids(const CompletionRequest& request, uint32_t vocab_size) {
  for (const Prompt& prompt : request.prompts) {
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
      STATOR_CHECK(check_ids(*ids, vocab_size, "prompt"));
    }
  }
  return check_token_ids(request.options, vocab_size);
}

}  // namespace stator::api
