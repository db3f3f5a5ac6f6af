// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/router/advisor.h"
#include "stator/router/dispatcher.h"
#include "stator/router/replica_log.h"
#include "stator/router/router.h"
#include "stator/router/router_metrics.h"

namespace stator::router {

/// Declares the router's settings.
void describe(ConfigSchema& schema, RouterConfig& config);

class IndexService;
class RouterService;

/// A place in the queue; leaving it is giving the ticket up. Move-only, any thread.
class QueueTicket {
 public:
  QueueTicket() noexcept = default;
  QueueTicket(std::weak_ptr<RouterService> service, Dispatcher::Id id) noexcept
      : service_(std::move(service)), id_(id) {}
  QueueTicket(QueueTicket&& other) noexcept
      : service_(std::move(other.service_)), id_(std::exchange(other.id_, 0)) {}
  QueueTicket& operator=(QueueTicket&& other) noexcept;
  QueueTicket(const QueueTicket&) = delete;
  QueueTicket& operator=(const QueueTicket&) = delete;
  ~QueueTicket() { cancel(); }

  /// Nothing is delivered afterwards, unless it is on its way already.
  void cancel() noexcept;
  bool empty() const noexcept { return id_ == 0; }

 private:
  std::weak_ptr<RouterService> service_;
  Dispatcher::Id id_ = 0;
};

/// Dispatcher (router and queue) shared by all shards of a process: a lock, a clock, metrics and
/// the receipts around the pure core. Thread-safe; a call holds the lock for the length of one
/// decision (microseconds). Looking a prompt up happens before, without it. Events do not take that
/// lock either: the index has its own for those who write to it.
class RouterService : public std::enable_shared_from_this<RouterService> {
 public:
  /// Gets the decision of a request that waited, on whichever thread made room, without a lock.
  using Waiter = std::move_only_function<void(Result<Decision>)>;

  /// What its workers do, as dashboards call it.
  enum class Pool : uint8_t { kDecode, kPrefill };
  /// `model` and `pool` are labels of its metrics.
  static Result<std::shared_ptr<RouterService>> create(const RouterConfig& config,
                                                       std::string_view model, const Clock& clock,
                                                       Metrics& metrics, ReceiptLog& receipts,
                                                       Pool pool = Pool::kDecode);
  ~RouterService();

  /// `first` is its first rank; `facts.dp_size` are added, and all from `first` on meant below.
  void add_worker(WorkerKey first, const WorkerFacts& facts = {});
  void remove_worker(WorkerKey first);
  void set_draining(WorkerKey first, bool draining);

  /// As Router::route, whoever waits; on success the receipt has been moved into the log.
  Result<Decision> route(const RouteRequest& request);

  /// What this router would decide now: booked nowhere, counted nowhere, and asked of nobody else.
  /// Errors as of Router::consider.
  Result<Receipt> preview(const RouteRequest& request);

  /// Exactly one of the two is set.
  struct Routed {
    std::optional<Decision> decision;
    QueueTicket ticket;  ///< it waits: `waiter` will be called once, unless the ticket goes first
  };
  /// Errors as of Dispatcher::submit.
  Result<Routed> route_or_wait(const RouteRequest& request, const QueueHints& hints, Waiter waiter);
  /// Sheds those who waited too long and looks for room that time made. Cheap when nobody waits;
  /// every 100 ms to a second.
  void tick();

  /// When a worker counts as too busy for more; from the next decision on.
  BusyThresholds reject_thresholds() const;
  void set_reject_thresholds(const BusyThresholds& thresholds);

  /// Before the first request: who is asked first where requests shall go. Requests that wait for
  /// the answer count against the queue's bound; beyond it they are decided here.
  void advise_by(std::shared_ptr<Advisor> advisor) { advisor_ = std::move(advisor); }
  /// Before the first request: whom to tell what is booked.
  void announce_to(std::shared_ptr<LoadAnnouncer> announcer);
  /// Books what another router booked; none while the worker is not known here.
  std::optional<LoadLease> book_for_replica(const ReplicaBooking& booking);
  void set_load_stale(bool stale);

  /// For workers' events, and snapshots of it; thread-safe as it is. Of a rank that was not
  /// announced an event is counted, no more.
  IndexService& index() { return index_; }
  /// The session's last request has ended: its binding to a worker goes.
  void forget_session(std::string_view session);
  int64_t active_requests() const;
  size_t worker_count() const;
  /// Whether any worker may be given new work: neither draining nor suspended; busy ones count.
  bool takes_work() const;
  size_t waiting() const;

 private:
  friend class QueueTicket;
  friend class PrefillRouterService;  // decides over two of these
  struct Delivery {
    Waiter waiter;
    Result<Decision> decision;
  };

  /// A request whose advice is awaited, or that waits here since there was none.
  struct Asked {
    std::optional<OwnedRequest> request;  // until there is an answer
    QueueHints hints;
    std::string tenant;
    Waiter waiter;
    QueueTicket ticket;
  };

  struct Parts {
    std::unique_ptr<Router> router;
    IndexService& index;
    std::shared_ptr<LoadBook> book;
    QueueOrder order;
  };
  RouterService(Parts parts, RouterMetrics metrics, const Clock& clock, ReceiptLog& receipts);
  void cancel(Dispatcher::Id id) noexcept;
  bool ask(const RouteRequest& request, const QueueHints& hints, Waiter& waiter, Routed& routed);
  void advised(Dispatcher::Id id, std::optional<Advice> advice);
  std::optional<Decision> follow(const OwnedRequest& request, Advice& advice);
  void decide_here(Dispatcher::Id id, Asked asked);
  Result<Routed> route_here(const RouteRequest& request, const QueueHints& hints, Waiter waiter);
  RouteRequest look_up(const RouteRequest& request) const;
  /// Routes whoever can run now and tells them.
  void pump();
  Delivery make_delivery(Dispatcher::Outcome outcome) STATOR_REQUIRES(mutex_);
  void refresh_gauges() STATOR_REQUIRES(mutex_);
  void count_refusal(const Error& error, std::optional<Shed> shed) STATOR_REQUIRES(mutex_);
  void count(Decision& decision);

  const Clock& clock_;
  ReceiptLog& receipts_;
  IndexService& index_;                   // the router's
  const std::shared_ptr<LoadBook> book_;  // shared with leases
  std::shared_ptr<Advisor> advisor_;      // shared by the models of a process; null: nobody
  RouterMetrics metrics_;
  const bool uses_index_;  ///< the mode looks at what workers have cached
  mutable Mutex mutex_;
  Dispatcher dispatcher_ STATOR_GUARDED_BY(mutex_);
  FlatMap<Dispatcher::Id, Waiter> waiters_ STATOR_GUARDED_BY(mutex_);  // of those in the queue
  std::atomic<size_t> waiting_{0};
  // By ids that the dispatcher never gives.
  FlatMap<Dispatcher::Id, std::unique_ptr<Asked>> asked_ STATOR_GUARDED_BY(mutex_);
  Dispatcher::Id last_asked_ STATOR_GUARDED_BY(mutex_) = 0;
};

}  // namespace stator::router
