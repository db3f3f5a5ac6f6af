// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>

#include "stator/core/metrics.h"
#include "stator/engine/core/scheduler.h"

namespace stator::engine {

/// The stator_kv_* series of one engine's device and host tiers, and the kvbm_* names that
/// dashboards of NVIDIA Dynamo ask for. Used by the engine's thread.
class KvMetrics {
 public:
  /// `block_bytes`: of one KV block; 0: a model without KV bytes.
  KvMetrics(Metrics& metrics, std::string_view engine_name, size_t block_bytes);

  /// Brings them up to the scheduler's state.
  void update(const Scheduler& scheduler);

 private:
  /// A count that somebody else keeps, as a counter.
  struct Follower {
    Counter counter;
    uint64_t seen = 0;
    void follow(uint64_t now) {
      if (now != seen) {
        counter.add(now - seen);
        seen = now;
      }
    }
  };
  struct Tier {
    Gauge blocks;
    Gauge blocks_max;
    Gauge bytes;
    Gauge hit_ratio;
    Follower matched_tokens;
  };
  /// Totals when a request was admitted.
  struct Mark {
    uint64_t requests = 0;
    uint64_t asked = 0;
    uint64_t device = 0;
    uint64_t host = 0;
  };
  static constexpr uint64_t kWindowRequests = 1000;

  void update_ratios(const SchedulerTotals& totals);

  const size_t block_bytes_;
  Tier device_;
  Tier host_;
  Gauge free_;
  Gauge inactive_;
  Gauge used_;
  Follower allocations_;
  Follower from_free_;
  Follower evictions_;
  Follower host_evictions_;
  Follower registrations_;
  Follower duplicates_;
  Follower asked_;
  Follower returned_;
  Follower offloaded_;
  Follower onboarded_;
  Follower kvbm_offloaded_;
  Follower kvbm_onboarded_;
  Follower kvbm_matched_;
  Gauge kvbm_host_ratio_;
  std::deque<Mark> marks_;  // at most kWindowRequests + 1
};

}  // namespace stator::engine
