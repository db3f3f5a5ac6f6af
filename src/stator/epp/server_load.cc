// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/server_load.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "stator/text/prometheus_text.h"

namespace stator::epp {
namespace {

constexpr std::string_view kAdapters = "vllm:lora_requests_info";
constexpr std::string_view kTriton = "nv_trt_llm_request_metrics";
constexpr std::string_view kTritonCache = "nv_trt_llm_kv_cache_block_metrics";
constexpr size_t kAdaptersMax = 1000;
constexpr double kCountMax = 1e9;

double sane(std::optional<double> value) {
  return value && std::isfinite(*value) ? std::clamp(*value, 0.0, kCountMax) : 0;
}

void add_names(std::string_view list, std::vector<std::string>& names) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    while (name.starts_with(' ')) {
      name.remove_prefix(1);
    }
    while (name.ends_with(' ')) {
      name.remove_suffix(1);
    }
    if (!name.empty() && names.size() < kAdaptersMax &&
        std::ranges::find(names, name) == names.end()) {
      names.emplace_back(name);
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
}

double number_in(std::string_view text) {
  uint32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc() ? number : 0;
}

}  // namespace

std::optional<ServerLoad> read_server_load(std::string_view metrics) {
  auto waiting =
      text::find_metric(metrics, {"vllm:num_requests_waiting", "sglang:num_queue_reqs",
                                  "llamacpp:requests_deferred", "dynamo_frontend_queued_requests"});
  auto running = text::find_metric(
      metrics,
      {"vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing",
       "dynamo_component_inflight_requests", "dynamo_frontend_inflight_requests"});
  auto usage = text::find_mean(
      metrics, {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage",
                "llamacpp:kv_cache_usage_ratio", "dynamo_component_gpu_cache_usage_percent"});
  if (!waiting && !running) {
    waiting = text::find_lowest(metrics, kTriton, R"(request_type="waiting")");
    running = text::find_lowest(metrics, kTriton, R"(request_type="scheduled")");
    usage = text::find_lowest(metrics, kTritonCache, R"(kv_cache_block_type="fraction")");
  }
  if (!waiting && !running && !usage) {
    return std::nullopt;
  }
  ServerLoad load{.waiting = sane(waiting), .running = sane(running)};
  if (usage && std::isfinite(*usage)) {
    load.cache_usage = std::clamp(*usage, 0.0, 1.0);
  }
  load.cache_blocks =
      number_in(text::find_label(metrics, "vllm:cache_config_info", "num_gpu_blocks"));
  if (const std::string_view line = text::find_highest(metrics, kAdapters); !line.empty()) {
    add_names(text::find_label(line, kAdapters, "running_lora_adapters"), load.adapters);
    add_names(text::find_label(line, kAdapters, "waiting_lora_adapters"), load.adapters);
    load.adapters_max =
        static_cast<uint32_t>(number_in(text::find_label(line, kAdapters, "max_lora")));
  }
  return load;
}

}  // namespace stator::epp
