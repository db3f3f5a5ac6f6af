// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/picker_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "stator/epp/pool.h"

namespace stator::epp {
namespace {

constexpr std::array<double, 10> kPickBounds = {0.00001, 0.00003, 0.0001, 0.00015, 0.0003,
                                                0.001,   0.003,   0.01,   0.1,     1};
constexpr std::array<double, 21> kSecondsBounds = {
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 60, 600, 3600};
constexpr std::array<double, 14> kTokenBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04,
                                                 0.05,  0.075, 0.1,   0.15, 0.2,  0.5,  1};
constexpr std::array<double, 14> kByteBounds = {
    64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144, 1048576, 8388608, 33554432};
constexpr std::array<double, 17> kInputBounds = {
    1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 1048576};
constexpr std::array<double, 14> kOutputBounds = {1,   8,    16,   32,   64,   128,   256,
                                                  512, 1024, 2048, 4096, 8192, 32768, 131072};
constexpr std::array<double, 11> kRatioBounds = {0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1};

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

PickerMetrics::PickerMetrics(Metrics& metrics, const EndpointPool& pool, std::string_view name)
    : metrics_(metrics),
      attempts_(metrics.counter("inference_extension_scheduler_attempts_total",
                                "Choices of an endpoint", {{"status", "success"}})),
      failures_(metrics.counter("inference_extension_scheduler_attempts_total",
                                "Choices of an endpoint", {{"status", "failure"}})),
      seconds_(metrics.histogram("inference_extension_scheduler_e2e_duration_seconds",
                                 "From a message of the gateway to our answer", kPickBounds)),
      hit_ratio_(metrics.histogram("inference_extension_prefix_indexer_hit_ratio",
                                   "Share of a prompt that the chosen endpoint has cached",
                                   kRatioBounds)) {
  const MetricLabels labels = {{"name", std::string(name)}};
  metrics.gauge_callback("inference_pool_ready_pods", "Endpoints that requests are sent to", labels,
                         [&pool] { return static_cast<double>(pool.size()); });
  metrics.gauge_callback("inference_pool_average_running_requests",
                         "Requests that were sent to an endpoint and have not ended, on average",
                         labels, [&pool] {
                           if (const PoolAverages told = pool.averages(); told.told > 0) {
                             return told.running;
                           }
                           const auto all = static_cast<double>(pool.active_requests());
                           return all / static_cast<double>(std::max<size_t>(1, pool.size()));
                         });
  metrics.gauge_callback("inference_pool_average_queue_size",
                         "Requests that wait at an endpoint, on average, as endpoints say", labels,
                         [&pool] { return pool.averages().waiting; });
  metrics.gauge_callback("inference_pool_average_kv_cache_utilization",
                         "Share of endpoints' KV cache in use, on average, as endpoints say",
                         labels, [&pool] { return pool.averages().cache_usage; });
  metrics.gauge_callback(
      "inference_extension_flow_control_pool_saturation",
      "How full endpoints are, on average: from 1 on requests of negative priority are shed",
      {{"inference_pool", std::string(name)}}, [&pool] { return pool.averages().saturation; });
}

PickerMetrics::Model& PickerMetrics::of(std::string_view model, std::string_view target) {
  std::pair<std::string, std::string> key(model, target);
  auto known = models_.find(key);
  if (known == models_.end() && models_.size() >= kModelsMax) {
    key = {"other", "other"};
    known = models_.find(key);
  }
  if (known != models_.end()) {
    return known->second;
  }
  const MetricLabels labels = {{"model_name", key.first}, {"target_model_name", key.second}};
  const auto histogram = [&](std::string_view name, std::string_view help,
                             std::span<const double> bounds) {
    return metrics_.histogram(name, help, bounds, labels);
  };
  Model made{
      .requests =
          metrics_.counter("inference_objective_request_total", "Requests of gateways", labels),
      .running =
          metrics_.gauge("inference_objective_running_requests",
                         "Requests that were sent to an endpoint and have not ended", labels),
      .seconds = histogram("inference_objective_request_duration_seconds",
                           "From a request's headers to its end", kSecondsBounds),
      .first_byte_seconds =
          histogram("inference_objective_request_ttft_seconds",
                    "From a request's headers to the first of its answer's body", kSecondsBounds),
      .token_seconds = histogram(
          "inference_objective_request_tpot_seconds",
          "From the first of an answer's body to its end, by token after the first", kTokenBounds),
      .normalized_seconds =
          histogram("inference_objective_normalized_time_per_output_token_seconds",
                    "From a request's headers to its end, by token of the answer", kTokenBounds),
      .request_bytes =
          histogram("inference_objective_request_sizes", "Bytes of requests", kByteBounds),
      .response_bytes =
          histogram("inference_objective_response_sizes", "Bytes of answers", kByteBounds),
      .input_tokens = histogram("inference_objective_input_tokens",
                                "Tokens of prompts, as servers count them", kInputBounds),
      .output_tokens = histogram("inference_objective_output_tokens",
                                 "Tokens of answers, as servers count them", kOutputBounds),
      .cached_tokens =
          histogram("inference_objective_prompt_cached_tokens",
                    "Tokens of prompts that were cached, as servers count them", kInputBounds),
      .labels = labels};
  return models_.emplace(std::move(key), std::move(made)).first->second;
}

void PickerMetrics::on_refused(const Model& model, int status) {
  MetricLabels labels = model.labels;
  labels.emplace_back("error_code", std::to_string(status));
  metrics_
      .counter("inference_objective_request_error_total",
               "Requests that were answered in the gateway's place", labels)
      .add();
}

void PickerMetrics::on_rewritten(const Model& model) {
  metrics_
      .counter("inference_extension_model_rewrite_decisions_total",
               "Requests whose model was changed", model.labels)
      .add();
}

void PickerMetrics::on_pick(Duration took, double hit_ratio) {
  seconds_.observe(seconds(took));
  if (hit_ratio >= 0) {
    hit_ratio_.observe(hit_ratio);
  }
}

void PickerMetrics::on_end(Model& model, const RequestReport& report) {
  model.seconds.observe(seconds(report.whole));
  model.request_bytes.observe(static_cast<double>(report.request_bytes));
  if (!report.is_answered) {
    return;
  }
  model.response_bytes.observe(static_cast<double>(report.response_bytes));
  model.first_byte_seconds.observe(seconds(report.first_byte));
  if (report.usage.prompt) {
    model.input_tokens.observe(static_cast<double>(*report.usage.prompt));
  }
  if (report.usage.cached) {
    model.cached_tokens.observe(static_cast<double>(*report.usage.cached));
  }
  if (!report.usage.output) {
    return;
  }
  const auto tokens = static_cast<double>(*report.usage.output);
  model.output_tokens.observe(tokens);
  if (tokens > 0) {
    model.normalized_seconds.observe(seconds(report.whole) / tokens);
  }
  if (tokens > 1) {
    model.token_seconds.observe(seconds(report.whole - report.first_byte) / (tokens - 1));
  }
}

}  // namespace stator::epp
