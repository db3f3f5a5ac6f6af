// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/vllm_metrics.h"

#include <fmt/format.h>

namespace stator::fake_engine {
namespace {

double as_double(uint64_t value) {
  return static_cast<double>(value);
}

double usage_of(const VllmGauges& gauges) {
  const uint32_t used = gauges.load.kv_used_blocks + gauges.handoffs.pinned_blocks;
  return as_double(used) / as_double(std::max(gauges.load.kv_total_blocks, 1U));
}

void append_gauges(PromText& out, const FakeConfig& config, const VllmGauges& gauges) {
  out.gauge("vllm:num_requests_running", "Number of requests in model execution batches.",
            gauges.load.running);
  out.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.",
            gauges.load.waiting);
  if (config.release == Release::kOld) {
    out.gauge("vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage.",
              usage_of(gauges));
    return;
  }
  out.family("vllm:num_requests_waiting_by_reason", "gauge",
             "Number of requests waiting to be processed, by reason.");
  out.sample(gauges.load.waiting, "reason=\"capacity\"").sample(0, "reason=\"deferred\"");
  out.family("vllm:engine_sleep_state", "gauge", "Engine sleep state.");
  out.sample(gauges.sleep_level == 0 ? 1 : 0, "sleep_state=\"awake\"");
  out.sample(gauges.sleep_level == 1 ? 1 : 0, "sleep_state=\"weights_offloaded\"");
  out.sample(gauges.sleep_level == 2 ? 1 : 0, "sleep_state=\"discard_all\"");
  out.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.",
            usage_of(gauges));
}

void append_transfers(PromText& out, const VllmCounters& counters, const VllmGauges& gauges) {
  out.counter("vllm:nixl_num_failed_transfers_total", "Number of failed NIXL KV Cache transfers.",
              0);
  out.counter("vllm:nixl_num_failed_notifications_total", "Number of failed NIXL notifications.",
              0);
  out.counter("vllm:nixl_num_kv_expired_reqs_total",
              "Number of requests whose KV blocks expired before they were read.",
              as_double(gauges.handoffs.expired));
  out.counter("vllm:nixl_num_notifications_after_expiry_total",
              "Number of notifications for expired requests.",
              as_double(gauges.handoffs.late_claims));
  out.counter("vllm:external_prefix_cache_queries_total",
              "External prefix cache queries, in tokens.", as_double(counters.external_queries));
  out.counter("vllm:external_prefix_cache_hits_total", "External prefix cache hits, in tokens.",
              as_double(counters.external_hits));
}

void append_tokens(PromText& out, const VllmCounters& counters, const VllmGauges& gauges) {
  out.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in tokens.",
              as_double(gauges.load.prefix_query_tokens));
  out.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.",
              as_double(gauges.load.prefix_hit_tokens));
  out.counter("vllm:num_preemptions_total", "Cumulative number of preemptions from the engine.",
              as_double(gauges.load.preemptions));
  out.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.",
              as_double(counters.prompt_tokens));
  out.family("vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens by source.");
  const uint64_t computed =
      counters.prompt_tokens - counters.cached_tokens -
      std::min(counters.external_hits, counters.prompt_tokens - counters.cached_tokens);
  out.sample(as_double(computed), "source=\"local_compute\"");
  out.sample(as_double(counters.cached_tokens), "source=\"local_cache_hit\"");
  out.sample(as_double(counters.external_hits), "source=\"external_kv_transfer\"");
  out.counter("vllm:prompt_tokens_cached_total", "Number of cached prompt tokens.",
              as_double(counters.cached_tokens));
  out.counter("vllm:generation_tokens_total", "Number of generation tokens processed.",
              as_double(counters.generation_tokens));
}

void append_requests(PromText& out, const FakeConfig& config, const VllmCounters& counters,
                     uint32_t rank) {
  constexpr std::string_view kName = "vllm:request_success_total";
  out.family(kName, "counter", "Count of successfully processed requests.");
  const auto sample = [&](std::string_view reason, uint64_t value) {
    out.sample_as(kName, as_double(value),
                  fmt::format("engine=\"{}\",finished_reason=\"{}\",model_name=\"{}\"", rank,
                              reason, config.model_name));
  };
  sample("stop", counters.stopped);
  sample("length", counters.length);
  sample("abort", counters.aborted);
  sample("error", counters.failed);
  sample("repetition", 0);
  out.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.",
                counters.prompt_lengths);
  out.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.",
                counters.generation_lengths);
  out.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
                counters.time_to_first_token);
  out.histogram(config.release == Release::kOld ? "vllm:time_per_output_token_seconds"
                                                : "vllm:inter_token_latency_seconds",
                "Histogram of inter-token latency in seconds.", counters.inter_token);
  out.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
                counters.end_to_end);
}

void append_config(PromText& out, const FakeConfig& config, const VllmGauges& gauges) {
  out.family("vllm:lora_requests_info", "gauge", "Running stats on lora requests.");
  out.sample_as(
      "vllm:lora_requests_info", gauges.unix_seconds,
      fmt::format("max_lora=\"1\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"\"",
                  gauges.running_adapters));
  const uint32_t blocks = gauges.load.kv_total_blocks;
  out.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");
  out.sample_as(
      "vllm:cache_config_info", 1,
      fmt::format("_block_size_resolved=\"True\",block_size=\"{0}\",cache_dtype=\"auto\","
                  "effective_attention_block_size=\"{0}\",enable_prefix_caching=\"{1}\","
                  "engine=\"{2}\",gpu_memory_utilization=\"0.92\",kv_cache_size_tokens=\"{3}\","
                  "mamba_block_size=\"None\",num_cpu_blocks=\"None\",num_gpu_blocks=\"{4}\","
                  "num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"sha256\","
                  "sliding_window=\"None\"",
                  gauges.block_size, config.engine.enable_prefix_caching ? "True" : "False",
                  gauges.rank, uint64_t{blocks} * gauges.block_size, blocks));
}

}  // namespace

std::string render_vllm_metrics(const FakeConfig& config, const VllmCounters& counters,
                                const VllmGauges& gauges) {
  PromText out(fmt::format("engine=\"{}\",model_name=\"{}\"", gauges.rank, config.model_name));
  append_transfers(out, counters, gauges);
  append_gauges(out, config, gauges);
  append_tokens(out, counters, gauges);
  append_requests(out, config, counters, gauges.rank);
  append_config(out, config, gauges);
  return out.take();
}

}  // namespace stator::fake_engine
