// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/fleet_service.h"

#include <algorithm>
#include <utility>

#include "stator/core/log.h"

namespace stator::frontend {
namespace {

using State = continuity::CircuitBreaker::State;

constexpr uint32_t kCanariesMax = 2;  // failed in a row

}  // namespace

FleetService::FleetService(Metrics& metrics, Random random)
    : suspended_workers_(metrics.gauge("stator_frontend_suspended_workers",
                                       "workers that get no work because theirs kept failing")),
      transitions_(metrics.counter("stator_frontend_breaker_transitions_total",
                                   "workers suspended and resumed")),
      probes_good_(
          metrics.counter("stator_frontend_canary_success_total", "probes that workers answered")),
      probes_bad_(metrics.counter("stator_frontend_canary_failure_total",
                                  "probes that workers failed or did not answer")),
      random_(std::move(random)) {}

void FleetService::joined(WorkerId worker, std::string_view model) {
  const MutexLock lock(mutex_);
  workers_.try_emplace(worker).first->second.model = model;
}

void FleetService::draining(WorkerId worker) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  if (found != workers_.end()) {
    found->second.draining = true;
  }
}

void FleetService::left(WorkerId worker) {
  const MutexLock lock(mutex_);
  workers_.erase(worker);
  count_suspended();
}

void FleetService::count_suspended() {
  double count = 0;
  bool open = false;
  for (const auto& [id, worker] : workers_) {
    count += worker.suspended ? 1 : 0;
    open = open || worker.breaker.state() != State::kClosed;
  }
  suspended_workers_.set(count);
  any_open_.store(open, std::memory_order_relaxed);
}

/// The breaker has opened; H1 decides whether that counts.
FleetService::Change FleetService::suspend(Worker& worker) {
  size_t total = 0;
  size_t suspended = 1;
  for (const auto& [id, other] : workers_) {
    total += other.model == worker.model ? 1 : 0;
    suspended += other.model == worker.model && other.suspended ? 1 : 0;
  }
  const bool enough_left = suspended * 2 <= total;
  if (enough_left && !worker.suspended) {
    worker.suspended = true;
    transitions_.add();
    count_suspended();
    return Change::kSuspend;
  }
  count_suspended();
  return Change::kNone;
}

FleetService::Change FleetService::report(WorkerId id, WorkOutcome outcome, TimePoint now) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(id);
  if (found == workers_.end()) {
    return Change::kNone;
  }
  Worker& worker = found->second;
  const State before = worker.breaker.state();
  switch (outcome) {
    case WorkOutcome::kServed:
      worker.heard = now;
      worker.canaries_failed = 0;
      worker.breaker.succeeded(now);
      break;
    case WorkOutcome::kFailed:
      worker.breaker.failed(now, random_);
      break;
    case WorkOutcome::kHung:
      worker.breaker.hung(now, random_);
      break;
  }
  const bool opened = before == State::kClosed && worker.breaker.state() == State::kOpen;
  if (opened) {
    log::warn("frontend", "a worker keeps failing", {{"worker", id.value()}});
  }
  return opened ? suspend(worker) : Change::kNone;
}

std::vector<WorkerId> FleetService::probes_due(TimePoint now) {
  std::vector<WorkerId> due;
  if (!any_open_.load(std::memory_order_relaxed)) {
    return due;
  }
  const MutexLock lock(mutex_);
  for (const auto& [id, worker] : workers_) {
    if (worker.breaker.state() != State::kClosed && now >= worker.breaker.open_until()) {
      due.push_back(id);
    }
  }
  std::ranges::sort(due);
  return due;
}

bool FleetService::take_probe(WorkerId id, TimePoint now) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(id);
  return found != workers_.end() && found->second.breaker.take_probe(now);
}

bool FleetService::take_canary(WorkerId id, Duration idle, TimePoint now) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(id);
  if (found == workers_.end() || found->second.breaker.state() != State::kClosed ||
      now - found->second.heard < idle) {
    return false;
  }
  found->second.heard = now;  // the next one has its time again, whatever becomes of this one
  return true;
}

FleetService::Change FleetService::probed(WorkerId id, bool good, TimePoint now) {
  (good ? probes_good_ : probes_bad_).add();
  const MutexLock lock(mutex_);
  const auto found = workers_.find(id);
  if (found == workers_.end()) {
    return Change::kNone;
  }
  Worker& worker = found->second;
  worker.canaries_failed = good ? 0 : worker.canaries_failed + 1;
  if (worker.breaker.state() == State::kClosed) {
    if (worker.canaries_failed < kCanariesMax) {
      return Change::kNone;
    }
    worker.breaker.hung(now, random_);
    return suspend(worker);
  }
  const bool closed = worker.breaker.probed(good, now, random_);
  count_suspended();
  if (!closed || !std::exchange(worker.suspended, false)) {
    return Change::kNone;
  }
  transitions_.add();
  count_suspended();
  log::info("frontend", "a worker works again", {{"worker", id.value()}});
  return worker.draining ? Change::kNone : Change::kResume;
}

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
