// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/worker_lines.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace stator::frontend {

WorkerLines::WorkerLines(net::Shard& shard, Environment environment, Random& random)
    : shard_(shard),
      environment_(environment),
      // Unique over shards and, in all likelihood, over restarts: workers key on it.
      next_request_((random.next() << 24) & 0x001FFFFFFF000000ULL) {}

void WorkerLines::start(session::WorkerPoolOptions options,
                        const session::WorkerPool::Wiring& wiring, Owner& owner, Metrics& metrics) {
  owner_ = &owner;
  pool_ = std::make_unique<session::WorkerPool>(std::move(options), wiring, metrics);
}

void WorkerLines::cancel(WorkerId worker, inference::RequestKey key, session::CancelReason reason) {
  if (session::WorkerSession* session = find_session(worker)) {
    session->cancel(key, reason);
  }
}

void WorkerLines::report_outcome(WorkerId worker, WorkOutcome outcome) {
  apply(worker, environment_.fleet.report(worker, outcome, shard_.now()));
}

void WorkerLines::apply(WorkerId worker, FleetService::Change change) {
  if (change != FleetService::Change::kNone) {
    environment_.catalog.set_suspended(worker, change == FleetService::Change::kSuspend);
  }
}

/// Beside router and leases.
void WorkerLines::send_probe(WorkerId worker) {
  session::WorkerSession* session = find_session(worker);
  if (session == nullptr) {
    apply(worker, environment_.fleet.probed(worker, false, shard_.now()));
    return;
  }
  const discovery::InstanceRecord* record = find_record(worker);
  const bool pools = record != nullptr && !record->model.pool.generates;
  session->submit(
      probes_.begin(next_request(), worker, pools ? &record->model.pool : nullptr, shard_.now()));
}

bool WorkerLines::end_probe(RequestId request, bool good) {
  const auto worker = probes_.end(request);
  if (worker) {
    apply(*worker, environment_.fleet.probed(*worker, good, shard_.now()));
  }
  return worker.has_value();
}

void WorkerLines::probe(TimePoint now) {
  for (const auto& [id, worker] : probes_.late(now)) {
    cancel(worker, {id, Attempt(0)}, session::CancelReason::kDeadline);
    end_probe(id, false);
  }
  FleetService& fleet = environment_.fleet;
  for (const WorkerId worker : fleet.probes_due(now)) {
    if (find_session(worker) != nullptr && fleet.take_probe(worker, now)) {
      send_probe(worker);
    }
  }
  const Duration idle = environment_.config.canary_interval;
  if (idle > Duration::zero()) {
    for (const WorkerId worker : probes_.connected()) {
      if (fleet.take_canary(worker, idle, now)) {
        send_probe(worker);
      }
    }
  }
}

void WorkerLines::on_draining(WorkerId worker) {
  environment_.fleet.draining(worker);
  environment_.catalog.set_draining(worker);
}

void WorkerLines::on_closed(WorkerId worker) {
  environment_.catalog.remove_worker(worker);
  for (size_t ended = probes_.end_of(worker); ended > 0; --ended) {
    apply(worker, environment_.fleet.probed(worker, false, shard_.now()));
  }
}

void WorkerLines::on_worker_added(const discovery::InstanceRecord& record) {
  const WorkerId worker = record.key.worker;
  environment_.fleet.joined(worker, record.model.name);
  environment_.metrics.describe_model(record.model, environment_.config.migration_limit);
  if (environment_.gauges != nullptr) {
    const bool prefills = record.model.handoff.role == inference::WorkerRole::kPrefill;
    environment_.gauges->joined(worker, prefills ? "prefill" : "decode");
  }
  heard_from(worker);
  environment_.catalog.add_worker(record);
  owner_->on_worker_joined();
}

void WorkerLines::on_worker_updated(const discovery::InstanceRecord& record) {
  if (record.state == discovery::InstanceState::kDraining) {
    on_draining(record.key.worker);
  } else if (record.state == discovery::InstanceState::kStarting) {
    environment_.catalog.set_engine_lost(record.key.worker);  // until a record says it is back
    owner_->on_engine_lost(record.key.worker);
  } else {
    environment_.catalog.add_worker(record);
  }
}

void WorkerLines::on_worker_removed(WorkerId worker) {
  probes_.forget(worker);
  environment_.fleet.left(worker);
  if (environment_.gauges != nullptr) {
    environment_.gauges->left(worker);
  }
  environment_.catalog.remove_worker(worker);
}

}  // namespace stator::frontend
