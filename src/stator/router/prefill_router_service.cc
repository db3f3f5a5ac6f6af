// SPDX-License-Identifier: Apache-2.0
#include "stator/router/prefill_router_service.h"

#include <utility>

namespace stator::router {

Result<std::shared_ptr<PrefillRouterService>> PrefillRouterService::create(
    const RouterConfig& config, std::string_view model, const Clock& clock, Metrics& metrics,
    ReceiptLog& receipts, std::shared_ptr<RouterService> answers) {
  DisaggregationConfig disaggregation = config.disaggregation;
  if (disaggregation.prefill_busy_fraction < 0) {
    disaggregation.prefill_busy_fraction = config.wait.prefill_fraction;
  }
  STATOR_CHECK(validate(disaggregation));
  auto service = std::shared_ptr<PrefillRouterService>(
      new PrefillRouterService(std::move(disaggregation), model, metrics));
  // Prompts do not queue here: those who are too busy are passed over.
  RouterConfig prompts = config;
  prompts.wait = {};
  STATOR_TRY(service->prefill_, RouterService::create(prompts, model, clock, metrics, receipts,
                                                      RouterService::Pool::kPrefill));
  service->answers_ = std::move(answers);
  service->clock_ = &clock;
  return service;
}

void PrefillRouterService::add_worker(WorkerKey worker, WorkerFacts facts) {
  prefill_->add_worker(worker, std::move(facts));
  workers_.store(static_cast<int64_t>(prefill_->worker_count()), std::memory_order_relaxed);
}

void PrefillRouterService::remove_worker(WorkerKey worker) {
  prefill_->remove_worker(worker);
  workers_.store(static_cast<int64_t>(prefill_->worker_count()), std::memory_order_relaxed);
}

void PrefillRouterService::count(std::string_view path, std::string_view reason) {
  metrics_
      .counter("stator_router_disaggregation_total",
               "requests of models with prefill workers, by where their prompts are computed",
               {{"model", model_}, {"path", std::string(path)}, {"reason", std::string(reason)}})
      .add();
}

Result<std::optional<PrefillRouterService::Split>> PrefillRouterService::plan(
    const RouteRequest& request, Otherwise otherwise) {
  const bool fails = otherwise == Otherwise::kFail || config_.enforced;
  if (!has_workers() && !fails) {
    return std::nullopt;
  }
  DisaggregationConfig config = config_;
  config.enforced = fails;
  if (otherwise == Otherwise::kFail) {
    config.conditional = "off";
  }
  Split split;
  std::string_view reason;
  {
    RouterService& prefill = *prefill_;
    RouterService& answers = *answers_;
    // Always in this order, and nobody else takes both.
    const MutexLock prefill_lock(prefill.mutex_);
    const MutexLock answers_lock(answers.mutex_);
    PrefillRouter router(std::move(config), prefill.dispatcher_.router(),
                         answers.dispatcher_.router());
    auto plan = router.plan(request);
    if (!plan) {
      if (fails || config_.transfer.required) {
        return std::move(plan.error());
      }
      return std::nullopt;  // whoever routes the whole request finds out, or lets it wait
    }
    reason = plan->reason;
    if (plan->path == DisaggregatedPlan::Path::kSplit) {
      split.terms = router.decode_terms(request, plan->prefill.worker);
      split.prefill = router.take_prefill(*plan, request, clock_->wall_now());
    }
  }
  if (split.prefill.lease.empty()) {
    count("whole", reason);
    return std::nullopt;
  }
  count("split", reason);
  prefill_->metrics_.started();
  prefill_->count(split.prefill);
  return split;
}

}  // namespace stator::router
