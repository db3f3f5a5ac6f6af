// SPDX-License-Identifier: Apache-2.0
#include "stator/api/response_body.h"

#include <algorithm>
#include <string>

#include "stator/api/detail/response_json.h"
#include "stator/json/writer.h"

namespace stator::api {
namespace {

void write_optional_text(json::Writer& json, std::string_view text) {
  if (text.empty()) {
    json.null();
  } else {
    json.value(text);
  }
}

void write_tool_calls(json::Writer& json, std::span<const ToolCall> calls) {
  json.key("tool_calls").begin_array();
  for (const ToolCall& call : calls) {
    json.begin_object();
    json.key("id").value(call.id).key("type").value("function");
    json.key("function").begin_object();
    json.key("name").value(call.name).key("arguments").value(call.arguments);
    json.end_object().end_object();
  }
  json.end_array();
}

void write_message(json::Writer& json, const ChatChoice& choice, const ResponseOptions& options) {
  json.key("message").begin_object().key("role").value("assistant");
  json.key("content");
  if (choice.content.empty() && !choice.tool_calls.empty()) {
    json.null();
  } else {
    json.value(choice.content);
  }
  if (!choice.reasoning.empty()) {
    json.key(options.reasoning_field).value(choice.reasoning);
  }
  if (!choice.tool_calls.empty()) {
    write_tool_calls(json, choice.tool_calls);
  }
  json.key("refusal");
  write_optional_text(json, choice.refusal);
  json.end_object();
}

void write_tail(json::Writer& json, const BodyFrame& frame) {
  json.end_array().key("usage");
  write_usage(json, frame.usage);
  if (!frame.prompt_logprobs_json.empty()) {
    json.key("prompt_logprobs").raw(frame.prompt_logprobs_json);
  }
  if (!frame.prompt_token_ids.empty()) {
    write_token_ids(json.key("prompt_token_ids"), frame.prompt_token_ids);
  }
  if (!frame.nvext_json.empty()) {
    json.key("nvext").raw(frame.nvext_json);
  }
  json.end_object();
}

template <typename Number>
void write_if(json::Writer& json, std::string_view key, const std::optional<Number>& number) {
  if (number) {
    json.key(key).value(*number);
  }
}

void write_workers(json::Writer& json, const NvextResponse::Workers& workers) {
  json.begin_object();
  write_if(json, "prefill_worker_id", workers.prefill_worker_id);
  write_if(json, "prefill_dp_rank", workers.prefill_dp_rank);
  write_if(json, "decode_worker_id", workers.decode_worker_id);
  write_if(json, "decode_dp_rank", workers.decode_dp_rank);
  json.end_object();
}

void write_timing(json::Writer& json, const NvextResponse::Timing& timing) {
  json.begin_object();
  write_if(json, "request_received_ms", timing.request_received_ms);
  write_if(json, "prefill_wait_time_ms", timing.prefill_wait_time_ms);
  write_if(json, "prefill_time_ms", timing.prefill_time_ms);
  write_if(json, "ttft_ms", timing.ttft_ms);
  write_if(json, "total_time_ms", timing.total_time_ms);
  write_if(json, "kv_hit_rate", timing.kv_hit_rate);
  write_if(json, "router_queue_depth", timing.router_queue_depth);
  write_if(json, "kv_transfer_estimated_latency_ms", timing.kv_transfer_estimated_latency_ms);
  json.end_object();
}

void write_model(json::Writer& json, const ModelEntry& model) {
  json.begin_object();
  json.key("id").value(model.id);
  json.key("object").value("model");
  json.key("created").value(model.created_s);
  json.key("owned_by").value(model.owned_by);
  json.key("root").value(model.root.empty() ? model.id : model.root);
  if (!model.parent.empty()) {
    json.key("parent").value(model.parent);
  }
  write_if(json, "context_window", model.context_window);
  write_if(json, "max_model_len", model.context_window);  // where clients of vLLM look
  write_if(json, "max_output_tokens", model.max_output_tokens);
  json.end_object();
}

void write_instance(json::Writer& json, const HealthyInstance& instance) {
  json.begin_object().key("model").value(instance.model);
  json.key("instance_id").value(instance.worker.value());
  if (!instance.url.empty()) {
    json.key("url").value(instance.url);
  }
  if (!instance.reason.empty()) {
    json.key("reason").value(instance.reason);
  }
  json.end_object();
}

}  // namespace

void append_chat_completion(std::string& out, const BodyFrame& frame,
                            std::span<const ChatChoice> choices) {
  json::Writer json(out);
  json.begin_object();
  write_identity(json, frame.identity, "chat.completion");
  json.key("system_fingerprint").null().key("service_tier").null();
  json.key("choices").begin_array();
  for (const ChatChoice& choice : choices) {
    json.begin_object().key("index").value(choice.index);
    write_message(json, choice, frame.options);
    json.key("finish_reason");
    write_finish(json, choice.finish);
    json.key("logprobs");
    write_chat_logprobs(json, choice.logprobs, frame.options);
    if (frame.options.token_ids) {
      write_token_ids(json.key("token_ids"), choice.token_ids);
    }
    json.end_object();
  }
  write_tail(json, frame);
}

void append_text_completion(std::string& out, const BodyFrame& frame,
                            std::span<const CompletionChoice> choices) {
  json::Writer json(out);
  json.begin_object();
  write_identity(json, frame.identity, "text_completion");
  json.key("system_fingerprint").null();
  json.key("choices").begin_array();
  for (const CompletionChoice& choice : choices) {
    json.begin_object().key("index").value(choice.index).key("text").value(choice.text);
    json.key("finish_reason");
    write_finish(json, choice.finish);
    json.key("logprobs");
    write_completion_logprobs(json, choice.logprobs, frame.options);
    if (!choice.prompt_logprobs_json.empty()) {
      json.key("prompt_logprobs").raw(choice.prompt_logprobs_json);
    }
    if (frame.options.token_ids) {
      write_token_ids(json.key("token_ids"), choice.token_ids);
      write_token_ids(json.key("prompt_token_ids"), choice.prompt_token_ids);
    }
    json.end_object();
  }
  write_tail(json, frame);
}

void append_prompt_logprobs(std::string& out, std::span<const LogprobEntry> scored,
                            size_t alternatives) {
  json::Writer json(out);
  json.begin_array().null();
  const auto write = [&json](const TokenChoice& token) {
    json.key(std::to_string(token.id)).begin_object().key("logprob").value(token.logprob);
    if (token.rank > 0) {
      json.key("rank").value(token.rank);
    }
    json.key("decoded_token").value(token.bytes).end_object();
  };
  for (const LogprobEntry& entry : scored) {
    const auto top = entry.top.first(std::min(entry.top.size(), alternatives));
    json.begin_object();
    std::ranges::for_each(top, write);
    if (std::ranges::find(top, entry.sampled.id, &TokenChoice::id) == top.end()) {
      write(entry.sampled);
    }
    json.end_object();
  }
  json.end_array();
}

void append_nvext(std::string& out, const NvextResponse& nvext) {
  const size_t begin = out.size();
  json::Writer json(out);
  json.begin_object();
  if (nvext.workers) {
    json.key("worker_id");
    write_workers(json, *nvext.workers);
  }
  if (nvext.timing) {
    json.key("timing");
    write_timing(json, *nvext.timing);
  }
  if (nvext.engine_data) {
    json.key("engine_data").begin_object();
    json.key("cached_tokens").value(nvext.engine_data->cached_tokens);
    json.key("attempts").value(nvext.engine_data->attempts);
    write_if(json, "queued_ms", nvext.engine_data->queued_ms);
    json.end_object();
  }
  if (nvext.token_ids) {
    json.key("token_ids");
    write_token_ids(json, *nvext.token_ids);
  }
  if (nvext.completion_token_ids) {
    json.key("completion_token_ids");
    write_token_ids(json, *nvext.completion_token_ids);
  }
  write_if(json, "stop_reason", nvext.stop_string);
  write_if(json, "stop_reason", nvext.stop_token);
  if (!nvext.prompt_logprobs_json.empty()) {
    json.key("prompt_logprobs").raw(nvext.prompt_logprobs_json);
  }
  json.end_object();
  if (out.size() - begin == 2) {
    out.resize(begin);
  }
}

void append_model(std::string& out, const ModelEntry& model) {
  json::Writer json(out);
  write_model(json, model);
}

void append_model_list(std::string& out, std::span<const ModelEntry> models) {
  json::Writer json(out);
  json.begin_object().key("object").value("list").key("data").begin_array();
  for (const ModelEntry& model : models) {
    write_model(json, model);
  }
  json.end_array().end_object();
}

void append_tokenize_response(std::string& out, const TokenizeResult& result) {
  json::Writer json(out);
  json.begin_object();
  json.key("count").value(result.tokens.size());
  json.key("max_model_len").value(result.max_model_len);
  json.key("tokens");
  write_token_ids(json, result.tokens);
  json.key("token_strs");
  if (result.token_strs) {
    json.begin_array();
    for (const std::string& text : *result.token_strs) {
      json.value(text);
    }
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
}

void append_detokenize_response(std::string& out, std::string_view prompt) {
  json::Writer json(out);
  json.begin_object().key("prompt").value(prompt).end_object();
}

void append_live_body(std::string& out, Liveness liveness) {
  const bool live = liveness == Liveness::kLive;
  json::Writer json(out);
  json.begin_object();
  json.key("status").value(live ? "live" : "shutting_down");
  json.key("message").value(live ? "Service is live" : "Service is shutting down");
  json.end_object();
}

void append_healthy_body(std::string& out, std::span<const std::string_view> endpoints,
                         std::span<const HealthyInstance> instances) {
  json::Writer json(out);
  json.begin_object().key("status").value("healthy").key("endpoints").begin_array();
  for (const std::string_view endpoint : endpoints) {
    json.value(endpoint);
  }
  json.end_array().key("instances").begin_array();
  bool all = true;
  for (const HealthyInstance& instance : instances) {
    all = all && instance.reason.empty();
    if (instance.reason.empty()) {
      write_instance(json, instance);
    }
  }
  json.end_array();
  if (!all) {
    json.key("unavailable").begin_array();
    for (const HealthyInstance& instance : instances) {
      if (!instance.reason.empty()) {
        write_instance(json, instance);
      }
    }
    json.end_array();
  }
  json.end_object();
}

void append_not_ready_body(std::string& out, std::string_view stage, std::string_view message) {
  json::Writer json(out);
  json.begin_object().key("status").value("not_ready");
  json.key("stage").value(stage).key("message").value(message).end_object();
}

}  // namespace stator::api
