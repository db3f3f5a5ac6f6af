// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/kv/event.h"
#include "stator/router/busy_thresholds.h"
#include "stator/router/candidates.h"
#include "stator/router/disaggregation_config.h"
#include "stator/router/index/index_config.h"
#include "stator/router/kv_index.h"
#include "stator/router/load_lease.h"
#include "stator/router/policy.h"
#include "stator/router/queue/request_queue.h"
#include "stator/router/receipt.h"
#include "stator/router/session_table.h"
#include "stator/router/shortlist.h"
#include "stator/router/worker_table.h"

namespace stator::router {

/// How routers of several processes tell each other what they booked.
struct ReplicaConfig {
  bool enabled = false;
  std::string host = "127.0.0.1";                    ///< address others reach us at
  uint16_t port = 0;                                 ///< 0: any free one
  Duration interval = std::chrono::milliseconds(2);  ///< between an answer and the next question
  Duration expiry = std::chrono::seconds(10);        ///< of a silent one's bookings
  std::string tls_name;  ///< that the others' certificates have; empty: their address
};

struct PolicyConfig;  // queue/policy_classes.h

struct RouterConfig {
  std::string mode = "predicted_latency";
  CostConfig cost;
  IndexConfig index;
  BusyThresholds reject;  ///< workers beyond it get nothing; when all are: kOverloaded
  BrownOut brown_out;     ///< who goes on a little beyond it, and who stops before
  BusyThresholds wait;    ///< when all workers are beyond it, requests wait; unset = nobody waits
  QueueConfig queue;      ///< where they wait
  SessionConfig sessions;
  ReplicaConfig replicas;
  std::string url;  ///< of a selection service that is asked first; empty = nobody
  Duration url_timeout = std::chrono::milliseconds(100);
  std::string shared_cache;  ///< address of a cache of all workers that is asked; empty: none
  Duration shared_cache_timeout = std::chrono::milliseconds(20);
  DisaggregationConfig disaggregation;  ///< of fleets with prefill workers
  bool assume_kv_reuse = true;          ///< see CostOverride, as are the next
  bool track_prefill_tokens = true;
  bool use_kv_events = true;  ///< false: what workers have cached is guessed
  std::string policy_config;  ///< YAML file with classes of the queue; empty: one class
  std::shared_ptr<const PolicyConfig> policies;  // shared by the models' routers; null: one class
  /// Whether queued prompts shrink with time by the speeds learned: "none" or "learned".
  std::string prefill_load_model = "none";
};

/// What the router needs to know about one request.
struct RouteRequest {
  std::string_view request_id;
  std::string_view model;
  uint32_t prompt_tokens = 0;
  uint32_t block_size = 16;
  std::span<const blocks::SequenceHash> sequences;  ///< of the prompt's full blocks
  /// What its blocks are called in load bookings, if not by `sequences`.
  std::span<const blocks::SequenceHash> tracked{};
  RouteConstraints constraints;
  std::optional<WorkerId> prefill_pinned{};  ///< who computes the prompt, if the client says so
  std::optional<uint32_t> prefill_pinned_rank{};  ///< its data-parallel rank
  /// When it waits, if not as RouterConfig::wait says; null: as that says.
  const BusyThresholds* wait = nullptr;
  CostOverride override;
  std::optional<uint32_t> expected_output_tokens;
  int32_t tier = 0;               ///< tier_of()
  bool holds_blocks = true;       ///< false: a prompt whose blocks leave the worker when it is done
  std::string_view session{};     ///< requests of one session go to one worker; empty = none
  Duration queued{};              ///< how long it has waited, for the receipt
  std::string_view media_json{};  ///< for the receipt, too
  uint32_t shared_blocks = 0;     ///< of `sequences`' first, a cache of all workers has so many
  /// Of `sequences`, just looked up by the caller; null: the router does.
  const std::vector<Overlap>* overlaps = nullptr;
};

/// The chosen worker with its load already booked.
struct Decision {
  WorkerKey worker;
  uint32_t overlap_blocks = 0;
  LoadLease lease;
  Receipt receipt;
};

/// A choice that nobody has booked.
struct Selection {
  WorkerKey worker;
  uint32_t overlap_blocks = 0;  ///< on its device
  uint32_t cached_tokens = 0;   ///< lower tiers weighed in
  std::string_view reason;
  double temperature = 0;
  size_t row = 0;  ///< among the workers considered
};

/// Why a request could not be routed; the label of the refusal counter.
enum class Refusal : uint8_t {
  kNoWorkers,      ///< nobody serves the model
  kPinnedUnknown,  ///< the worker it names is not there
  kPinMissing,     ///< mode direct without a name
  kAllFiltered,    ///< constraints, draining and earlier attempts leave nobody
  kPinnedBusy,     ///< the worker it names is beyond the thresholds
  kAllBusy,        ///< all that are left are, for whomever
  kBrownOut,       ///< they are for its tier, not for higher ones
};
inline constexpr size_t kRefusalCount = 7;
std::string_view describe(Refusal refusal);

/// Routes the requests of one model to its workers. A pure core: no I/O or lock of its own; one
/// thread at a time (RouterService puts a lock around it). Leases may outlive it and end on any
/// thread.
///
///   router.add_worker(key);  router.apply(key, event);
///   STATOR_TRY(Decision decision, router.route(request, wall_now));
///   // decision.lease now lives in the response stream
class Router {
 public:
  /// kInvalidArgument for an unknown mode or a weight that is not a finite number. Without an index
  /// the router makes itself one that follows events.
  static Result<std::unique_ptr<Router>> create(const RouterConfig& config,
                                                std::shared_ptr<LoadBook> book, Random random,
                                                std::unique_ptr<KvIndex> index = nullptr);

  /// A worker that is known already takes new work again, with these facts.
  /// Returns where its load is booked.
  LoadSlot add_worker(WorkerKey worker, WorkerFacts facts = {});
  /// Forgets the worker and its blocks; leases that are alive end harmlessly.
  void remove_worker(WorkerKey worker);
  /// A draining worker gets nothing new but keeps its index entries.
  void set_draining(WorkerKey worker, bool draining);
  Applied apply(WorkerKey worker, const kv::KvEvent& event);

  /// consider() and decide(), whether or not the workers are busy.
  Result<Decision> route(const RouteRequest& request, WallTime now);

  /// What route() would decide now, booked nowhere. A mode that takes turns has taken one.
  Result<Receipt> preview(const RouteRequest& request, WallTime now);

  enum class Readiness : uint8_t { kReady, kBusy };
  /// Finds the workers the request may go to. kBusy: all of them are beyond `wait`.
  /// kUnavailable: no worker at all, all are draining or were tried; kOverloaded: all beyond
  /// `reject`; kNotFound: the pinned worker is not there; kInvalidArgument: mode `direct` without a
  /// pin. After an error last_refusal() says which.
  Result<Readiness> consider(const RouteRequest& request);
  /// Chooses among them and books. Right after consider() of the same request.
  Decision decide(const RouteRequest& request, WallTime now);
  /// Books one of them that select() or price() gave, with a receipt.
  Decision take(const RouteRequest& request, const Selection& selection, WallTime now);
  /// Chooses among them, no more. Right after consider() of the same request.
  Selection select(const RouteRequest& request);
  struct Priced {
    double cost = 0;  ///< 0 where the policy has none
    Selection selection;
  };
  /// Every worker considered with what it would cost. Right after consider() of the same request.
  std::vector<Priced> price(const RouteRequest& request);
  /// Books a choice made elsewhere or before: `prefill_tokens` must be computed there. kNotFound
  /// for an unknown worker.
  Result<LoadLease> book(WorkerKey worker, const RouteRequest& request, uint32_t prefill_tokens);

  /// The best a request may hope for among the workers just considered.
  struct Outlook {
    uint32_t cached_tokens = 0;
    Duration first_token{};  ///< on an idle worker, by the speeds learned
  };
  Outlook look_ahead(const RouteRequest& request);

  Refusal last_refusal() const { return last_refusal_; }
  const SessionTable& sessions() const { return sessions_; }
  bool forget_session(std::string_view session) { return sessions_.forget(session); }
  size_t worker_count() const { return table_.all().size(); }
  /// Workers (with their ranks) that may be given work.
  size_t ready_count() { return table_.ready().workers.size(); }
  std::span<const WorkerTable::Worker> workers() const { return table_.all(); }
  /// The ranks of one worker that are there, from `first` on.
  std::vector<WorkerKey> ranks_from(WorkerKey first) const;
  /// Where its load is booked; none for an unknown worker.
  std::optional<LoadSlot> load_slot(WorkerKey worker) const;
  /// How loaded it is now; zeros for an unknown worker.
  LoadRow load_of(WorkerKey worker) const;
  const KvIndex& index() const { return *index_; }
  /// Sum over all workers of requests booked by live leases; 0 when idle.
  int64_t active_requests() const { return book_->total_requests(); }
  std::string_view mode() const { return info_.name; }
  /// Other routers decide, too, and are heard of late: spread decisions among workers that cost
  /// nearly the same, so that several routers do not all choose the one.
  void set_load_stale(bool stale) { load_stale_ = stale; }
  /// Whether decisions look at what workers have cached.
  bool uses_index() const { return policy_->needs().overlap; }
  /// Replaces the thresholds from the next decision on.
  void set_reject_thresholds(const BusyThresholds& thresholds) { config_.reject = thresholds; }
  const RouterConfig& config() const { return config_; }

 private:
  Router(const PolicyInfo& info, const RouterConfig& config, std::shared_ptr<LoadBook> book,
         Random random, std::unique_ptr<KvIndex> index);
  Error refuse(Refusal refusal, Code code, std::string message);
  Error refuse_busy(const RouteRequest& request, bool brown_out);
  Error nobody(const RouteRequest& request);
  std::span<const Overlap> find_overlaps(const RouteRequest& request, const PolicyNeeds& needs);
  /// Nobody looks at the load of a large fleet that takes turns; the receipt reads what it shows.
  bool looks_at_load(const BusyThresholds& wait) const;
  void read_columns(const RouteRequest& request, const PolicyNeeds& needs,
                    std::span<const Overlap> overlaps);
  PolicyRequest shape_of(const RouteRequest& request) const;
  Selection choose_among_rows(const RouteRequest& request, const PolicyRequest& shape,
                              std::span<const Overlap> overlaps);
  bool narrows(const RouteRequest& request) const;
  void narrow(const RouteRequest& request, const PolicyRequest& shape,
              std::span<const Overlap> overlaps);
  uint32_t cached_tokens_of(const RouteRequest& request, size_t row) const;
  Booking make_booking(const RouteRequest& request, const WorkerTable::Worker& worker,
                       uint32_t prefill_tokens) const;
  Choice choose(const RouteRequest& request, const PolicyRequest& shape);
  Receipt make_receipt(const RouteRequest& request, const Selection& selection, WallTime now) const;

  const PolicyInfo& info_;  // static
  std::unique_ptr<Policy> policy_;
  const BusyThresholds& wait_of(const RouteRequest& request) const {
    return request.wait == nullptr ? config_.wait : *request.wait;
  }

  RouterConfig config_;
  std::shared_ptr<LoadBook> book_;  // shared with leases
  Random random_;
  std::unique_ptr<KvIndex> index_;
  WorkerTable table_;
  SessionTable sessions_;
  Refusal last_refusal_ = Refusal::kNoWorkers;
  bool load_stale_ = false;

  // Of the request under consideration; kept for their memory.
  Candidates candidates_{table_, *book_};
  bool narrows_ = false;  // not all candidates need a look; their load was not read
  std::vector<Overlap> overlaps_;
  Shortlist shortlist_;
  std::vector<uint32_t> listed_;  // rows of table_.ready()
  std::vector<LoadSlot> holders_;
};

}  // namespace stator::router
