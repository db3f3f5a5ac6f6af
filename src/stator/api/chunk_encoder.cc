// SPDX-License-Identifier: Apache-2.0
#include "stator/api/chunk_encoder.h"

#include "stator/api/detail/response_json.h"
#include "stator/json/writer.h"

namespace stator::api {
namespace {

// What follows "choices":[…, the same for both protocols.
void append_tail(std::string& out, const ResponseOptions& options, const Usage* usage,
                 std::string_view nvext_json) {
  out.push_back(']');
  if (options.include_usage) {
    out.append(",\"usage\":");
    if (usage != nullptr && options.continuous_usage_stats) {
      json::Writer json(out);
      write_usage(json, *usage);
    } else {
      out.append("null");
    }
  }
  if (!nvext_json.empty()) {
    out.append(",\"nvext\":").append(nvext_json);
  }
}

void append_usage_chunk(std::string& out, std::string_view prefix, const Usage& usage,
                        std::string_view nvext_json) {
  out.append(prefix).append("],\"usage\":");
  json::Writer json(out);
  write_usage(json, usage);
  if (!nvext_json.empty()) {
    out.append(",\"nvext\":").append(nvext_json);
  }
  out.append("}\n\n");
}

std::string render_prefix(const ResponseIdentity& identity, std::string_view object) {
  std::string prefix = "data: ";
  json::Writer json(prefix);
  json.begin_object();
  write_identity(json, identity, object);
  json.key("system_fingerprint").null();
  if (object == "chat.completion.chunk") {
    json.key("service_tier").null();
  }
  json.key("choices").begin_array();
  prefix.shrink_to_fit();  // kept as long as the stream
  return prefix;
}

void write_tool_calls(json::Writer& json, std::span<const ToolCallDelta> calls) {
  json.key("tool_calls").begin_array();
  for (const ToolCallDelta& call : calls) {
    json.begin_object().key("index").value(call.index);
    const bool opens = !call.id.empty() || !call.name.empty();
    if (opens) {
      json.key("id").value(call.id).key("type").value("function");
    }
    json.key("function").begin_object();
    if (opens) {
      json.key("name").value(call.name);
    }
    json.key("arguments").value(call.arguments).end_object().end_object();
  }
  json.end_array();
}

void write_delta(json::Writer& json, const ChatDelta& delta, const ResponseOptions& options) {
  json.key("delta").begin_object();
  if (delta.first) {
    json.key("role").value("assistant");
  }
  // SDKs build their message from the first chunk and expect a string there.
  const bool empty_content =
      delta.first && delta.reasoning.empty() && delta.tool_calls.empty() && delta.refusal.empty();
  if (!delta.content.empty() || empty_content) {
    json.key("content").value(delta.content);
  }
  if (!delta.reasoning.empty()) {
    json.key(options.reasoning_field).value(delta.reasoning);
  }
  if (!delta.refusal.empty()) {
    json.key("refusal").value(delta.refusal);
  }
  if (!delta.tool_calls.empty()) {
    write_tool_calls(json, delta.tool_calls);
  }
  json.end_object();
}

/// Nothing but text, as nearly every chunk of a stream.
bool is_plain_text(const ChatDelta& delta, const ResponseOptions& options) {
  return !options.token_ids && !delta.first && !delta.content.empty() && delta.reasoning.empty() &&
         delta.refusal.empty() && delta.tool_calls.empty() && delta.finish == ChoiceFinish::kNone &&
         !delta.logprobs;
}

/// What append_choice writes of one, in a third of the instructions.
void append_plain_text(std::string& out, const ChatDelta& delta) {
  json::Writer(out.append("{\"index\":")).value(delta.index);
  json::append_string(out.append(",\"delta\":{\"content\":"), delta.content);
  out.append("},\"finish_reason\":null,\"logprobs\":null}");
}

}  // namespace

bool ChatDelta::empty() const {
  return !first && content.empty() && reasoning.empty() && refusal.empty() && tool_calls.empty() &&
         finish == ChoiceFinish::kNone && (!logprobs || logprobs->empty()) && nvext_json.empty() &&
         token_ids.empty();
}

ChatChunkEncoder::ChatChunkEncoder(const ResponseIdentity& identity, const ResponseOptions& options)
    : prefix_(render_prefix(identity, "chat.completion.chunk")), options_(options) {}

void ChatChunkEncoder::append_choice(std::string& out, const ChatDelta& delta) const {
  json::Writer json(out);
  json.begin_object().key("index").value(delta.index);
  write_delta(json, delta, options_);
  json.key("finish_reason");
  write_finish(json, delta.finish);
  json.key("logprobs");
  write_chat_logprobs(json, delta.logprobs, options_);
  if (options_.token_ids) {
    write_token_ids(json.key("token_ids"), delta.token_ids);
  }
  json.end_object();
}

void ChatChunkEncoder::append_delta(std::string& out, const ChatDelta& delta) const {
  if (delta.empty()) {
    return;
  }
  out.append(prefix_);
  if (is_plain_text(delta, options_)) {
    append_plain_text(out, delta);
  } else {
    append_choice(out, delta);
  }
  append_tail(out, options_, delta.usage, delta.nvext_json);
  if (!delta.prompt_token_ids.empty()) {
    json::Writer json(out.append(",\"prompt_token_ids\":"));
    write_token_ids(json, delta.prompt_token_ids);
  }
  out.append("}\n\n");
}

void ChatChunkEncoder::append_usage(std::string& out, const Usage& usage,
                                    std::string_view nvext_json) const {
  append_usage_chunk(out, prefix_, usage, nvext_json);
}

bool CompletionDelta::empty() const {
  return text.empty() && finish == ChoiceFinish::kNone && (!logprobs || logprobs->empty()) &&
         nvext_json.empty() && token_ids.empty() && prompt_token_ids.empty();
}

CompletionChunkEncoder::CompletionChunkEncoder(const ResponseIdentity& identity,
                                               const ResponseOptions& options)
    : prefix_(render_prefix(identity, "text_completion")), options_(options) {}

void CompletionChunkEncoder::append_delta(std::string& out, const CompletionDelta& delta) const {
  if (delta.empty()) {
    return;
  }
  out.append(prefix_);
  json::Writer json(out);
  json.begin_object().key("index").value(delta.index).key("text").value(delta.text);
  json.key("finish_reason");
  write_finish(json, delta.finish);
  json.key("logprobs");
  write_completion_logprobs(json, delta.logprobs, options_);
  if (options_.token_ids) {
    write_token_ids(json.key("token_ids"), delta.token_ids);
  }
  if (!delta.prompt_token_ids.empty()) {
    write_token_ids(json.key("prompt_token_ids"), delta.prompt_token_ids);
  }
  json.end_object();
  append_tail(out, options_, delta.usage, delta.nvext_json);
  out.append("}\n\n");
}

void CompletionChunkEncoder::append_usage(std::string& out, const Usage& usage,
                                          std::string_view nvext_json) const {
  append_usage_chunk(out, prefix_, usage, nvext_json);
}

void append_sse_error(std::string& out, int status, std::string_view message,
                      const ErrorStyle& style) {
  out.append("data: ");
  json::Writer json(out);
  json.begin_object().key("error").begin_object();
  json.key("message").value(message);
  json.key("type").value(sse_error_type(status, style));
  json.key("code").value(status);
  json.end_object().end_object();
  out.append("\n\n");
}

void append_sse_done(std::string& out) {
  out.append("data: [DONE]\n\n");
}

void append_sse_keep_alive(std::string& out) {
  out.append(":\n\n");
}

void append_sse_annotation(std::string& out, std::string_view name, std::string_view json) {
  out.append("event: ").append(name).append("\ndata: ").append(json).append("\n\n");
}

}  // namespace stator::api
