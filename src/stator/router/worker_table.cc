// SPDX-License-Identifier: Apache-2.0
#include "stator/router/worker_table.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stator::router {

void WorkerTable::add(WorkerKey key, LoadSlot slot, WorkerFacts facts) {
  const auto at = std::ranges::lower_bound(workers_, key, {}, &Worker::key);
  // Order must not depend on who joined first: round robin and receipts stay comparable.
  workers_.insert(at, {.key = key, .slot = slot, .facts = std::move(facts)});
  stale_ = true;
}

std::optional<LoadSlot> WorkerTable::remove(WorkerKey key) {
  const Worker* known = find(key);
  if (known == nullptr) {
    return std::nullopt;
  }
  const LoadSlot slot = known->slot;
  workers_.erase(workers_.begin() + (known - workers_.data()));
  stale_ = true;
  return slot;
}

WorkerTable::Worker* WorkerTable::find(WorkerKey key) {
  const auto at = std::ranges::lower_bound(workers_, key, {}, &Worker::key);
  return at == workers_.end() || at->key != key ? nullptr : &*at;
}

void WorkerTable::set_draining(WorkerKey key, bool draining) {
  if (Worker* known = find(key)) {
    known->draining = draining;
    stale_ = true;
  }
}

void WorkerTable::refresh() const {
  if (!stale_) {
    return;
  }
  stale_ = false;
  ready_.clear();
  ready_by_slot_.clear();
  positions_.clear();
  positions_.reserve(workers_.size());
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    positions_.emplace(workers_[i].key, i);
    if (!workers_[i].draining) {
      const LoadSlot slot = workers_[i].slot;
      ready_by_slot_.resize(std::max<size_t>(ready_by_slot_.size(), slot + 1), kNotReady);
      ready_by_slot_[slot] = static_cast<uint32_t>(ready_.workers.size());
      ready_.push(i, workers_[i]);
    }
  }
}

std::optional<uint32_t> WorkerTable::position(WorkerKey key) const {
  refresh();
  const auto known = positions_.find(key);
  return known == positions_.end() ? std::nullopt : std::optional(known->second);
}

const WorkerTable::Rows& WorkerTable::ready() const {
  refresh();
  return ready_;
}

std::string_view describe(Exclusion exclusion) {
  static constexpr std::array<std::string_view, 7> kTexts = {"",
                                                             "not among the workers the request "
                                                             "allows",
                                                             "draining",
                                                             "request names another worker",
                                                             "tried already",
                                                             "lacks a required taint",
                                                             "beyond the busy thresholds"};
  return kTexts[static_cast<size_t>(exclusion)];
}

Exclusion WorkerTable::exclusion(const Worker& worker, const RouteConstraints& constraints) {
  if (!constraints.allowed.empty() &&
      std::ranges::find(constraints.allowed, worker.key.worker) == constraints.allowed.end()) {
    return Exclusion::kNotAllowed;
  }
  if (worker.draining) {
    return Exclusion::kDraining;
  }
  if ((constraints.pinned && *constraints.pinned != worker.key.worker) ||
      (constraints.pinned_rank && *constraints.pinned_rank != worker.key.dp_rank)) {
    return Exclusion::kNotNamed;
  }
  // Its other ranks are the same process.
  if (std::ranges::find(constraints.excluded, worker.key.worker, &WorkerKey::worker) !=
      constraints.excluded.end()) {
    return Exclusion::kTried;
  }
  for (const std::string& taint : constraints.required_taints) {
    if (std::ranges::find(worker.facts.taints, taint) == worker.facts.taints.end()) {
      return Exclusion::kTaint;
    }
  }
  return Exclusion::kNone;
}

void WorkerTable::filter(const RouteConstraints& constraints, Rows& out) const {
  out.clear();
  const auto consider = [&](uint32_t i) {
    if (exclusion(workers_[i], constraints) == Exclusion::kNone) {
      out.push(i, workers_[i]);
    }
  };
  if (constraints.pinned) {
    // Ranks of one worker are neighbours.
    const auto first =
        std::ranges::lower_bound(workers_, WorkerKey{*constraints.pinned, 0}, {}, &Worker::key);
    for (auto at = first; at != workers_.end() && at->key.worker == *constraints.pinned; ++at) {
      consider(static_cast<uint32_t>(at - workers_.begin()));
    }
    return;
  }
  for (const uint32_t i : ready().workers) {
    consider(i);
  }
}

double taint_factor(std::span<const std::string> taints,
                    std::span<const std::pair<std::string, float>> preferred) {
  double weight = 0;
  for (const auto& [name, value] : preferred) {
    if (std::ranges::find(taints, name) != taints.end()) {
      weight += value;
    }
  }
  return std::exp(-std::tanh(weight));
}

}  // namespace stator::router
