// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>

#include "stator/router/prefill_router.h"
#include "stator/router/router_service.h"

namespace stator::router {

/// The prefill workers of a model beside those that answer: PrefillRouter with locks, metrics and
/// receipts. Thread-safe. A model without prefill workers pays for one look at a counter.
class PrefillRouterService {
 public:
  /// `answers` has the workers that decode, and those that do everything.
  static Result<std::shared_ptr<PrefillRouterService>> create(
      const RouterConfig& config, std::string_view model, const Clock& clock, Metrics& metrics,
      ReceiptLog& receipts, std::shared_ptr<RouterService> answers);

  void add_worker(WorkerKey worker, WorkerFacts facts);
  void remove_worker(WorkerKey worker);
  bool has_workers() const { return workers_.load(std::memory_order_relaxed) > 0; }
  /// Where prompts are computed: for events, draining and load.
  RouterService& prefill() { return *prefill_; }

  struct Split {
    Decision prefill;
    DecodeTerms terms;
  };
  enum class Otherwise : uint8_t { kRunWhole, kFail };
  struct Planned {
    std::optional<Split> split;  ///< where the prompt is computed, booked
    QueueTicket ticket;          ///< or its place in the prefill workers' queue
  };
  /// Neither of the two: the prompt is computed where the answer is. Whether that is possible at
  /// all says `otherwise`. Who waits is given a prefill worker through `waiter`, and then asks for
  /// find_terms(). Errors as of PrefillRouter::plan, and kOverloaded when the queue is full.
  Result<Planned> plan(const RouteRequest& request, Otherwise otherwise, const QueueHints& hints,
                       RouterService::Waiter waiter);
  /// For choosing the answer's worker when the prompt is computed at `prefill`; none when that has
  /// gone.
  std::optional<DecodeTerms> find_terms(const RouteRequest& request, WorkerKey prefill);

 private:
  PrefillRouterService(DisaggregationConfig config, std::string_view model, Metrics& metrics)
      : config_(std::move(config)), model_(model), metrics_(metrics) {}
  void count(std::string_view path, std::string_view reason);
  Result<DisaggregatedPlan> plan_now(const RouteRequest& request, DisaggregationConfig config,
                                     Split& split);

  const DisaggregationConfig config_;
  const std::string model_;
  Metrics& metrics_;
  std::shared_ptr<RouterService> prefill_;  // shared as leases and listeners need it
  std::shared_ptr<RouterService> answers_;  // the model's
  const Clock* clock_ = nullptr;
  std::atomic<int64_t> workers_{0};
};

}  // namespace stator::router
