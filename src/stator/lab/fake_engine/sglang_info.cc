// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/sglang_info.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/prom_text.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

constexpr std::string_view kVersion = "0.5.23";

std::string_view mode_of(Role role) {
  switch (role) {
    case Role::kAggregated:
      return "null";  // the text, as the engine says it
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      break;
  }
  return "decode";
}

uint64_t total_tokens(const ServerContext& context) {
  return uint64_t{context.host.info().total_blocks} * context.host.info().block_size;
}

/// "tcp://127.0.0.1:5557" → host and port.
std::pair<std::string, uint32_t> split_endpoint(const std::string& endpoint) {
  const size_t begin = endpoint.find("://");
  const size_t colon = endpoint.rfind(':');
  if (begin == std::string::npos || colon <= begin + 3) {
    return {endpoint, 0};
  }
  uint32_t port = 0;
  std::from_chars(endpoint.data() + colon + 1, endpoint.data() + endpoint.size(), port);
  return {endpoint.substr(begin + 3, colon - begin - 3), port};
}

double usage_of(const ServerContext& context, uint32_t rank) {
  const auto load = context.host.load(rank);
  return static_cast<double>(load.kv_used_blocks) / std::max(load.kv_total_blocks, 1U);
}

}  // namespace

std::string sglang_model_info(const FakeConfig& config, inference::MediaKinds media) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("model_path").value(config.model_path);
  json.key("served_model_name").value(config.model_name);
  json.key("tokenizer_path").value(config.model_path).key("is_generation").value(true);
  json.key("preferred_sampling_params").null().key("weight_version").value("default");
  json.key("load_format").value("auto").key("reasoning_parser").null();
  json.key("tool_call_parser").null().key("disaggregation_mode").value(mode_of(config.role));
  json.key("has_image_understanding").value(media.has(inference::MediaKind::kImage));
  json.key("has_audio_understanding").value(media.has(inference::MediaKind::kAudio));
  json.key("model_type").value("llama").key("architectures").begin_array();
  json.value("LlamaForCausalLM").end_array().end_object();
  return out;
}

std::string sglang_server_info(const ServerContext& context, uint16_t bootstrap_port,
                               const std::string& event_endpoint) {
  const FakeConfig& config = context.config;
  const auto& info = context.host.info();
  std::string out;
  json::Writer json(out);
  json.begin_object().key("model_path").value(config.model_path);
  json.key("tokenizer_path").value(config.model_path);
  json.key("skip_tokenizer_init").value(false).key("context_length").value(info.max_model_len);
  json.key("max_running_requests").null().key("max_total_tokens").value(total_tokens(context));
  json.key("max_prefill_tokens").value(info.max_num_batched_tokens);
  json.key("page_size").value(info.block_size).key("host").value(config.http.host);
  json.key("port").value(config.http.port).key("served_model_name").value(config.model_name);
  json.key("dp_size").value(config.dp_size).key("dcp_size").value(1).key("nnodes").value(1);
  json.key("enable_lora");
  if (config.lora) {
    json.value(true);
  } else {
    json.null();
  }
  json.key("enable_dp_attention").value(false).key("dist_init_addr").null();
  json.key("reasoning_parser").null().key("tool_call_parser").null();
  json.key("disaggregation_mode").value(mode_of(config.role));
  json.key("disaggregation_bootstrap_port").value(bootstrap_port);
  json.key("incremental_streaming_output").value(config.incremental);
  json.key("status").value("ready").key("max_total_num_tokens").value(total_tokens(context));
  json.key("version").value(kVersion).key("kv_events");
  if (event_endpoint.empty()) {
    json.null();
  } else {
    const auto [host, port] = split_endpoint(event_endpoint);
    json.begin_object().key("publisher").value("zmq").key("endpoint_host").value(host);
    json.key("endpoint_port_base").value(port).key("topic").value(config.events.topic);
    json.key("block_size").value(info.block_size).key("dp_size").value(config.dp_size);
    json.end_object();
  }
  json.end_object();
  return out;
}

std::string sglang_loads(const ServerContext& context) {
  const double now =
      std::chrono::duration<double>(context.shard.clock().wall_now().time_since_epoch()).count();
  std::string out;
  json::Writer json(out);
  const auto wall = std::chrono::time_point_cast<std::chrono::seconds>(
      std::chrono::sys_time<std::chrono::nanoseconds>(context.shard.clock().wall_now()));
  json.begin_object();
  json.key("timestamp").value(fmt::format("{:%Y-%m-%dT%H:%M:%S}+00:00", wall));
  json.key("version").value(kVersion).key("accelerator").null().key("num_accelerators").value(1);
  json.key("loads").begin_array();
  for (uint32_t rank = 0; rank < context.host.ranks(); ++rank) {
    const auto load = context.host.load(rank);
    const uint64_t used = uint64_t{load.kv_used_blocks} * context.host.info().block_size;
    json.begin_object().key("timestamp").value(now).key("dp_rank").value(rank);
    json.key("num_running_reqs").value(load.running).key("num_waiting_reqs").value(load.waiting);
    json.key("num_waiting_uncached_tokens").value(0).key("num_used_tokens").value(used);
    json.key("num_total_tokens").value(used).key("num_active_tokens").value(used);
    json.key("num_prealloc_ready_tokens").value(0);
    json.key("max_total_num_tokens").value(total_tokens(context));
    json.key("max_running_requests").value(context.host.info().max_num_seqs);
    json.key("token_usage").value(usage_of(context, rank)).key("gen_throughput").raw("0.0");
    const double queried = static_cast<double>(std::max<uint64_t>(load.prefix_query_tokens, 1));
    json.key("cache_hit_rate").value(static_cast<double>(load.prefix_hit_tokens) / queried);
    json.key("utilization").raw("0.0").key("total_prefill_uncached_tokens");
    json.value(load.prefix_query_tokens - load.prefix_hit_tokens);
    json.key("total_prefill_busy_us").value(0).key("decode_moments").begin_array().raw("0.0");
    json.end_array().key("memory").begin_object().key("weight_gb").raw("0.0");
    json.key("kv_cache_gb").raw("0.0").key("graph_gb").raw("0.0");
    json.key("token_capacity").value(total_tokens(context)).end_object();
    json.key("disaggregation").begin_object().key("mode").value(mode_of(context.config.role));
    for (const char* key : {"prefill_bootstrap_queue_reqs", "prefill_inflight_queue_reqs",
                            "decode_prealloc_queue_reqs", "decode_transfer_queue_reqs",
                            "decode_retracted_queue_reqs"}) {
      json.key(key).value(0);
    }
    json.key("kv_transfer_speed_gb_s").raw("0.0").key("kv_transfer_latency_ms").raw("0.0");
    json.end_object().key("queues").begin_object().key("waiting").value(load.waiting);
    json.key("grammar").value(0).key("paused").value(0).key("retracted").value(0);
    json.key("prealloc_ready").value(0).end_object().end_object();
  }
  json.end_array().end_object();
  return out;
}

std::string sglang_models(const ServerContext& context, const SglangAdapters& adapters) {
  std::string out;
  json::Writer json(out);
  const auto begin_row = [&](std::string_view id, std::string_view root) {
    json.begin_object().key("id").value(id).key("object").value("model");
    json.key("created").value(unix_seconds(context.shard.clock().wall_now()));
    json.key("owned_by").value("sglang").key("root").value(root).key("parent");
  };
  json.begin_object().key("object").value("list").key("data").begin_array();
  begin_row(context.config.model_name, context.config.model_name);
  json.null().key("max_model_len").value(context.host.info().max_model_len).end_object();
  for (const auto& [name, path] : adapters) {
    begin_row(name, path);
    json.value(context.config.model_name).key("max_model_len").null().end_object();
  }
  json.end_array().end_object();
  return out;
}

std::string sglang_metrics(const ServerContext& context, const PlainCounters& counters) {
  const std::string model = context.config.model_name;
  const auto as_double = [](uint64_t value) { return static_cast<double>(value); };
  std::string pages;
  for (uint32_t rank = 0; rank < context.host.ranks(); ++rank) {
    const auto load = context.host.load(rank);
    const uint32_t page = context.host.info().block_size;
    PromText out(
        fmt::format("engine_type=\"unified\",model_name=\"{}\",moe_ep_rank=\"{}\","
                    "pp_rank=\"0\",tp_rank=\"0\"",
                    model, rank));
    out.gauge("sglang:num_running_reqs", "The number of running requests.", load.running);
    out.gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.",
              load.waiting);
    out.gauge("sglang:num_used_tokens", "The number of used tokens.",
              as_double(load.kv_used_blocks) * page);
    out.gauge("sglang:token_usage", "The token usage.", usage_of(context, rank));
    out.gauge("sglang:max_total_num_tokens", "Maximum total number of tokens.",
              as_double(total_tokens(context)));
    out.gauge("sglang:page_size", "Page size.", page);
    out.gauge("sglang:num_pages", "Number of pages.", load.kv_total_blocks);
    out.gauge("sglang:context_len", "Context length.", context.host.info().max_model_len);
    const double queried = as_double(std::max<uint64_t>(load.prefix_query_tokens, 1));
    out.gauge("sglang:cache_hit_rate", "The prefix cache hit rate.",
              as_double(load.prefix_hit_tokens) / queried);
    out.gauge("sglang:gen_throughput", "The generation throughput (token/s).", 0);
    out.gauge("sglang:num_retracted_reqs", "The number of retracted requests.",
              as_double(load.preemptions));
    pages += out.take();
  }
  PromText totals(
      fmt::format("engine_type=\"unified\",is_streaming=\"false\",model_name=\"{}\"", model));
  totals.counter("sglang:prompt_tokens_total", "Number of prefill tokens processed.",
                 as_double(counters.prompt_tokens));
  totals.counter("sglang:generation_tokens_total", "Number of generation tokens processed.",
                 as_double(counters.generation_tokens));
  totals.counter("sglang:num_requests_total", "Number of requests processed.",
                 as_double(counters.requests));
  totals.family("sglang:cached_tokens_total", "counter", "Number of cached prompt tokens.");
  totals.sample_as(
      "sglang:cached_tokens_total", as_double(counters.cached_tokens),
      fmt::format("cache_source=\"device\",engine_type=\"unified\",model_name=\"{}\"", model));
  return pages + totals.take();
}

}  // namespace stator::fake_engine
