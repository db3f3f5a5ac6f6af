// SPDX-License-Identifier: Apache-2.0
#include "stator/request/worker_probes.h"

#include <algorithm>

namespace stator::request {
namespace {

/// Of the first task that the model has.
inference::PoolRequest probe_of(const inference::PoolAbility& ability) {
  inference::PoolRequest pool{.lengths = {1}};
  for (size_t i = 0; i < inference::kPoolTaskCount; ++i) {
    pool.task = static_cast<inference::PoolTask>(i);
    if (ability.tasks.has(pool.task)) {
      break;
    }
  }
  if (ability.wants_text) {
    pool.texts = {"a"};
  }
  return pool;
}

}  // namespace

std::optional<TimePoint> WorkerProbes::last_heard(WorkerId worker) const {
  const auto found = heard_.find(worker);
  return found == heard_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<WorkerId> WorkerProbes::connected() const {
  std::vector<WorkerId> workers;
  workers.reserve(heard_.size());
  for (const auto& [worker, heard] : heard_) {
    workers.push_back(worker);
  }
  std::ranges::sort(workers);
  return workers;
}

inference::EngineRequest WorkerProbes::begin(RequestId id, WorkerId worker,
                                             const inference::PoolAbility* pool, TimePoint now) {
  inference::EngineRequest request;
  request.key = {id, Attempt(0)};
  request.tokens = {0};
  request.sampling.temperature = 0;
  request.stop = {.max_tokens = 1, .ignore_eos = true};
  if (pool != nullptr) {
    request.pool = probe_of(*pool);
  }
  request.deadline_ms = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(kTimeout).count());
  probes_.emplace(id, Probe{.worker = worker, .sent = now});
  return request;
}

std::optional<WorkerId> WorkerProbes::end(RequestId id) {
  const auto found = probes_.find(id);
  if (found == probes_.end()) {
    return std::nullopt;
  }
  const WorkerId worker = found->second.worker;
  probes_.erase(found);
  return worker;
}

size_t WorkerProbes::end_of(WorkerId worker) {
  std::vector<RequestId> ended;
  for (const auto& [id, probe] : probes_) {
    if (probe.worker == worker) {
      ended.push_back(id);
    }
  }
  for (const RequestId id : ended) {
    probes_.erase(id);
  }
  return ended.size();
}

std::vector<WorkerProbes::Late> WorkerProbes::late(TimePoint now) const {
  std::vector<Late> late;
  for (const auto& [id, probe] : probes_) {
    if (now - probe.sent >= kTimeout) {
      late.push_back({id, probe.worker});
    }
  }
  std::ranges::sort(late, {}, &Late::id);
  return late;
}

}  // namespace stator::request
