// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prompt_encoder.h"

namespace stator::frontend {
namespace {

using api::ApiError;
using api::ApiResult;

void append_member(std::string& json, std::string_view key, std::string_view value) {
  json += json.empty() ? "{\"" : ",\"";
  json += key;
  json += "\":";
  json += value;
}

/// chat_template_kwargs with the request's reasoning switches written into it; the kwargs win.
std::string template_variables(const api::ChatInput& chat) {
  std::string extra;
  const std::string& thinking = chat.thinking_json;
  if (!thinking.empty() && thinking.find("adaptive") == std::string::npos) {
    const bool on =
        thinking.find("true") != std::string::npos || thinking.find("enabled") != std::string::npos;
    append_member(extra, "enable_thinking", on ? "true" : "false");
    append_member(extra, "thinking", on ? "true" : "false");
  }
  if (!chat.reasoning_effort.empty()) {
    append_member(extra, "reasoning_effort", "\"" + chat.reasoning_effort + "\"");
    if (thinking.empty()) {
      append_member(extra, "enable_thinking", chat.reasoning_effort == "none" ? "false" : "true");
    }
  }
  const std::string& kwargs = chat.chat_template_kwargs_json;
  const size_t body = kwargs.find_first_not_of(" \t\r\n", kwargs.find('{') + 1);
  if (!kwargs.empty() && kwargs[body] != '}') {
    extra += extra.empty() ? "{" : ",";
    extra += std::string_view(kwargs).substr(body);
    return extra;
  }
  return extra.empty() ? "" : extra + "}";
}

}  // namespace

ApiResult<std::vector<TokenId>> encode_text(std::string text, const ServedModel& model,
                                            tokenizer::AddSpecial add_special) {
  std::erase(text, '\0');
  std::vector<TokenId> tokens;
  STATOR_CHECK(model.assets->tokenizer->encode(text, {.add_special = add_special}, tokens));
  return tokens;
}

ApiResult<std::vector<TokenId>> encode_chat(const api::ChatInput& chat, const ServedModel& model,
                                            WallTime now) {
  if (model.assets->chat_template == nullptr) {
    return ApiError(
        Error(Code::kInvalidArgument,
              "model '" + model.name +
                  "' has no chat template; use /v1/completions or add chat_template.jinja"),
        "model");
  }
  const std::string extra = template_variables(chat);
  chat_template::RenderInput input;
  input.messages_json = chat.messages_json;
  input.tools_json = chat.tools_json;
  input.documents_json = chat.documents_json;
  input.extra_json = extra;
  input.add_generation_prompt = chat.add_generation_prompt;
  input.continue_final_message = chat.continue_final_message;
  input.now = now;
  auto prompt = model.assets->chat_template->render(input);
  if (!prompt) {
    return ApiError(std::move(prompt.error()), "messages");
  }
  return encode_text(std::move(*prompt), model, tokenizer::AddSpecial::kNo);
}

}  // namespace stator::frontend
