// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/text_endpoints.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/api/request_parser.h"
#include "stator/api/response_body.h"
#include "stator/frontend/chat_work.h"

namespace stator::frontend {

namespace {

using api::ApiError;
using api::ApiResult;

// Of one answer: the text of a token may be a hundred times as long as its id.
constexpr size_t kAnswerBytesMax = size_t{32} << 20;
// Tokens between two looks at the job's CancelToken.
constexpr size_t kTokensPerLook = 4096;

size_t tokens_max(const PrepareEnvironment& environment, const ServedModel& model) {
  return std::max(environment.config.tokenize_tokens_max, model.context_length);
}

ApiError too_many_tokens(size_t limit, std::string_view param) {
  return {Error(Code::kTooLarge,
                "more than " + std::to_string(limit) +
                    " tokens in one request: divide it (limit: frontend.tokenize_tokens_max)"),
          std::string(param)};
}

ApiError answer_too_large(std::string_view param) {
  return {Error(Code::kTooLarge, "the answer would have more than " +
                                     std::to_string(kAnswerBytesMax >> 20) +
                                     " MiB: divide the request"),
          std::string(param)};
}

ApiResult<std::vector<std::string>> texts_of(std::span<const TokenId> tokens,
                                             const tokenizer::Tokenizer& tokenizer,
                                             const CancelToken& cancel) {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  size_t bytes = 0;
  for (const TokenId token : tokens) {
    if (texts.size() % kTokensPerLook == 0) {
      STATOR_CHECK(CancelToken::check(&cancel));
    }
    texts.push_back(tokenizer.token_text(token));
    bytes += texts.back().size();
    if (bytes > kAnswerBytesMax) {
      return answer_too_large("return_token_strs");
    }
  }
  return texts;
}

/// Ids within the vocabulary, and bytes of text within the bound.
api::ApiStatus check_tokens(std::span<const TokenId> tokens, const ServedModel& model) {
  size_t bytes = 0;
  for (const TokenId token : tokens) {
    if (token >= model.vocab_size) {
      return api::validation_error("tokens", "token id " + std::to_string(token) +
                                                 " is outside the vocabulary of " +
                                                 std::to_string(model.vocab_size));
    }
    bytes += model.assets->tokenizer->token_bytes(token).size();
    if (bytes > kAnswerBytesMax) {
      return answer_too_large("tokens");
    }
  }
  return {};
}

}  // namespace

ApiResult<std::string> tokenize(PrepareJob& job, const PrepareEnvironment& environment) {
  STATOR_TRY(api::TokenizeRequest request,
             api::parse_tokenize_request(job.body, {.model_required = false}));
  STATOR_TRY(const NamedModel named, find_served_model(environment.catalog, request.model));
  const auto& model = named.model;
  const bool is_chat = !request.prompt.has_value();
  std::string text;
  if (!request.chat.media.empty()) {
    return api::unsupported_error(
        "messages",
        "messages with images, audio or video are not supported here: how many tokens these are "
        "is only known when a model is asked (usage.prompt_tokens)");
  }
  if (is_chat) {
    request.chat.default_thinking = model->default_thinking_mode;
    STATOR_TRY(text,
               environment.encoder.render_chat(request.chat, *model, job.wall_now, &job.cancel));
  } else {
    text = std::move(*request.prompt);
  }
  const bool add_special = !is_chat && request.add_special_tokens;
  const size_t limit = tokens_max(environment, *model);
  STATOR_TRY(
      const tokenizer::PromptIds prompt,
      environment.encoder.encode_text(
          std::move(text), *model,
          {.add_special = add_special ? tokenizer::AddSpecial::kYes : tokenizer::AddSpecial::kNo,
           .stop = {.cancel = &job.cancel, .ids_max = limit}}));
  if (prompt.ids.size() > limit) {
    return too_many_tokens(limit, is_chat ? "messages" : "prompt");
  }
  std::vector<std::string> texts;
  api::TokenizeResult result{.tokens = prompt.ids, .max_model_len = model->context_length};
  if (request.return_token_strs) {
    STATOR_TRY(texts, texts_of(prompt.ids, *model->assets->tokenizer, job.cancel));
    result.token_strs = texts;
  }
  std::string body;
  append_tokenize_response(body, result);
  return body;
}

namespace {

ApiResult<std::string> count_prompt(ChatWork& work, PrepareJob& job,
                                    const PrepareEnvironment& environment) {
  const ServedModel& model = *work.named.model;
  const api::ChatInput& chat = work.request.chat;
  const size_t limit = tokens_max(environment, model);
  const MediaPromptContext context{.encoder = environment.encoder,
                                   .model = model,
                                   .options = {.stop = {.cancel = &job.cancel, .ids_max = limit}},
                                   .now = job.wall_now,
                                   .cancel = &job.cancel};
  tokenizer::PromptIds prompt;
  if (!chat.media.empty()) {
    STATOR_TRY(MediaPrompt made, make_media_prompt(chat, std::move(work.media.blobs), context));
    prompt = std::move(made.ids);
  } else {
    STATOR_TRY(std::string text,
               environment.encoder.render_chat(chat, model, job.wall_now, &job.cancel));
    STATOR_TRY(prompt, environment.encoder.encode_text(std::move(text), model, context.options));
  }
  if (prompt.ids.size() > limit) {
    return too_many_tokens(limit, "messages");
  }
  std::string body;
  work.protocol->append_count(body, prompt.ids.size());
  return body;
}

void finish_count(ChatWork& work, PrepareJob& job, const PrepareEnvironment& environment) {
  settle(job, count_prompt(work, job, environment));
}

}  // namespace

api::ApiStatus count_tokens(PrepareJob& job, const PrepareEnvironment& environment) {
  const protocols::Protocol& protocol = *job.route.protocol;
  protocols::ReadOptions options = read_options(environment.config);
  const StoredMemory memory(job, environment);
  options.memory = &memory;
  options.only_counts = true;
  STATOR_TRY(protocols::Reading reading, protocol.read(job.body, options));
  ChatWork work;
  work.request = std::move(reading.request);
  work.protocol = &protocol;
  STATOR_TRY(work.named, find_served_model(environment.catalog, work.request.options.model));
  work.request.chat.default_thinking = work.named.model->default_thinking_mode;
  if (work.request.tool_choice.kind == api::ToolChoice::Kind::kNone &&
      environment.config.exclude_tools_when_none) {
    work.request.chat.tools_json.clear();  // as when it is run
  }
  run_chat_work(std::move(work), job, environment, finish_count);
  return {};
}

ApiResult<std::string> detokenize(PrepareJob& job, const PrepareEnvironment& environment) {
  STATOR_TRY(const api::DetokenizeRequest request,
             api::parse_detokenize_request(job.body, {.model_required = false}));
  STATOR_TRY(const NamedModel named, find_served_model(environment.catalog, request.model));
  const auto& model = named.model;
  if (const size_t limit = tokens_max(environment, *model); request.tokens.size() > limit) {
    return too_many_tokens(limit, "tokens");
  }
  STATOR_CHECK(check_tokens(request.tokens, *model));
  STATOR_CHECK(CancelToken::check(&job.cancel));
  std::string body;
  api::append_detokenize_response(
      body, model->assets->tokenizer->decode(request.tokens, tokenizer::SkipSpecial::kNo));
  return body;
}

}  // namespace stator::frontend
