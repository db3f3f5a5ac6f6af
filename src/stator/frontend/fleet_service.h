// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "stator/core/mutex.h"
#include "stator/runtime/quarantine.h"

namespace stator::frontend {

/// What all shards of a process have learned about the fleet. A lock around pure cores.
/// Thread-safe.
class FleetService {
 public:
  /// What is left of a fingerprint's quarantine; zero: none. Free of locks while nothing is in it.
  Duration quarantined(uint64_t fingerprint, TimePoint now);
  void quarantine(uint64_t fingerprint, TimePoint now);

 private:
  Mutex mutex_;
  runtime::Quarantine quarantine_ STATOR_GUARDED_BY(mutex_){runtime::Quarantine::Limits{}};
  std::atomic<bool> any_quarantined_{false};
};

}  // namespace stator::frontend
