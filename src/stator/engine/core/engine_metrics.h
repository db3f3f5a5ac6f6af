// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/engine/core/kv_metrics.h"
#include "stator/engine/core/scheduler.h"

namespace stator::engine {

/// The stator_engine_* series of one engine. Used by the engine's thread.
class EngineMetrics {
 public:
  /// `block_bytes`: of one KV block; 0: a model without KV bytes.
  EngineMetrics(Metrics& metrics, std::string_view engine_name, size_t block_bytes);

  /// After a step that computed `tokens` in `took`.
  void observe_step(uint32_t tokens, Duration took);
  /// Brings gauges and counters up to the scheduler's state.
  void update(const LoadReport& load, const Scheduler& scheduler);

 private:
  KvMetrics kv_;
  Gauge running_;
  Gauge waiting_;
  Gauge kv_used_;
  Gauge kv_cached_;
  Gauge kv_total_;
  Gauge kept_prefixes_;
  Gauge host_stored_;
  Gauge host_total_;
  Counter host_offloaded_;
  Counter host_loaded_;
  Counter host_dropped_;
  Counter hash_collisions_;
  Counter preemptions_;
  Counter prefix_hit_tokens_;
  Counter prefix_query_tokens_;
  Counter computed_tokens_;
  Counter generated_tokens_;
  Counter finished_;
  Counter queue_wait_us_;
  Counter admitted_;
  Histogram step_seconds_;
  Histogram step_tokens_;
  SchedulerTotals counted_;  // what the counters have seen
  struct HostTotals {
    uint64_t offloaded = 0;
    uint64_t loaded = 0;
    uint64_t dropped = 0;
  } host_counted_;
  uint64_t collisions_counted_ = 0;
};

}  // namespace stator::engine
