// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/fleet_service.h"

namespace stator::frontend {

Duration FleetService::quarantined(uint64_t fingerprint, TimePoint now) {
  if (!any_quarantined_.load(std::memory_order_relaxed)) {
    return Duration::zero();
  }
  const MutexLock lock(mutex_);
  const Duration left = quarantine_.left(fingerprint, now);
  any_quarantined_.store(quarantine_.size() > 0, std::memory_order_relaxed);
  return left;
}

void FleetService::quarantine(uint64_t fingerprint, TimePoint now) {
  const MutexLock lock(mutex_);
  quarantine_.add(fingerprint, now);
  any_quarantined_.store(true, std::memory_order_relaxed);
}

}  // namespace stator::frontend
