// SPDX-License-Identifier: Apache-2.0
// The part of ShardService that finds out which workers work: outcomes, probes, silence.
#include <algorithm>
#include <utility>
#include <vector>

#include "stator/frontend/shard_service.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;

// For a probe's only token.
constexpr Duration kProbeTimeout = 3s;

}  // namespace

void ShardService::heard_from(WorkerId worker) {
  heard_[worker] = shard_.now();
}

void ShardService::report(WorkerId worker, WorkOutcome outcome) {
  apply(worker, environment_.fleet.report(worker, outcome, shard_.now()));
}

void ShardService::apply(WorkerId worker, FleetService::Change change) {
  if (change != FleetService::Change::kNone) {
    environment_.catalog.set_suspended(worker, change == FleetService::Change::kSuspend);
  }
}

/// Of the first task that the model has.
engine::PoolRequest probe_of(const engine::PoolAbility& ability) {
  engine::PoolRequest pool{.lengths = {1}};
  for (size_t i = 0; i < engine::kPoolTaskCount; ++i) {
    pool.task = static_cast<engine::PoolTask>(i);
    if (ability.tasks.has(pool.task)) {
      break;
    }
  }
  if (ability.wants_text) {
    pool.texts = {"a"};
  }
  return pool;
}

/// A request as small as can be, beside router and leases: one token in, one out.
void ShardService::send_probe(WorkerId worker) {
  session::WorkerSession* session = pool_->find_session(worker);
  if (session == nullptr) {
    apply(worker, environment_.fleet.probed(worker, false, shard_.now()));
    return;
  }
  engine::EngineRequest request;
  request.key = {RequestId(++next_request_), Attempt(0)};
  request.tokens = {0};
  request.sampling.temperature = 0;
  request.stop = {.max_tokens = 1, .ignore_eos = true};
  if (const discovery::InstanceRecord* record = pool_->find_record(worker);
      record != nullptr && !record->model.pool.generates) {
    request.pool = probe_of(record->model.pool);
  }
  request.deadline_ms = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(kProbeTimeout).count());
  probes_.emplace(request.key.request, Probe{.worker = worker, .sent = shard_.now()});
  session->submit(std::move(request));
}

/// True if `request` is a probe.
bool ShardService::end_probe(RequestId request, bool good) {
  const auto found = probes_.find(request);
  if (found == probes_.end()) {
    return false;
  }
  const WorkerId worker = found->second.worker;
  probes_.erase(found);
  apply(worker, environment_.fleet.probed(worker, good, shard_.now()));
  return true;
}

void ShardService::end_probes_of(WorkerId worker) {
  std::vector<RequestId> ended;
  for (const auto& [id, probe] : probes_) {
    if (probe.worker == worker) {
      ended.push_back(id);
    }
  }
  for (const RequestId id : ended) {
    end_probe(id, false);
  }
}

void ShardService::probe_workers(TimePoint now) {
  std::vector<RequestId> late;
  for (const auto& [id, probe] : probes_) {
    if (now - probe.sent >= kProbeTimeout) {
      late.push_back(id);
    }
  }
  std::ranges::sort(late);
  for (const RequestId id : late) {
    if (auto* session = pool_->find_session(probes_.at(id).worker)) {
      session->cancel({id, Attempt(0)}, session::CancelReason::kDeadline);
    }
    end_probe(id, false);
  }
  for (const WorkerId worker : environment_.fleet.probes_due(now)) {
    if (pool_->find_session(worker) != nullptr && environment_.fleet.take_probe(worker, now)) {
      send_probe(worker);
    }
  }
  const Duration idle = environment_.config.canary_interval;
  if (idle > Duration::zero()) {
    std::vector<WorkerId> silent;
    for (const auto& [worker, heard] : heard_) {
      if (environment_.fleet.take_canary(worker, idle, now)) {
        silent.push_back(worker);
      }
    }
    std::ranges::sort(silent);
    std::ranges::for_each(silent, [this](WorkerId worker) { send_probe(worker); });
  }
}

void ShardService::on_worker_added(const discovery::InstanceRecord& record) {
  environment_.fleet.joined(record.key.worker, record.model.name);
  metrics_.describe_model(record.model, environment_.config.migration_limit);
  if (environment_.worker_gauges != nullptr) {
    const bool prefills = record.model.handoff.role == engine::WorkerRole::kPrefill;
    environment_.worker_gauges->joined(record.key.worker, prefills ? "prefill" : "decode");
  }
  heard_from(record.key.worker);
  environment_.catalog.add_worker(record);
  unpark_all();
}

void ShardService::on_worker_updated(const discovery::InstanceRecord& record) {
  if (record.state == discovery::InstanceState::kDraining) {
    environment_.fleet.draining(record.key.worker);
    environment_.catalog.set_draining(record.key.worker);
  } else if (record.state == discovery::InstanceState::kStarting) {
    environment_.catalog.set_engine_lost(record.key.worker);  // until a record says it is back
    lose_giver(record.key.worker, Error(Code::kUnavailable, "the prefill worker's engine is gone"));
  } else {
    environment_.catalog.add_worker(record);
  }
}

void ShardService::on_worker_removed(WorkerId worker) {
  heard_.erase(worker);
  environment_.fleet.left(worker);
  if (environment_.worker_gauges != nullptr) {
    environment_.worker_gauges->left(worker);
  }
  environment_.catalog.remove_worker(worker);
}

}  // namespace stator::frontend
