// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/preparation_queue.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/keyed_hash.h"
#include "stator/frontend/media_prompt.h"
#include "stator/frontend/request_record.h"

namespace stator::frontend {
namespace {

net::ComputePool::Priority priority_of(TextRequest kind) {
  return generates(kind) ? net::ComputePool::Priority::kRequest
                         : net::ComputePool::Priority::kBackground;
}

/// Whose turn it is when several wait: the tenant's, else that of whoever connects from there.
net::WorkClient client_of(net::HttpExchange& exchange, const PrepareJob& job,
                          const FrontendConfig& config) {
  std::string_view tenant = tenant_of(job.http);
  if (tenant.empty() && config.trusts_header_hints()) {
    tenant = job.http.header("x-tenant-id").value_or("");
  }
  const std::string name =
      tenant.empty() ? exchange.client_address() : "tenant " + std::string(tenant);
  return name.empty() ? 0 : std::max<net::WorkClient>(keyed_hash(name), 1);
}

}  // namespace

PreparationQueue::PreparationQueue(net::Shard& shard, net::ComputePool& pool,
                                   PrepareEnvironment environment, PreparationListener& listener)
    : shard_(shard), pool_(pool), environment_(environment), listener_(listener) {}

PreparationQueue::~PreparationQueue() {
  STATOR_ASSERT(waiting_.empty(), "D1: fail_all() comes before the end");
}

void PreparationQueue::submit(net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job) {
  if (job->body.size() <= environment_.config.inline_body_bytes_max) {
    run_job(*job, environment_);
    if (job->wants_media()) {
      fetch(keep(++last_id_, exchange, std::move(job)));
    } else {
      listener_.on_prepared(exchange, *job);
    }
    return;
  }
  const uint64_t id = ++last_id_;
  Status taken = run_later(id, job, client_of(exchange, *job, environment_.config));
  if (!taken) {
    job->outcome = api::ApiError(std::move(taken.error()));
    listener_.on_prepared(exchange, *job);
    return;
  }
  keep(id, exchange, std::move(job));
}

Status PreparationQueue::run_later(uint64_t id, const std::shared_ptr<PrepareJob>& job,
                                   net::WorkClient client) {
  return pool_.submit({.priority = priority_of(job->route.kind),
                       .bytes = job->body.size(),
                       .client = client,
                       .run = [this, id, job] {
                         run_job(*job, environment_);
                         // A message that a full inbox refuses is made up for by sweep().
                         static_cast<void>(shard_.post([this, id] { collect(id); }));
                       }});
}

PreparationQueue::Waiting& PreparationQueue::keep(uint64_t id, net::HttpExchange& exchange,
                                                  std::shared_ptr<PrepareJob> job) {
  auto waiting = std::make_unique<Waiting>();
  waiting->queue = this;
  waiting->id = id;
  waiting->exchange = &exchange;
  waiting->job = std::move(job);
  exchange.set_observer(waiting.get());
  Waiting& kept = *waiting;
  waiting_.emplace(id, std::move(waiting));
  return kept;
}

/// The job waits for what its request names; then it is run again.
void PreparationQueue::fetch(Waiting& waiting) {
  const std::shared_ptr<PrepareJob>& job = waiting.job;
  job->done.store(false, std::memory_order_relaxed);
  waiting.load = environment_.fetcher->load(
      std::exchange(job->wanted, {}), [this, id = waiting.id, job](auto blobs) {
        if (blobs) {
          job->fetched = std::move(*blobs);
        } else {
          job->outcome = to_api_error(std::move(blobs.error()));
          job->resume = nullptr;
        }
        job->done.store(true, std::memory_order_release);
        static_cast<void>(shard_.post([this, id] { collect(id); }));
      });
}

void PreparationQueue::give_up(Waiting& waiting) {
  waiting.job->cancel.cancel();
  if (waiting.load) {
    environment_.fetcher->cancel(*waiting.load);
  }
}

std::unique_ptr<PreparationQueue::Waiting> PreparationQueue::take(uint64_t id) {
  const auto known = waiting_.find(id);
  if (known == waiting_.end()) {
    return nullptr;  // the client left, or fail_all() answered
  }
  auto waiting = std::move(known->second);
  waiting_.erase(known);
  return waiting;
}

void PreparationQueue::collect(uint64_t id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end() || !found->second->job->done.load(std::memory_order_acquire)) {
    return;  // the client left, or what this message told was seen by sweep()
  }
  Waiting& waiting = *found->second;
  if (waiting.load && waiting.job->resume) {
    waiting.load.reset();
    waiting.job->done.store(false, std::memory_order_relaxed);
    Status taken =
        run_later(id, waiting.job, client_of(*waiting.exchange, *waiting.job, environment_.config));
    if (taken) {
      return;
    }
    waiting.job->outcome = api::ApiError(std::move(taken.error()));
  } else if (waiting.job->wants_media()) {
    fetch(waiting);
    return;
  }
  const auto owned = take(id);
  owned->exchange->set_observer(nullptr);
  listener_.on_prepared(*owned->exchange, *owned->job);
}

void PreparationQueue::client_gone(uint64_t id) {
  const auto waiting = take(id);
  give_up(*waiting);
  listener_.on_client_left(*waiting->job);
}

void PreparationQueue::sweep() {
  std::vector<uint64_t> done;
  for (const auto& [id, waiting] : waiting_) {
    if (waiting->job->done.load(std::memory_order_acquire)) {
      done.push_back(id);
    }
  }
  for (const uint64_t id : done) {
    collect(id);
  }
}

void PreparationQueue::fail_all(const Error& error) {
  while (!waiting_.empty()) {
    const auto waiting = take(waiting_.begin()->first);
    give_up(*waiting);
    waiting->exchange->set_observer(nullptr);
    // The job itself may still be with a thread (J1): its place is taken by an answer of ours.
    PrepareJob failed;
    failed.route = waiting->job->route;
    failed.request_id = waiting->job->request_id;
    failed.outcome = api::ApiError(error.clone());
    listener_.on_prepared(*waiting->exchange, failed);
  }
}

}  // namespace stator::frontend
