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
  STATOR_TRY(service->prefill_, RouterService::create(config, model, clock, metrics, receipts,
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

/// Books in `split` what can be; what must wait is not.
Result<DisaggregatedPlan> PrefillRouterService::plan_now(const RouteRequest& request,
                                                         DisaggregationConfig config,
                                                         Split& split) {
  RouterService& prefill = *prefill_;
  RouterService& answers = *answers_;
  // Always in this order, and nobody else takes both.
  const MutexLock prefill_lock(prefill.mutex_);
  const MutexLock answers_lock(answers.mutex_);
  PrefillRouter router(std::move(config), prefill.dispatcher_.router(),
                       answers.dispatcher_.router());
  STATOR_TRY(DisaggregatedPlan plan, router.plan(request));
  if (plan.path != DisaggregatedPlan::Path::kSplit) {
    return plan;
  }
  if (!prefill.dispatcher_.queue().empty()) {
    return DisaggregatedPlan{.path = DisaggregatedPlan::Path::kWait,
                             .reason = "others wait for a prefill worker"};
  }
  split.terms = router.decode_terms(request, plan.prefill.worker);
  split.prefill = router.take_prefill(plan, request, clock_->wall_now());
  return plan;
}

Result<PrefillRouterService::Planned> PrefillRouterService::plan(const RouteRequest& request,
                                                                 Otherwise otherwise,
                                                                 const QueueHints& hints,
                                                                 RouterService::Waiter waiter) {
  using Path = DisaggregatedPlan::Path;
  const bool fails = otherwise == Otherwise::kFail || config_.enforced;
  Planned planned;
  if (!has_workers() && !fails) {
    return planned;
  }
  DisaggregationConfig config = config_;
  config.enforced = fails;
  if (otherwise == Otherwise::kFail) {
    config.conditional = "off";
  }
  // Whoever routes a whole request finds out what is wrong, or lets it wait.
  const auto give_up = [&](Error error) -> Result<Planned> {
    if (fails || config_.transfer.required) {
      return error;
    }
    return Planned();
  };
  Split split;
  auto plan = plan_now(request, std::move(config), split);
  if (!plan) {
    return give_up(std::move(plan.error()));
  }
  if (plan->path == Path::kSplit) {
    prefill_->metrics_.started();
    prefill_->count(split.prefill);
    planned.split = std::move(split);
  } else if (plan->path == Path::kWait) {
    auto routed =
        prefill_->route_or_wait(PrefillRouter::prompt_request(request), hints, std::move(waiter));
    if (!routed) {
      return give_up(std::move(routed.error()));
    }
    planned.ticket = std::move(routed->ticket);
    if (routed->decision) {  // there is room meanwhile
      auto terms = find_terms(request, routed->decision->worker);
      if (!terms) {
        return planned;
      }
      planned.split = Split{std::move(*routed->decision), std::move(*terms)};
    }
  }
  count(plan->path == Path::kWhole ? "whole" : "split", plan->reason);
  return planned;
}

std::optional<DecodeTerms> PrefillRouterService::find_terms(const RouteRequest& request,
                                                            WorkerKey prefill) {
  const MutexLock prefill_lock(prefill_->mutex_);
  const MutexLock answers_lock(answers_->mutex_);
  Router& prompts = prefill_->dispatcher_.router();
  if (!prompts.load_slot(prefill)) {
    return std::nullopt;
  }
  return PrefillRouter(config_, prompts, answers_->dispatcher_.router())
      .decode_terms(request, prefill);
}

}  // namespace stator::router
