// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/kv_publishing.h"
#include "stator/lab/fake_engine/vllm_answer.h"
#include "stator/lab/fake_engine/vllm_service.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

void append_model(json::Writer& json, ServerContext& context, const VllmState& state,
                  size_t index) {
  const int64_t now = unix_seconds(context.shard.clock().wall_now());
  json.begin_object().key("id").value(state.names[index]).key("object").value("model");
  json.key("created").value(now).key("owned_by").value("vllm").key("root");
  json.value(index == 0 ? context.config.model_path : state.adapter_paths[index]);
  json.key("parent");
  index == 0 ? json.null() : json.value(state.names.front());
  json.key("max_model_len");
  index == 0 ? json.value(context.host.info().max_model_len) : json.null();
  json.key("permission").begin_array().begin_object();
  json.key("id").value("modelperm-" + random_hex(context.random, 8));
  json.key("object").value("model_permission").key("created").value(now);
  json.key("allow_create_engine").value(false).key("allow_sampling").value(true);
  json.key("allow_logprobs").value(true).key("allow_search_indices").value(false);
  json.key("allow_view").value(true).key("allow_fine_tuning").value(false);
  json.key("organization").value("*").key("group").null().key("is_blocking").value(false);
  json.end_object().end_array().end_object();
}

std::string models_body(ServerContext& context, const VllmState& state) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("object").value("list").key("data").begin_array();
  for (size_t i = 0; i < state.names.size(); ++i) {
    append_model(json, context, state, i);
  }
  json.end_array().end_object();
  return out;
}

std::string event_sources_body(const ServerContext& context) {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  const EventConfig& config = context.config.events;
  for (uint32_t rank = 0; context.events != nullptr && rank < context.events->ranks(); ++rank) {
    const EventPublisher& publisher = context.events->publisher(rank);
    json.key_escaped(std::to_string(rank)).begin_object();
    json.key("enable_kv_cache_events").value(true).key("publisher").value("zmq");
    json.key("endpoint").value(publisher.endpoint());
    json.key("replay_endpoint").value(publisher.replay_endpoint());
    json.key("buffer_steps").value(config.buffer_steps).key("hwm").value(100'000);
    json.key("max_queue_size").value(config.queue_max).key("topic").value(config.topic);
    json.end_object();
  }
  json.end_object();
  return out;
}

std::string metrics_text(ServerContext& context, VllmState& state) {
  std::string out;
  std::string adapters;
  for (size_t i = 1; i < state.names.size(); ++i) {
    adapters += (i > 1 ? "," : "") + state.names[i];
  }
  const uint32_t announced = context.faults.block_size();
  for (uint32_t rank = 0; rank < context.host.ranks(); ++rank) {
    VllmGauges gauges{.load = context.host.load(rank),
                      .handoffs = {},
                      .rank = rank,
                      .block_size = announced != 0 ? announced : context.config.engine.block_size,
                      .sleep_level = state.sleep_level,
                      .unix_seconds = std::chrono::duration<double>(
                                          context.shard.clock().wall_now().time_since_epoch())
                                          .count(),
                      .running_adapters = adapters};
    if (rank == 0) {
      const MutexLock lock(state.desk_mutex);
      state.open_handoffs->expire(context.shard.now());
      gauges.handoffs = {.pinned_blocks = state.open_handoffs->pinned_blocks(),
                         .expired = state.open_handoffs->expired(),
                         .late_claims = state.open_handoffs->late_claims()};
    }
    out += render_vllm_metrics(context.config, state.counters[rank], gauges);
  }
  return out;
}

void tokenize(ServerContext& context, VllmState& state, net::HttpExchange& exchange) {
  const auto body = read_vllm_body(exchange.request().body());
  if (!body) {
    respond_error(exchange, context, body.error());
    return;
  }
  std::vector<TokenId> ids;
  if (const auto text = read_text(*body, "prompt")) {
    auto encoded = encode_text(context.model, *text, read_flag(*body, "add_special_tokens", true));
    if (encoded) {
      ids = std::move(*encoded);
    }
  } else {
    auto prompt = read_chat_prompt(*body, view_of(context, state));
    if (!prompt) {
      respond_error(exchange, context, prompt.error());
      return;
    }
    ids = std::move(*prompt);
  }
  std::string out;
  json::Writer json(out);
  json.begin_object().key("count").value(ids.size());
  json.key("max_model_len").value(context.host.info().max_model_len).key("tokens").begin_array();
  for (const TokenId id : ids) {
    json.value(id);
  }
  json.end_array().key("token_strs");
  if (read_flag(*body, "return_token_strs")) {
    json.begin_array();
    for (const TokenId id : ids) {
      json.value(token_spelling(context.model, id));
    }
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  respond_json(exchange, 200, out);
}

void detokenize(ServerContext& context, net::HttpExchange& exchange) {
  const auto body = read_vllm_body(exchange.request().body());
  if (!body) {
    respond_error(exchange, context, body.error());
    return;
  }
  const auto* tokens = find_member(*body, "tokens");
  const auto ids = tokens == nullptr ? std::nullopt : read_ids(*tokens);
  if (!ids) {
    respond_error(exchange, context,
                  {.message = "1 validation error:\n  {'type': 'missing', 'loc': 'body.tokens', "
                              "'msg': 'Field required', 'input': '<dict>'}",
                   .type = "Bad Request",
                   .param = "body.tokens"});
    return;
  }
  std::string out;
  json::Writer json(out);
  json.begin_object().key("prompt").value(decode_text(context.model, *ids)).end_object();
  respond_json(exchange, 200, out);
}

/// The body that /inference/v1/generate would take for this conversation.
void render(ServerContext& context, VllmState& state, net::HttpExchange& exchange) {
  const auto request =
      read_vllm_request(VllmRoute::kChat, exchange.request().body(), {}, view_of(context, state));
  if (!request) {
    respond_error(exchange, context, request.error());
    return;
  }
  std::string out;
  json::Writer json(out);
  const auto& sampling = request->spec.sampling;
  json.begin_object().key("request_id").value("chatcmpl-" + random_hex(context.random, 8));
  json.key("token_ids").begin_array();
  for (const TokenId id : request->spec.prompts.front()) {
    json.value(id);
  }
  json.end_array().key("token_offsets").null().key("features").null().key("content_parts").null();
  json.key("sampling_params").begin_object();
  json.key("presence_penalty").raw(fmt::format("{:.1f}", sampling.presence_penalty));
  json.key("frequency_penalty").raw(fmt::format("{:.1f}", sampling.frequency_penalty));
  json.key("repetition_penalty").raw(fmt::format("{:.1f}", sampling.repetition_penalty));
  json.key("temperature").raw(fmt::format("{:.1f}", sampling.temperature));
  json.key("top_p").raw(fmt::format("{:.1f}", sampling.top_p));
  json.key("min_p").raw(fmt::format("{:.1f}", sampling.min_p));
  json.key("stop").begin_array().end_array().key("stop_token_ids").begin_array().end_array();
  json.key("max_tokens").value(request->spec.stop.max_tokens).key("output_kind").value(2);
  json.key("skip_clone").value(true).key("bad_words").begin_array().end_array();
  json.key("skip_reading_prefix_cache").value(false).end_object();
  json.key("model").value(state.names.front()).key("reasoning_ended").null();
  json.key("reasoning_parser_kwargs").null().key("return_token_ids").null();
  json.key("output_mode").value("tokens").key("stream").value(false).key("stream_options").null();
  json.key("cache_salt").null().key("priority").value(0).key("kv_transfer_params").null();
  json.key("ec_transfer_params").null().end_object();
  respond_json(exchange, 200, out);
}

}  // namespace

bool handle_vllm_info(ServerContext& context, VllmState& state, net::HttpExchange& exchange) {
  const std::string_view method = exchange.request().method();
  const std::string_view path = exchange.request().path();
  const bool current = context.config.release == Release::kCurrent;
  if (method == "GET" && (path == "/health" || path == "/ping")) {
    respond_empty(exchange);
  } else if (method == "GET" && path == "/version") {
    respond_json(exchange, 200, current ? R"({"version":"0.32.0"})" : R"({"version":"0.9.2"})");
  } else if (method == "GET" && path == "/v1/models") {
    respond_json(exchange, 200, models_body(context, state));
  } else if (method == "GET" && path == "/metrics") {
    exchange.respond(200, "text/plain; version=1.0.0; charset=utf-8", metrics_text(context, state));
  } else if (method == "GET" && path == "/load") {
    respond_json(exchange, 200, fmt::format(R"({{"server_load":{}}})", context.answers.size()));
  } else if (method == "GET" && path == "/kv_event_sources" && current) {
    respond_json(exchange, 200, event_sources_body(context));
  } else if (method == "GET" && path == "/get_world_size" && current) {
    respond_json(exchange, 200, R"({"world_size":1})");
  } else if (method == "GET" && path == "/weight_info" && current) {
    respond_json(exchange, 200, R"({"weight_version":"default"})");
  } else if (method == "POST" && path == "/tokenize") {
    tokenize(context, state, exchange);
  } else if (method == "POST" && path == "/detokenize") {
    detokenize(context, exchange);
  } else if (method == "POST" && path == "/v1/chat/completions/render" &&
             context.config.scale_out) {
    render(context, state, exchange);
  } else {
    return false;
  }
  return true;
}

}  // namespace stator::fake_engine
