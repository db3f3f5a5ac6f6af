// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router_service.h"

#include <array>

namespace stator::router {

void describe(ConfigSchema& schema, RouterConfig& config) {
  schema.choice("router.mode", config.mode, policy_names(), "how a worker is chosen",
                {.flag = "router", .env_peer = "DYN_ROUTER_MODE"});
  schema.number("router.temperature", config.cost.temperature, 0, 100,
                "softmax temperature over costs, 0 = always the cheapest",
                {.env_peer = "DYN_ROUTER_TEMPERATURE"});
  schema.number("router.overlap_credit", config.cost.overlap_credit, 0, 1000,
                "what one cached block is worth against one block of load");
  schema.number("router.prefill_load_scale", config.cost.prefill_load_scale, 0, 1000,
                "weight of prompt tokens that must be computed");
  schema.number("router.active_request_weight", config.cost.active_request_weight, 0, 1000,
                "extra cost of a worker per running request, in blocks");
  schema.integer("router.index_blocks_max", config.index_blocks_max, 1024, 1ULL << 32,
                 "bound of the KV index in (block, holder) pairs, about 100 bytes each");
}

Result<std::unique_ptr<RouterService>> RouterService::create(const RouterConfig& config,
                                                             const Clock& clock, Metrics& metrics,
                                                             ReceiptLog& receipts) {
  STATOR_TRY(auto router, Router::create(config, Random::from_entropy()));
  return std::unique_ptr<RouterService>(
      new RouterService(std::move(router), clock, metrics, receipts));
}

RouterService::RouterService(std::unique_ptr<Router> router, const Clock& clock, Metrics& metrics,
                             ReceiptLog& receipts)
    : clock_(clock),
      receipts_(receipts),
      router_(std::move(router)),
      decisions_(metrics.counter("stator_router_decisions_total", "requests routed to a worker")),
      refusals_(metrics.counter("stator_router_refusals_total", "requests no worker could take")),
      overlap_blocks_(metrics.counter("stator_router_overlap_blocks_total",
                                      "prompt blocks already cached on the chosen worker")),
      prompt_blocks_(
          metrics.counter("stator_router_prompt_blocks_total", "full prompt blocks routed")),
      index_blocks_(
          metrics.gauge("stator_router_index_blocks", "(block, holder) pairs in the KV index")) {
  static constexpr std::array<const char*, 5> kStatus = {
      "ok", "parent_block_not_found", "block_not_found", "ignored_tier", "over_budget"};
  for (size_t i = 0; i < kStatus.size(); ++i) {
    applied_[i] = metrics.counter("stator_router_kv_events_total",
                                  "KV events by what became of them", {{"status", kStatus[i]}});
  }
}

void RouterService::add_worker(WorkerKey worker) {
  const MutexLock lock(mutex_);
  router_->add_worker(worker);
}

void RouterService::remove_worker(WorkerKey worker) {
  const MutexLock lock(mutex_);
  router_->remove_worker(worker);
  index_blocks_.set(static_cast<double>(router_->index().holder_blocks()));
}

void RouterService::set_draining(WorkerKey worker, bool draining) {
  const MutexLock lock(mutex_);
  router_->set_draining(worker, draining);
}

void RouterService::apply(WorkerKey worker, const kv::KvEvent& event) {
  const MutexLock lock(mutex_);
  applied_[static_cast<size_t>(router_->apply(worker, event))].add();
  index_blocks_.set(static_cast<double>(router_->index().holder_blocks()));
}

Result<Decision> RouterService::route(const RouteRequest& request) {
  Result<Decision> decision = [&] {
    const MutexLock lock(mutex_);
    return router_->route(request, clock_.wall_now());
  }();
  if (!decision) {
    refusals_.add();
    return decision;
  }
  decisions_.add();
  overlap_blocks_.add(decision->overlap_blocks);
  prompt_blocks_.add(request.sequences.size());
  receipts_.add(std::move(decision->receipt));
  return decision;
}

int64_t RouterService::active_requests() const {
  const MutexLock lock(mutex_);
  return router_->active_requests();
}

size_t RouterService::worker_count() const {
  const MutexLock lock(mutex_);
  return router_->worker_count();
}

}  // namespace stator::router
