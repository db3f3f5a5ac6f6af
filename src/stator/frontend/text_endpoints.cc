// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/text_endpoints.h"

#include <utility>
#include <vector>

#include "stator/api/request_parser.h"
#include "stator/api/response_body.h"

namespace stator::frontend {

using api::ApiResult;

ApiResult<std::string> tokenize(PrepareJob& job, const PrepareEnvironment& environment) {
  STATOR_TRY(api::TokenizeRequest request, api::parse_tokenize_request(job.body, {}));
  STATOR_TRY(const NamedModel named, find_served_model(environment.catalog, request.model));
  const auto& model = named.model;
  const bool is_chat = !request.prompt.has_value();
  std::string text;
  if (is_chat) {
    STATOR_TRY(text, environment.encoder.render_chat(request.chat, *model, job.wall_now));
  } else {
    text = std::move(*request.prompt);
  }
  const bool add_special = !is_chat && request.add_special_tokens;
  STATOR_TRY(
      const tokenizer::PromptIds prompt,
      environment.encoder.encode_text(
          std::move(text), *model,
          {.add_special = add_special ? tokenizer::AddSpecial::kYes : tokenizer::AddSpecial::kNo}));
  std::vector<std::string> texts;
  api::TokenizeResult result{.tokens = prompt.ids, .max_model_len = model->context_length};
  if (request.return_token_strs) {
    for (const TokenId token : prompt.ids) {
      texts.push_back(model->assets->tokenizer->token_text(token));
    }
    result.token_strs = texts;
  }
  std::string body;
  append_tokenize_response(body, result);
  return body;
}

ApiResult<std::string> detokenize(PrepareJob& job, const PrepareEnvironment& environment) {
  STATOR_TRY(const api::DetokenizeRequest request, api::parse_detokenize_request(job.body, {}));
  STATOR_TRY(const NamedModel named, find_served_model(environment.catalog, request.model));
  const auto& model = named.model;
  for (const TokenId token : request.tokens) {
    if (token >= model->vocab_size) {
      return api::validation_error("tokens", "token id " + std::to_string(token) +
                                                 " is outside the vocabulary of " +
                                                 std::to_string(model->vocab_size));
    }
  }
  std::string body;
  api::append_detokenize_response(
      body, model->assets->tokenizer->decode(request.tokens, tokenizer::SkipSpecial::kNo));
  return body;
}

}  // namespace stator::frontend
