// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/continuity/circuit_breaker.h"
#include "stator/continuity/quarantine.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/request/outcomes.h"
#include "stator/router/receipt_findings.h"

namespace stator::frontend {

using request::WorkOutcome;

/// What all shards of a process have learned about the fleet: a circuit breaker per worker, and
/// requests in quarantine. A lock around pure cores. Thread-safe; calls are short.
///
/// H1  At most half of a model's workers are suspended: beyond it failing ones are better than
/// none. H2  A draining worker is never resumed.
class FleetService {
 public:
  FleetService(Metrics& metrics, Random random);

  /// What the caller has to do to the worker's routing.
  enum class Change : uint8_t { kNone, kSuspend, kResume };

  /// A connected worker; told once per shard. Bounded by the workers there are.
  void joined(WorkerId worker, std::string_view model);
  void draining(WorkerId worker);
  void left(WorkerId worker);

  Change report(WorkerId worker, WorkOutcome outcome, TimePoint now);

  /// Suspended workers that may be probed now. Free of locks while nobody is suspended.
  std::vector<WorkerId> probes_due(TimePoint now);
  /// True for the one caller that is to probe it.
  bool take_probe(WorkerId worker, TimePoint now);
  /// True if nothing was heard of the worker for `idle` and the caller is to ask it.
  bool take_canary(WorkerId worker, Duration idle, TimePoint now);
  /// The outcome of either. Two failed canaries in a row suspend.
  Change probed(WorkerId worker, bool good, TimePoint now);

  /// What is left of a fingerprint's quarantine; zero: none. Free of locks while nothing is in it.
  Duration quarantined(uint64_t fingerprint, TimePoint now);
  /// Whether there is any; free of locks.
  bool any_quarantined() const { return any_quarantined_.load(std::memory_order_relaxed); }
  void quarantine(uint64_t fingerprint, TimePoint now);

  /// What engines found of prompts whose receipts claim more. Thread-safe itself.
  router::ReceiptFindings& findings() { return findings_; }

 private:
  struct Worker {
    std::string model;
    continuity::CircuitBreaker breaker{continuity::CircuitBreaker::Options{}};
    bool suspended = false;
    bool draining = false;
    uint32_t canaries_failed = 0;
    TimePoint heard{};
  };
  Change suspend(Worker& worker) STATOR_REQUIRES(mutex_);
  void count_suspended() STATOR_REQUIRES(mutex_);

  router::ReceiptFindings findings_;
  const Gauge suspended_workers_;
  const Counter transitions_;
  const Counter probes_good_;
  const Counter probes_bad_;

  Mutex mutex_;
  Random random_ STATOR_GUARDED_BY(mutex_);
  FlatMap<WorkerId, Worker> workers_ STATOR_GUARDED_BY(mutex_);
  continuity::Quarantine quarantine_ STATOR_GUARDED_BY(mutex_){continuity::Quarantine::Limits{}};
  std::atomic<bool> any_open_{false};
  std::atomic<bool> any_quarantined_{false};
};

}  // namespace stator::frontend
