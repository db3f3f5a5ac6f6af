// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router_service.h"

#include <utility>

#include "stator/router/index/index_service.h"

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
  describe(schema, config.index);
}

Result<std::unique_ptr<RouterService>> RouterService::create(const RouterConfig& config,
                                                             const Clock& clock, Metrics& metrics,
                                                             ReceiptLog& receipts) {
  STATOR_TRY(std::unique_ptr<KvIndex> index, IndexService::create(config.index, clock, metrics));
  KvIndex& shared = *index;
  STATOR_TRY(auto router, Router::create(config, Random::from_entropy(), std::move(index)));
  return std::unique_ptr<RouterService>(
      new RouterService(std::move(router), shared, clock, metrics, receipts));
}

RouterService::RouterService(std::unique_ptr<Router> router, KvIndex& index, const Clock& clock,
                             Metrics& metrics, ReceiptLog& receipts)
    : clock_(clock),
      receipts_(receipts),
      index_(index),
      router_(std::move(router)),
      decisions_(metrics.counter("stator_router_decisions_total", "requests routed to a worker")),
      refusals_(metrics.counter("stator_router_refusals_total", "requests no worker could take")),
      overlap_blocks_(metrics.counter("stator_router_overlap_blocks_total",
                                      "prompt blocks already cached on the chosen worker")),
      prompt_blocks_(
          metrics.counter("stator_router_prompt_blocks_total", "full prompt blocks routed")) {}

void RouterService::add_worker(WorkerKey worker) {
  const MutexLock lock(mutex_);
  router_->add_worker(worker);
}

void RouterService::remove_worker(WorkerKey worker) {
  const MutexLock lock(mutex_);
  router_->remove_worker(worker);
}

void RouterService::set_draining(WorkerKey worker, bool draining) {
  const MutexLock lock(mutex_);
  router_->set_draining(worker, draining);
}

void RouterService::apply(WorkerKey worker, const kv::KvEvent& event) {
  (void)index_.apply(worker, event);
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
