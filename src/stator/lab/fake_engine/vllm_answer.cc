// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/vllm_answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/core/random.h"
#include "stator/lab/fake_engine/logprob_lists.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

/// Logprobs that the prompt's own tokens get are unlikely ones; the likelier come before them.
constexpr float kPromptLogprob = -9.0F;

void stop_reason_of(json::Writer& json, const StopReason& reason) {
  json.key("stop_reason");
  if (const auto* token = std::get_if<TokenId>(&reason)) {
    json.value(*token);
  } else if (const auto* text = std::get_if<std::string>(&reason)) {
    json.value(*text);
  } else {
    json.null();
  }
}

double widen(float value) {
  return static_cast<double>(value);
}

}  // namespace

std::vector<inference::TokenLogprob> prompt_logprobs_at(const FakeModel& model,
                                                        const std::vector<TokenId>& prompt,
                                                        size_t position, uint32_t count) {
  uint64_t state = mix64(position + 1);
  for (size_t i = 0; i <= position; ++i) {
    state = mix64(state ^ prompt[i]);
  }
  const auto rank = static_cast<uint32_t>(100 + state % 900);
  std::vector<inference::TokenLogprob> out{
      {.token = prompt[position],
       .logprob = kPromptLogprob - static_cast<float>(state % 1000) / 100.0F,
       .rank = rank}};
  for (uint32_t i = 0; i < count; ++i) {
    const auto other = static_cast<TokenId>((state / 7 + i) % model.vocab_size);
    if (other != prompt[position]) {
      out.push_back(
          {.token = other,
           .logprob = -0.3F - static_cast<float>(i) - static_cast<float>(state % 100) / 50.0F,
           .rank = i + 1});
    }
  }
  return out;
}

std::string vllm_error_body(const VllmError& error, Release release) {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  const auto members = [&] {
    json.key("message").value(error.message).key("type").value(error.type).key("param");
    error.param.empty() ? json.null() : json.value(error.param);
    json.key("code").value(error.status);
  };
  if (release == Release::kOld) {
    json.key("object").value("error");
    members();
  } else {
    json.key("error").begin_object();
    members();
    json.end_object();
  }
  json.end_object();
  return out;
}

uint32_t VllmEncoder::prompt_tokens() const {
  size_t total = 0;
  for (const auto& prompt : request_.spec.prompts) {
    total += prompt.size();
  }
  return static_cast<uint32_t>(total);
}

std::string VllmEncoder::shown(TokenId id) const {
  return request_.tokens_as_ids ? fmt::format("token_id:{}", id) : token_text(model_, id);
}

std::string_view VllmEncoder::finish_name(inference::FinishReason reason) const {
  switch (reason) {
    case inference::FinishReason::kStop:
      return request_.tools.mode == VllmToolPlan::Mode::kRequired ? "tool_calls" : "stop";
    case inference::FinishReason::kLength:
      return "length";
    case inference::FinishReason::kCancelled:
      return "abort";
    case inference::FinishReason::kError:
      return "error";
    case inference::FinishReason::kNone:
      break;
  }
  return "";
}

void VllmEncoder::finish(json::Writer& json, inference::FinishReason reason) const {
  json.key("finish_reason");
  reason == inference::FinishReason::kNone ? json.null() : json.value(finish_name(reason));
}

void VllmEncoder::ids(json::Writer& json, const std::vector<TokenId>& ids, bool wanted) const {
  if (!wanted) {
    json.null();
    return;
  }
  json.begin_array();
  for (const TokenId id : ids) {
    json.value(id);
  }
  json.end_array();
}

void VllmEncoder::chunk_head(json::Writer& json, std::string_view object) const {
  json.key("id").value(state_.id).key("object").value(object).key("created").value(state_.created);
  json.key("model").value(state_.model);
}

void VllmEncoder::usage(json::Writer& json) const {
  const uint32_t prompt = prompt_tokens();
  const bool chat = request_.route == VllmRoute::kChat;
  const uint32_t whole_blocks = prompt / state_.block_size * state_.block_size;
  json.key("usage").begin_object().key("prompt_tokens").value(prompt);
  json.key("total_tokens").value(prompt + state_.generated);
  json.key("completion_tokens").value(state_.generated).key("prompt_tokens_details");
  json.begin_object().key("cached_tokens").value(state_.cached_tokens).key("created_cache_tokens");
  chat ? json.value(whole_blocks - std::min(whole_blocks, state_.cached_tokens)) : json.null();
  json.key("multimodal_tokens").null().end_object();
  json.key("completion_tokens_details").null().end_object();
}

void VllmEncoder::stream_usage(json::Writer& json, bool details) const {
  const uint32_t prompt = prompt_tokens();
  const uint32_t whole_blocks = prompt / state_.block_size * state_.block_size;
  json.key("usage").begin_object().key("prompt_tokens").value(prompt);
  json.key("total_tokens").value(prompt + state_.generated);
  json.key("completion_tokens").value(state_.generated);
  if (details) {
    json.key("prompt_tokens_details").begin_object();
    json.key("cached_tokens").value(state_.cached_tokens);
    if (request_.route == VllmRoute::kChat) {
      json.key("created_cache_tokens")
          .value(whole_blocks - std::min(whole_blocks, state_.cached_tokens));
    }
    json.end_object();
  }
  json.end_object();
}

void VllmEncoder::body_tail(json::Writer& json) const {
  json.key("kv_transfer_params");
  state_.kv_transfer_json ? json.raw(*state_.kv_transfer_json) : json.null();
  json.key("ec_transfer_params").null();
}

void VllmEncoder::completion_logprobs(json::Writer& json,
                                      const std::vector<inference::TokenLogprobs>& logprobs,
                                      size_t& offset, const std::vector<TokenId>* prompt) const {
  std::vector<LogprobRow> rows;
  const uint32_t count = request_.spec.sampling.logprobs.value_or(0);
  for (size_t i = 0; prompt != nullptr && i < prompt->size(); ++i) {
    auto top = i == 0 ? std::vector<inference::TokenLogprob>()
                      : prompt_logprobs_at(model_, *prompt, i, count);
    rows.push_back({.token = (*prompt)[i],
                    .logprob = i == 0 ? std::nullopt : std::optional(top.front().logprob),
                    .top = std::move(top)});
  }
  for (const auto& entry : logprobs) {
    auto top = entry.top;
    if (top.empty()) {
      top.push_back(entry.sampled);
    }
    rows.push_back({entry.sampled.token, entry.sampled.logprob, std::move(top)});
  }
  write_completion_logprobs(json, rows, offset, [this](TokenId id) { return shown(id); });
}

void VllmEncoder::chat_logprobs(json::Writer& json,
                                const std::vector<inference::TokenLogprobs>& logprobs) const {
  json.begin_object().key("content");
  write_logprob_entries(json, logprobs, [&](const inference::TokenLogprob& entry) {
    write_chat_logprob(json, shown(entry.token), entry.logprob);
  });
  json.end_object();
}

void VllmEncoder::id_logprobs(json::Writer& json,
                              const std::vector<inference::TokenLogprobs>& logprobs) const {
  json.begin_object().key("content");
  write_logprob_entries(json, logprobs, [&](const inference::TokenLogprob& entry) {
    json.key("token_id").value(entry.token).key("logprob").value(widen(entry.logprob));
    json.key("rank").value(entry.rank);
  });
  json.end_object();
}

void VllmEncoder::prompt_logprobs(json::Writer& json, const std::vector<TokenId>& prompt) const {
  const uint32_t count = request_.prompt_logprobs.value_or(
      request_.echo ? request_.spec.sampling.logprobs.value_or(0) : 0);
  const bool wanted =
      request_.prompt_logprobs || (request_.echo && request_.spec.sampling.logprobs);
  json.key("prompt_logprobs");
  if (!wanted) {
    json.null();
    return;
  }
  json.begin_array().null();
  for (size_t i = 1; i < prompt.size(); ++i) {
    json.begin_object();
    for (const auto& entry : prompt_logprobs_at(model_, prompt, i, count)) {
      json.key_escaped(std::to_string(entry.token)).begin_object();
      json.key("logprob").value(widen(entry.logprob)).key("rank").value(entry.rank);
      json.key("decoded_token").value(token_text(model_, entry.token)).end_object();
    }
    json.end_object();
  }
  json.end_array();
}

void VllmEncoder::append_chunk(const ChoiceDelta& delta, std::string& out) {
  switch (request_.route) {
    case VllmRoute::kCompletions:
      completion_chunk(delta, out);
      return;
    case VllmRoute::kChat:
      chat_chunk(delta, out);
      return;
    case VllmRoute::kGenerate:
      generate_chunk(delta, out);
      return;
  }
}

void VllmEncoder::completion_chunk(const ChoiceDelta& delta, std::string& out) {
  CollectedChoice& choice = state_.choices[delta.index];
  const auto& prompt = request_.spec.prompts[delta.index / request_.spec.n];
  const bool first = !choice.started;
  choice.started = true;
  const bool echo = request_.echo && first;
  out += "data: ";
  json::Writer json(out);
  json.begin_object();
  chunk_head(json, "text_completion");
  json.key("choices").begin_array().begin_object().key("index").value(delta.index);
  const size_t text_index = delta.index / request_.spec.n;
  const bool has_text = echo && text_index < request_.prompt_texts.size();
  json.key("text").value(has_text ? request_.prompt_texts[text_index] + delta.text : delta.text);
  json.key("logprobs");
  if (request_.spec.sampling.logprobs) {
    completion_logprobs(json, delta.logprobs, choice.shown_characters, echo ? &prompt : nullptr);
  } else {
    json.null();
  }
  finish(json, delta.finish);
  stop_reason_of(json, delta.stop_reason);
  json.key("prompt_token_ids");
  ids(json, prompt, request_.return_token_ids && first);
  json.key("token_ids");
  ids(json, delta.tokens, request_.return_token_ids);
  json.end_object().end_array();
  if (request_.continuous_usage) {
    stream_usage(json, false);
  }
  json.end_object();
  out += "\n\n";
}

void VllmEncoder::chat_chunk(const ChoiceDelta& delta, std::string& out) {
  CollectedChoice& choice = state_.choices[delta.index];
  if (!choice.started) {
    choice.started = true;
    out += "data: ";
    json::Writer json(out);
    json.begin_object();
    chunk_head(json, "chat.completion.chunk");
    json.key("choices").begin_array().begin_object().key("index").value(delta.index);
    json.key("delta").begin_object().key("role").value("assistant").key("content").value("");
    json.end_object().key("logprobs").null().key("finish_reason").null();
    json.end_object().end_array().key("prompt_token_ids");
    ids(json, request_.spec.prompts.front(), request_.return_token_ids);
    json.key("prompt_text").null().end_object();
    out += "\n\n";
  }
  if (request_.tools.mode != VllmToolPlan::Mode::kNone) {
    chat_tool_delta(delta, out);
    return;
  }
  std::string content;
  json::Writer json(content);
  json.begin_object().key("content").value(delta.text).end_object();
  chat_frame(delta, content, delta.finish != inference::FinishReason::kNone, out);
}

/// The name first, then the arguments as they come, then an empty delta that says why it ended. A
/// required call is known only as a whole: name and arguments come in one delta.
void VllmEncoder::chat_tool_delta(const ChoiceDelta& delta, std::string& out) {
  CollectedChoice& choice = state_.choices[delta.index];
  const bool whole = request_.tools.mode == VllmToolPlan::Mode::kRequired;
  const bool ends = delta.finish != inference::FinishReason::kNone;
  choice.text += delta.text;
  std::string content;
  json::Writer json(content);
  const auto arguments = [](json::Writer& writer, std::string_view text) {
    writer.begin_object().key("index").value(0).key("function").begin_object();
    writer.key("arguments").value(text).end_object().end_object();
  };
  if (!choice.tool_named && (!whole || ends)) {
    choice.tool_named = true;
    json.begin_object().key("content").null().key("tool_calls").begin_array().begin_object();
    json.key("id").value("chatcmpl-tool-" + state_.id.substr(state_.id.find('-') + 1));
    json.key("type").value("function").key("index").value(0).key("function").begin_object();
    json.key("name").value(request_.tools.function).end_object().end_object();
    if (whole) {
      arguments(json, choice.text);
    }
    json.end_array().end_object();
    chat_frame(delta, content, false, out);
  }
  if (!whole && !delta.text.empty()) {
    content.clear();
    json::Writer more(content);
    more.begin_object().key("content").null().key("tool_calls").begin_array();
    arguments(more, delta.text);
    more.end_array().end_object();
    chat_frame(delta, content, false, out);
  }
  if (ends) {
    chat_frame(delta, "{}", true, out);
  }
}

void VllmEncoder::chat_frame(const ChoiceDelta& delta, std::string_view delta_json, bool last,
                             std::string& out) {
  out += "data: ";
  json::Writer json(out);
  json.begin_object();
  chunk_head(json, "chat.completion.chunk");
  json.key("choices").begin_array().begin_object().key("index").value(delta.index);
  json.key("delta").raw(delta_json).key("logprobs");
  if (request_.spec.sampling.logprobs && !delta.logprobs.empty()) {
    chat_logprobs(json, delta.logprobs);
  } else {
    json.null();
  }
  finish(json, last ? delta.finish : inference::FinishReason::kNone);
  if (last) {
    stop_reason_of(json, delta.stop_reason);
  }
  json.key("token_ids");
  ids(json, delta.tokens, request_.return_token_ids);
  json.end_object().end_array();
  if (request_.continuous_usage) {
    stream_usage(json, false);
  }
  json.end_object();
  out += "\n\n";
}

void VllmEncoder::generate_chunk(const ChoiceDelta& delta, std::string& out) {
  CollectedChoice& choice = state_.choices[delta.index];
  const auto generated = static_cast<uint32_t>(choice.tokens.size());
  out += "data: ";
  json::Writer json(out);
  json.begin_object().key("request_id").value(state_.id).key("usage").null();
  json.key("output_mode").value(request_.text_output ? "text" : "tokens");
  json.key("choices").begin_array().begin_object().key("index").value(delta.index);
  finish(json, delta.finish);
  stop_reason_of(json, delta.stop_reason);
  json.key("token_ids");
  ids(json, delta.tokens, true);
  json.key("routed_experts").null().key("sampling_mask").null().key("weight_versions");
  if (delta.finish == inference::FinishReason::kNone) {
    json.null();
  } else {
    json.begin_array().begin_object().key("version").value("default").key("start").value(0);
    json.key("end").value(generated).end_object().end_array();
  }
  if (request_.text_output) {
    json.key("text").value(delta.text);
  }
  json.key("logprobs");
  if (!request_.spec.sampling.logprobs) {
    json.null();
  } else if (request_.text_output) {
    chat_logprobs(json, delta.logprobs);
  } else {
    id_logprobs(json, delta.logprobs);
  }
  json.end_object().end_array().end_object();
  out += "\n\n";
}

void VllmEncoder::append_end(std::string& out) {
  if (request_.include_usage) {
    out += "data: ";
    json::Writer json(out);
    json.begin_object();
    if (request_.route == VllmRoute::kGenerate) {
      json.key("request_id").value(state_.id);
      stream_usage(json, true);
      json.key("output_mode").value(request_.text_output ? "text" : "tokens");
      json.key("choices").begin_array().end_array();
    } else {
      chunk_head(json,
                 request_.route == VllmRoute::kChat ? "chat.completion.chunk" : "text_completion");
      json.key("choices").begin_array().end_array();
      stream_usage(json, true);
      json.key("system_fingerprint").value(state_.fingerprint);
    }
    json.end_object();
    out += "\n\n";
  }
  out += "data: [DONE]\n\n";
}

std::string VllmEncoder::body() {
  switch (request_.route) {
    case VllmRoute::kCompletions:
      return completion_body();
    case VllmRoute::kChat:
      return chat_body();
    case VllmRoute::kGenerate:
      break;
  }
  return generate_body();
}

std::string VllmEncoder::completion_body() {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  chunk_head(json, "text_completion");
  json.key("choices").begin_array();
  for (uint32_t i = 0; i < state_.choices.size(); ++i) {
    CollectedChoice& choice = state_.choices[i];
    const size_t at = i / request_.spec.n;
    const auto& prompt = request_.spec.prompts[at];
    const bool has_text = request_.echo && at < request_.prompt_texts.size();
    json.begin_object().key("index").value(i);
    json.key("text").value(has_text ? request_.prompt_texts[at] + choice.text : choice.text);
    json.key("logprobs");
    if (request_.spec.sampling.logprobs) {
      size_t offset = 0;
      completion_logprobs(json, choice.logprobs, offset, request_.echo ? &prompt : nullptr);
    } else {
      json.null();
    }
    finish(json, choice.finish);
    stop_reason_of(json, choice.stop_reason);
    json.key("token_ids");
    ids(json, choice.tokens, request_.return_token_ids);
    prompt_logprobs(json, prompt);
    json.key("prompt_token_ids");
    ids(json, prompt, request_.return_token_ids);
    json.key("routed_experts").null().end_object();
  }
  json.end_array().key("service_tier").null();
  json.key("system_fingerprint").value(state_.fingerprint);
  usage(json);
  body_tail(json);
  json.key("metrics").null().end_object();
  return out;
}

std::string VllmEncoder::chat_body() {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  chunk_head(json, "chat.completion");
  json.key("choices").begin_array();
  const bool tools = request_.tools.mode != VllmToolPlan::Mode::kNone;
  for (uint32_t i = 0; i < state_.choices.size(); ++i) {
    CollectedChoice& choice = state_.choices[i];
    json.begin_object().key("index").value(i).key("message").begin_object();
    json.key("role").value("assistant").key("content").value(tools ? "" : choice.text);
    json.key("refusal").null().key("annotations").null().key("audio").null();
    json.key("function_call").null();
    if (tools) {
      json.key("tool_calls").begin_array().begin_object();
      json.key("id").value("chatcmpl-tool-" + state_.id.substr(state_.id.find('-') + 1));
      json.key("type").value("function").key("function").begin_object();
      json.key("name").value(request_.tools.function).key("arguments").value(choice.text);
      json.end_object().end_object().end_array();
    }
    json.key("reasoning").null().end_object().key("logprobs");
    if (request_.spec.sampling.logprobs) {
      chat_logprobs(json, choice.logprobs);
    } else {
      json.null();
    }
    finish(json, choice.finish);
    stop_reason_of(json, choice.stop_reason);
    json.key("token_ids");
    ids(json, choice.tokens, request_.return_token_ids);
    json.key("routed_experts").null().end_object();
  }
  json.end_array().key("service_tier").null();
  json.key("system_fingerprint").value(state_.fingerprint);
  usage(json);
  prompt_logprobs(json, request_.spec.prompts.front());
  json.key("prompt_token_ids");
  ids(json, request_.spec.prompts.front(), request_.return_token_ids);
  json.key("prompt_text").null();
  body_tail(json);
  json.key("metrics").null().end_object();
  return out;
}

std::string VllmEncoder::generate_body() {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("request_id").value(state_.id).key("model").value(state_.model);
  json.key("created").value(state_.created);
  usage(json);
  prompt_logprobs(json, request_.spec.prompts.front());
  json.key("prompt_token_id_logprobs").null().key("prompt_token_ids");
  ids(json, request_.spec.prompts.front(), request_.return_token_ids);
  json.key("mm_placeholders").null().key("metrics").null();
  body_tail(json);
  json.key("output_mode").value(request_.text_output ? "text" : "tokens");
  json.key("choices").begin_array();
  for (uint32_t i = 0; i < state_.choices.size(); ++i) {
    const CollectedChoice& choice = state_.choices[i];
    json.begin_object().key("index").value(i);
    finish(json, choice.finish);
    stop_reason_of(json, choice.stop_reason);
    json.key("token_ids");
    ids(json, choice.tokens, true);
    json.key("routed_experts").null().key("sampling_mask").null().key("weight_versions");
    json.begin_array().begin_object().key("version").value("default").key("start").value(0);
    json.key("end").value(choice.tokens.size()).end_object().end_array();
    if (request_.text_output) {
      json.key("text").value(choice.text);
    }
    json.key("logprobs");
    if (!request_.spec.sampling.logprobs) {
      json.null();
    } else {
      request_.text_output ? chat_logprobs(json, choice.logprobs)
                           : id_logprobs(json, choice.logprobs);
    }
    json.end_object();
  }
  json.end_array().end_object();
  return out;
}

}  // namespace stator::fake_engine
