// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_metrics.h"

#include <string>

namespace stator::engine {
namespace {

// From an unlimited simulation (microseconds) to a long prefill on a small CPU (seconds).
constexpr double kStepSeconds[] = {1e-5, 3e-5,  1e-4, 3e-4, 0.001, 0.002, 0.005, 0.01,
                                   0.02, 0.035, 0.05, 0.1,  0.2,   0.5,   1,     5};
constexpr double kStepTokens[] = {1,   2,   4,    8,    16,   32,   64,   128,
                                  256, 512, 1024, 2048, 4096, 8192, 16384};

}  // namespace

EngineMetrics::EngineMetrics(Metrics& metrics, std::string_view engine_name, size_t block_bytes)
    : kv_(metrics, engine_name, block_bytes) {
  const MetricLabels labels = {{"engine", std::string(engine_name)}};
  running_ = metrics.gauge("stator_engine_running_requests", "requests in the batch", labels);
  waiting_ =
      metrics.gauge("stator_engine_waiting_requests", "requests not yet in the batch", labels);
  kv_used_ = metrics.gauge("stator_engine_kv_blocks_used", "KV blocks held by requests", labels);
  kv_cached_ =
      metrics.gauge("stator_engine_kv_blocks_cached", "idle KV blocks that can be reused", labels);
  kv_total_ = metrics.gauge("stator_engine_kv_blocks_total", "KV blocks of the engine", labels);
  kept_prefixes_ = metrics.gauge("stator_engine_kept_prefixes",
                                 "prompts that are held because clients want them again", labels);
  host_stored_ = metrics.gauge("stator_engine_kv_host_blocks_stored",
                               "KV blocks that have a copy in host memory", labels);
  host_total_ = metrics.gauge("stator_engine_kv_host_blocks_total",
                              "KV blocks that fit into host memory", labels);
  host_offloaded_ = metrics.counter("stator_engine_kv_host_offloaded_blocks_total",
                                    "KV blocks copied to host memory when evicted", labels);
  host_loaded_ = metrics.counter("stator_engine_kv_host_loaded_blocks_total",
                                 "KV blocks copied back for a prompt", labels);
  host_dropped_ = metrics.counter("stator_engine_kv_host_dropped_blocks_total",
                                  "copies dropped from host memory for others", labels);
  hash_collisions_ =
      metrics.counter("stator_engine_kv_hash_collisions_total",
                      "KV blocks cached although the 64-bit hash that names them was another "
                      "block's: kept apart by their tokens; several are forged",
                      labels);
  preemptions_ =
      metrics.counter("stator_engine_preemptions_total",
                      "requests put back into the queue because KV blocks ran out", labels);
  prefix_hit_tokens_ = metrics.counter("stator_engine_prefix_cache_hit_tokens_total",
                                       "prompt tokens found in the prefix cache", labels);
  prefix_query_tokens_ = metrics.counter("stator_engine_prefix_cache_query_tokens_total",
                                         "prompt tokens looked up in the prefix cache", labels);
  computed_tokens_ = metrics.counter("stator_engine_computed_tokens_total",
                                     "token positions computed, recomputed ones again", labels);
  generated_tokens_ =
      metrics.counter("stator_engine_generated_tokens_total", "output tokens delivered", labels);
  finished_ = metrics.counter("stator_engine_finished_requests_total",
                              "requests that ended by a stop condition", labels);
  queue_wait_us_ = metrics.counter("stator_engine_queue_wait_microseconds_total",
                                   "time from submission to first admission, summed", labels);
  admitted_ = metrics.counter("stator_engine_admitted_requests_total",
                              "requests admitted into the batch for the first time", labels);
  step_seconds_ = metrics.histogram("stator_engine_step_seconds", "duration of one engine step",
                                    kStepSeconds, labels);
  step_tokens_ = metrics.histogram("stator_engine_step_tokens", "token positions computed per step",
                                   kStepTokens, labels);
}

void EngineMetrics::observe_step(uint32_t tokens, Duration took) {
  step_seconds_.observe(std::chrono::duration<double>(took).count());
  step_tokens_.observe(tokens);
}

void EngineMetrics::update(const LoadReport& load, const Scheduler& scheduler) {
  kv_.update(scheduler);
  const SchedulerTotals& totals = scheduler.totals();
  const kv::HostTier& host = scheduler.host_tier();
  running_.set(load.running);
  waiting_.set(load.waiting);
  kv_used_.set(load.kv_used_blocks);
  kept_prefixes_.set(static_cast<double>(scheduler.kept_prefixes().size()));
  kv_cached_.set(load.kv_cached_blocks);
  kv_total_.set(load.kv_total_blocks);
  host_stored_.set(host.stored_blocks());
  host_total_.set(host.total_blocks());
  const auto count = [](const Counter& counter, uint64_t now, uint64_t before) {
    if (now != before) {
      counter.add(now - before);
    }
  };
  const auto micros = [](Duration wait) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(wait).count());
  };
  count(preemptions_, totals.preemptions, counted_.preemptions);
  count(prefix_hit_tokens_, totals.prefix_hit_tokens, counted_.prefix_hit_tokens);
  count(prefix_query_tokens_, totals.prefix_query_tokens, counted_.prefix_query_tokens);
  count(computed_tokens_, totals.computed_tokens, counted_.computed_tokens);
  count(generated_tokens_, totals.generated_tokens, counted_.generated_tokens);
  count(finished_, totals.finished_requests, counted_.finished_requests);
  count(queue_wait_us_, micros(totals.queue_wait), micros(counted_.queue_wait));
  count(admitted_, totals.admitted_requests, counted_.admitted_requests);
  counted_ = totals;
  const HostTotals now{host.stored_total(), host.loaded_total(), host.dropped_total()};
  count(host_offloaded_, now.offloaded, host_counted_.offloaded);
  count(host_loaded_, now.loaded, host_counted_.loaded);
  count(host_dropped_, now.dropped, host_counted_.dropped);
  host_counted_ = now;
  const uint64_t collisions = scheduler.pool().collisions_total();
  count(hash_collisions_, collisions, collisions_counted_);
  collisions_counted_ = collisions;
}

}  // namespace stator::engine
