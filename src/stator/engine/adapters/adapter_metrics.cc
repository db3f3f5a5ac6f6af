// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/adapter_metrics.h"

#include <string>

namespace stator::engine::adapters {

AdapterMetrics::AdapterMetrics(Metrics& metrics, std::string_view engine)
    : metrics_(metrics), engine_(engine) {
  const MetricLabels labels = {{"engine", engine_}};
  generated_tokens =
      metrics.counter("stator_engine_generated_tokens_total", "output tokens delivered", labels);
  finished = metrics.counter("stator_engine_finished_requests_total",
                             "requests that ended by a stop condition", labels);
  cancelled = metrics.counter("stator_adapter_cancelled_total",
                              "requests whose connection to the engine was closed", labels);
  refused = metrics.counter("stator_adapter_refused_total",
                            "requests the engine could not honour, never sent", labels);
  poll_failures = metrics.counter("stator_adapter_poll_failures_total",
                                  "health or metrics requests the engine did not answer", labels);
  stalls = metrics.counter("stator_adapter_stalls_total",
                           "times the engine stood still and lost its requests", labels);
  bytes = metrics.counter("stator_adapter_received_bytes_total", "bytes of the engine's answers",
                          labels);
  running_ = metrics.gauge("stator_engine_running_requests", "requests in the batch", labels);
  waiting_ =
      metrics.gauge("stator_engine_waiting_requests", "requests not yet in the batch", labels);
  kv_used_ = metrics.gauge("stator_engine_kv_blocks_used", "KV blocks held by requests", labels);
  kv_total_ = metrics.gauge("stator_engine_kv_blocks_total", "KV blocks of the engine", labels);
  asleep_ = metrics.gauge("stator_adapter_engine_asleep",
                          "1 while the engine sleeps and gets nothing", labels);
  up_ = metrics.gauge("stator_adapter_engine_up", "1 while the engine answers", labels);
}

void AdapterMetrics::update(const LoadReport& load) {
  running_.set(load.running);
  waiting_.set(load.waiting);
  kv_used_.set(load.kv_used_blocks);
  kv_total_.set(load.kv_total_blocks);
}

void AdapterMetrics::count_failure(Code code) {
  metrics_
      .counter("stator_adapter_failures_total",
               "requests that failed in or on the way to the engine",
               {{"engine", engine_}, {"code", std::string(describe(code).name)}})
      .add();
}

void AdapterMetrics::count_control(std::string_view what, bool done) {
  metrics_
      .counter(
          "stator_adapter_controls_total", "what operators asked of the engine",
          {{"engine", engine_}, {"what", std::string(what)}, {"outcome", done ? "done" : "failed"}})
      .add();
}

}  // namespace stator::engine::adapters
