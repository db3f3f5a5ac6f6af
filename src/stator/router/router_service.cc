// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router_service.h"

#include <algorithm>
#include <utility>

#include "stator/router/index/index_service.h"
#include "stator/router/replica_view.h"

namespace stator::router {
namespace {

constexpr Dispatcher::Id kAskedIds = Dispatcher::Id{1} << 63;

/// When workers count as busy, and what waits for them.
void describe_limits(ConfigSchema& schema, RouterConfig& config) {
  schema.number("router.active_decode_blocks_threshold", config.reject.kv_fraction, -1, 1000,
                "a worker with more than this part of its KV blocks in use gets nothing, -1 = off",
                {.env_peer = "DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD",
                 .flag_peer = "active-decode-blocks-threshold"});
  schema.number("router.active_prefill_tokens_threshold", config.reject.prefill_tokens, -1, 1e12,
                "a worker with more prompt tokens to compute gets nothing, -1 = off",
                {.env_peer = "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD",
                 .flag_peer = "active-prefill-tokens-threshold"});
  schema.number("router.active_prefill_tokens_threshold_frac", config.reject.prefill_fraction, -1,
                1e6, "the same, as a part of its max_num_batched_tokens, -1 = off",
                {.env_peer = "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC",
                 .flag_peer = "active-prefill-tokens-threshold-frac"});
  schema.number("router.brown_out_step", config.brown_out.step, 0, 1,
                "each step of a request's strict priority (up to 4) lets it go this part further "
                "beyond the busy thresholds, a negative priority stops it that much before; 0 = "
                "all are equal");
  schema.number("router.queue_threshold", config.wait.prefill_fraction, -1, 1e6,
                "requests wait while every worker has more prompt tokens to compute than this part "
                "of its max_num_batched_tokens; 0 = while each computes any, -1 = nobody waits",
                {.env_peer = "DYN_ROUTER_QUEUE_THRESHOLD"});
  schema.number("router.queue_threshold_tokens", config.wait.prefill_tokens, -1, 1e12,
                "the same in tokens, -1 = off");
  QueueConfig& queue = config.queue;
  schema.choice("router.queue_policy", queue.order, queue_order_names(),
                "who goes first: arrival, newest, least uncached work, least slack",
                {.env_peer = "DYN_ROUTER_QUEUE_POLICY"});
  schema.integer("router.queue_requests_max", queue.requests_max, 1, 1 << 24,
                 "requests that wait, per model; beyond: overload status");
  schema.bytes("router.queue_bytes_max", queue.bytes_max,
               "memory of waiting requests, per model; beyond: overload status");
  schema.integer("router.queue_isl_tokens_max", queue.prompt_tokens_max, 0, 1ULL << 60,
                 "prompt tokens of waiting requests, 0 = no limit");
  schema.integer("router.queue_cached_tokens_max", queue.cached_tokens_max, 0, 1ULL << 60,
                 "the same, of tokens that some worker has cached");
  schema.duration("router.queue_wait_max", queue.wait_max,
                  "longest wait, then overload status; 0 = no limit");
  schema.integer("router.queue_quantum_tokens", queue.quantum_tokens, 1, 1U << 31,
                 "uncached prompt tokens a tenant (x-tenant-id) may send per turn");
  schema.integer("router.queue_tenants_max", queue.tenants_max, 1, 1 << 20,
                 "tenants with turns of their own; further ones share one");
  schema.duration("router.session_affinity_ttl", config.sessions.ttl,
                  "requests with one x-stator-session-id go to one worker until it was idle for "
                  "this long, 0 = never",
                  {.env_peer = "DYN_ROUTER_SESSION_AFFINITY_TTL_SECS"});
  schema.integer("router.sessions_max", config.sessions.sessions_max, 1, 1 << 24,
                 "sessions remembered per model; further ones are routed like single requests");
  schema.duration("router.queue_ttft_target", queue.ttft_target,
                  "queue policy deadline: when a request without x-request-timeout-ms is due");
}

/// What frontends tell each other.
void describe_replicas(ConfigSchema& schema, ReplicaConfig& replicas) {
  schema.boolean(
      "router.replica_sync", replicas.enabled,
      "publish what was booked to the frontends found through discovery, and count theirs",
      {.env_peer = "DYN_ROUTER_REPLICA_SYNC"});
  schema.text("router.replica_sync_host", replicas.host,
              "address of the service for that, as other frontends reach it");
  schema.integer("router.replica_sync_port", replicas.port, 0, 65535, "its port, 0 = any free one");
  schema.duration("router.replica_sync_interval", replicas.interval,
                  "how soon each other frontend is asked again; it answers when there is news");
  schema.duration("router.replica_sync_expiry", replicas.expiry,
                  "bookings of a frontend that was silent for this long are forgotten");
  schema.text("router.replica_sync_tls_name", replicas.tls_name,
              "with rpc.tls_*: name that the other frontends' certificates have, empty = their "
              "address");
}

/// Who else is asked.
void describe_advisors(ConfigSchema& schema, RouterConfig& config) {
  schema.text("router.url", config.url,
              "http://HOST:PORT of `stator router --select`: it chooses the workers of this "
              "frontend, which decides itself while that is away");
  schema.duration("router.url_timeout", config.url_timeout, "how long to wait for its answer");
  schema.text("router.shared_cache", config.shared_cache,
              "HOST:PORT of a cache that all workers load from (stator store), asked before each "
              "decision what it has of the prompt; not together with router.url",
              {.flag = "router-shared-cache"});
  schema.duration("router.shared_cache_timeout", config.shared_cache_timeout,
                  "how long to wait for its answer");
}

}  // namespace

void describe(ConfigSchema& schema, RouterConfig& config) {
  CostConfig& cost = config.cost;
  schema.choice("router.mode", config.mode, policy_names(), "how a worker is chosen",
                {.flag = "router", .env_peer = "DYN_ROUTER_MODE", .flag_peer = "router-mode"});
  schema.number("router.temperature", cost.temperature, 0, 100,
                "softmax temperature over costs, 0 = always the cheapest",
                {.env_peer = "DYN_ROUTER_TEMPERATURE"});
  schema.number("router.overlap_credit", cost.overlap_credit, 0, 1000,
                "what one cached block is worth against one block of load",
                {.env_peer = "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"});
  schema.number("router.overlap_credit_decay", cost.overlap_credit_decay, 0, 1000,
                "how fast prompts queued at a worker devalue its cached blocks",
                {.env_peer = "DYN_ROUTER_OVERLAP_SCORE_CREDIT_DECAY"});
  schema.number("router.prefill_load_scale", cost.prefill_load_scale, 0, 1000,
                "weight of prompt tokens that must be computed",
                {.env_peer = "DYN_ROUTER_PREFILL_LOAD_SCALE"});
  schema.number("router.active_request_weight", cost.active_request_weight, 0, 1000,
                "extra cost of a worker per running request, in blocks",
                {.env_peer = "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT"});
  schema.number("router.host_cache_hit_weight", cost.host_weight, 0, 1,
                "what a block in a worker's host memory counts against one on its device",
                {.env_peer = "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT"});
  schema.number("router.disk_cache_hit_weight", cost.disk_weight, 0, 1,
                "the same, of one on its disk or in an object store",
                {.env_peer = "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT"});
  schema.number(
      "router.shared_cache_multiplier", cost.shared_multiplier, 0, 1,
      "the same, of one that only the shared cache has (router.shared_cache); 0: 0.5",
      {.flag = "router-shared-cache-multiplier", .env_peer = "DYN_ROUTER_SHARED_CACHE_MULTIPLIER"});
  schema.boolean("router.assume_kv_reuse", config.assume_kv_reuse,
                 "running requests with an equal prefix are supposed to share its KV blocks; false "
                 "for engines without a prefix cache",
                 {.env_peer = "DYN_ROUTER_ASSUME_KV_REUSE"});
  schema.boolean("router.track_prefill_tokens", config.track_prefill_tokens,
                 "prompts sent to a worker count as work to come until their first token",
                 {.env_peer = "DYN_ROUTER_TRACK_PREFILL_TOKENS"});
  schema.number("router.accelerator_weight", cost.accelerator_weight, 0.001, 1e6,
                "mode device_aware_weighted: how many CPU workers one accelerator is worth",
                {.env_peer = "DYN_ENCODER_CUDA_TO_CPU_RATIO"});
  schema.number("router.residents_weight", cost.residents_weight, 0, 1000,
                "mode predicted_latency: what delay of those who run counts against time to the "
                "first token");
  schema.number(
      "router.ttft_target_ms", cost.ttft_target_ms, 0, 1e9,
      "modes slo and dual_map: promised time to the first token; a prefix whose holders would "
      "miss it goes elsewhere");
  schema.choice("router.prefill_load_model", config.prefill_load_model, {"none", "learned"},
                "whether prompts queued at a worker shrink with time, by the speeds learned",
                {.env_peer = "DYN_ROUTER_PREFILL_LOAD_MODEL"});
  schema.boolean(
      "router.use_kv_events", config.use_kv_events,
      "follow what workers publish of their KV caches; false = guess from what was sent to "
      "them (router.ttl)",
      {.env_peer = "DYN_ROUTER_USE_KV_EVENTS"});
  schema.text("router.policy_config", config.policy_config,
              "YAML file with classes of requests: each with a queue, limits and a share of its "
              "own (docs/reference/policy_classes.md); read once at start",
              {.env_peer = "DYN_ROUTER_POLICY_CONFIG"});
  describe_replicas(schema, config.replicas);
  describe_advisors(schema, config);
  describe(schema, config.index);
  describe_limits(schema, config);
  describe(schema, config.disaggregation);
}

QueueTicket& QueueTicket::operator=(QueueTicket&& other) noexcept {
  if (this != &other) {
    cancel();
    service_ = std::move(other.service_);
    id_ = std::exchange(other.id_, 0);
  }
  return *this;
}

void QueueTicket::cancel() noexcept {
  const Dispatcher::Id id = std::exchange(id_, 0);
  if (id != 0) {
    if (const auto service = service_.lock()) {
      service->cancel(id);
    }
  }
}

Result<std::shared_ptr<RouterService>> RouterService::create(const RouterConfig& config,
                                                             std::string_view model,
                                                             const Clock& clock, Metrics& metrics,
                                                             ReceiptLog& receipts, Pool pool) {
  STATOR_TRY(const QueueOrder order, parse_queue_order(config.queue.order));
  RouterMetrics instruments(metrics, model, pool == Pool::kPrefill ? "prefill" : "decode");
  auto book = LoadBook::make(clock, instruments.load());
  STATOR_TRY(auto index, IndexService::create(config.index, clock, metrics));
  IndexService& shared = *index;
  RouterConfig own = config;
  if (own.policies != nullptr) {
    if (const auto named = own.policies->models.find(model); named != own.policies->models.end()) {
      own.policies = named->second;
    }
  }
  STATOR_TRY(auto router, Router::create(own, book, Random::from_entropy(), std::move(index)));
  std::shared_ptr<RouterService> service(new RouterService(
      {std::move(router), shared, book, order}, std::move(instruments), clock, receipts));
  book->set_listener([weak = std::weak_ptr(service)] {
    if (const auto self = weak.lock()) {
      self->pump();
    }
  });
  return service;
}

RouterService::RouterService(Parts parts, RouterMetrics metrics, const Clock& clock,
                             ReceiptLog& receipts)
    : clock_(clock),
      receipts_(receipts),
      index_(parts.index),
      book_(std::move(parts.book)),
      metrics_(std::move(metrics)),
      uses_index_(parts.router->uses_index()),
      dispatcher_(std::move(parts.router), parts.order) {}

RouterService::~RouterService() {
  book_->set_listener({});
}

void RouterService::add_worker(WorkerKey first, const WorkerFacts& facts) {
  {
    const MutexLock lock(mutex_);
    Router& router = dispatcher_.router();
    for (uint32_t i = 0; i < facts.dp_size; ++i) {
      const WorkerKey worker{first.worker, first.dp_rank + i};
      metrics_.add_worker(worker, router.add_worker(worker, facts), book_);
    }
  }
  pump();
}

void RouterService::remove_worker(WorkerKey first) {
  {
    const MutexLock lock(mutex_);
    for (const WorkerKey worker : dispatcher_.router().ranks_from(first)) {
      dispatcher_.router().remove_worker(worker);
      metrics_.remove_worker(worker);
    }
  }
  pump();
}

void RouterService::set_draining(WorkerKey first, bool draining) {
  {
    const MutexLock lock(mutex_);
    for (const WorkerKey worker : dispatcher_.router().ranks_from(first)) {
      dispatcher_.router().set_draining(worker, draining);
    }
  }
  pump();
}

void RouterService::count_refusal(const Error& error, std::optional<Shed> shed) {
  if (shed) {
    metrics_.shed(*shed, dispatcher_.last_class());
  } else {
    metrics_.refused(dispatcher_.router().last_refusal());
  }
  if (error.code() == Code::kOverloaded) {
    metrics_.rejected();
  }
}

void RouterService::count(Decision& decision) {
  metrics_.decided(decision.receipt, decision.overlap_blocks);
  receipts_.add(decision.receipt);
}

/// The request with its prompt looked up, before the lock is taken. Valid until the thread's next.
RouteRequest RouterService::look_up(const RouteRequest& request) const {
  static thread_local std::vector<Overlap> overlaps;
  RouteRequest known = request;
  if (uses_index_ && !request.sequences.empty()) {
    index_.find_longest_match(request.sequences, overlaps);
    known.overlaps = &overlaps;
  }
  return known;
}

Result<Decision> RouterService::route(const RouteRequest& request) {
  metrics_.started();
  const RouteRequest known = look_up(request);
  Result<Decision> decision = [&]() -> Result<Decision> {
    const MutexLock lock(mutex_);
    auto routed = dispatcher_.router().route(known, clock_.wall_now());
    if (!routed) {
      count_refusal(routed.error(), std::nullopt);
    }
    return routed;
  }();
  if (decision) {
    count(*decision);
  }
  return decision;
}

Result<Receipt> RouterService::preview(const RouteRequest& request) {
  const RouteRequest known = look_up(request);
  const MutexLock lock(mutex_);
  return dispatcher_.router().preview(known, clock_.wall_now());
}

Result<RouterService::Routed> RouterService::route_or_wait(const RouteRequest& request,
                                                           const QueueHints& hints, Waiter waiter) {
  metrics_.started();
  Routed routed;
  if (advisor_ != nullptr && ask(request, hints, waiter, routed)) {
    return routed;
  }
  return route_here(request, hints, std::move(waiter));
}

Result<RouterService::Routed> RouterService::route_here(const RouteRequest& request,
                                                        const QueueHints& hints, Waiter waiter) {
  const TimePoint begin = clock_.now();
  const RouteRequest known = look_up(request);
  Routed routed;
  {
    const MutexLock lock(mutex_);
    auto submitted = dispatcher_.submit(known, hints, clock_.wall_now());
    if (!submitted) {
      count_refusal(submitted.error(), dispatcher_.last_shed());
      return std::move(submitted.error());
    }
    metrics_.set_sessions(dispatcher_.router().sessions().size());
    if (auto* decision = std::get_if<Decision>(&*submitted)) {
      routed.decision = std::move(*decision);
    } else {
      const auto id = std::get<Dispatcher::Id>(*submitted);
      waiters_.emplace(id, std::move(waiter));
      routed.ticket = QueueTicket(weak_from_this(), id);
      refresh_gauges();
    }
  }
  metrics_.scheduled(clock_.now() - begin);
  if (routed.decision) {
    count(*routed.decision);
  } else {
    // What was freed before the book knew that somebody waits told nobody; and who gave way to
    // this one must hear of it.
    pump();
  }
  return routed;
}

// ── Somebody else's advice ──

/// False: it is not for others to say, or too many are being asked about.
bool RouterService::ask(const RouteRequest& request, const QueueHints& hints, Waiter& waiter,
                        Routed& routed) {
  // Who names a worker needs no advice; who was sent away by one is not sent back there.
  if (request.constraints.pinned || !request.constraints.excluded.empty()) {
    return false;
  }
  Dispatcher::Id id = 0;
  {
    const MutexLock lock(mutex_);
    if (asked_.size() >= dispatcher_.router().config().queue.requests_max) {
      metrics_.advice(Advised::kTooMany);
      return false;
    }
    id = kAskedIds | ++last_asked_;
    auto asked = std::make_unique<Asked>();
    asked->request = own(request, hints.arrival);
    asked->hints = hints;
    asked->tenant = hints.tenant;
    asked->waiter = std::move(waiter);
    asked_.emplace(id, std::move(asked));
  }
  routed.ticket = QueueTicket(weak_from_this(), id);
  advisor_->advise(request, [weak = weak_from_this(), id](std::optional<Advice> advice) {
    if (const auto self = weak.lock()) {
      self->advised(id, std::move(advice));
    }
  });
  return true;
}

void RouterService::advised(Dispatcher::Id id, std::optional<Advice> advice) {
  Asked asked;
  {
    const MutexLock lock(mutex_);
    const auto known = asked_.find(id);
    if (known == asked_.end()) {
      return;  // the client left; what was booked for it ends with `advice`
    }
    asked.request = std::move(known->second->request);
    asked.hints = known->second->hints;
    asked.tenant = std::move(known->second->tenant);
    asked.waiter = std::move(known->second->waiter);
  }
  if (!advice) {
    metrics_.advice(Advised::kSilent);
  } else if (!advice->chosen) {
    asked.request->shared_blocks = advice->shared_blocks;
  } else if (auto decision = follow(*asked.request, *advice)) {
    metrics_.advice(Advised::kFollowed);
    count(*decision);
    {
      const MutexLock lock(mutex_);
      asked_.erase(id);
    }
    asked.waiter(std::move(*decision));
    return;
  } else {
    metrics_.advice(Advised::kUnusable);
  }
  advice.reset();
  decide_here(id, std::move(asked));
}

/// Nothing when that worker is not here, or must not get the request.
std::optional<Decision> RouterService::follow(const OwnedRequest& request, Advice& advice) {
  RouteRequest pinned = request.view();
  pinned.constraints.pinned = advice.worker.worker;
  pinned.constraints.pinned_rank = advice.worker.dp_rank;
  const std::vector<Overlap> overlaps = {
      {.worker = advice.worker, .blocks = advice.overlap_blocks}};
  pinned.overlaps = &overlaps;
  const MutexLock lock(mutex_);
  auto decision = dispatcher_.router().route(pinned, clock_.wall_now());
  if (!decision) {
    return std::nullopt;
  }
  decision->receipt.reason = "chosen by the router that was asked";
  decision->lease.hold_remote(std::move(advice.booking));
  return std::move(*decision);
}

void RouterService::decide_here(Dispatcher::Id id, Asked asked) {
  auto waiter = std::make_shared<Waiter>(std::move(asked.waiter));  // whoever delivers has it
  const auto deliver = [waiter, id, weak = weak_from_this()](Result<Decision> decision) {
    if (const auto self = weak.lock()) {
      std::unique_ptr<Asked> gone;  // destroyed without the lock
      const MutexLock lock(self->mutex_);
      if (const auto known = self->asked_.find(id); known != self->asked_.end()) {
        gone = std::move(known->second);
        self->asked_.erase(known);
      }
    }
    (*waiter)(std::move(decision));
  };
  asked.hints.tenant = asked.tenant;
  auto routed = route_here(asked.request->view(), asked.hints, deliver);
  if (!routed) {
    deliver(std::move(routed.error()));
  } else if (routed->decision) {
    deliver(std::move(*routed->decision));
  } else {
    const MutexLock lock(mutex_);
    if (const auto known = asked_.find(id); known != asked_.end()) {
      known->second->ticket = std::move(routed->ticket);
      return;
    }
  }
  // A ticket that is left here has been delivered, or its client has gone meanwhile.
}

void RouterService::cancel(Dispatcher::Id id) noexcept {
  Waiter waiter;  // destroyed without the lock
  std::unique_ptr<Asked> asked;
  const MutexLock lock(mutex_);
  if (const auto known = asked_.find(id); known != asked_.end()) {
    asked = std::move(known->second);
    asked_.erase(known);
    return;
  }
  if (dispatcher_.remove(id)) {
    const auto known = waiters_.find(id);
    waiter = std::move(known->second);
    waiters_.erase(known);
    refresh_gauges();
  }
}

void RouterService::refresh_gauges() {
  const RequestQueue& queue = dispatcher_.queue();
  waiting_.store(queue.size(), std::memory_order_relaxed);
  book_->set_watched(!queue.empty());
  metrics_.set_queue(queue, dispatcher_.classes());
}

RouterService::Delivery RouterService::make_delivery(Dispatcher::Outcome outcome) {
  const auto known = waiters_.find(outcome.id);
  Delivery delivery{std::move(known->second), std::move(outcome.decision)};
  waiters_.erase(known);
  return delivery;
}

void RouterService::pump() {
  if (waiting_.load(std::memory_order_relaxed) == 0) {
    return;
  }
  std::vector<Delivery> deliveries;
  {
    const MutexLock lock(mutex_);
    const TimePoint now = clock_.now();
    for (Dispatcher::Outcome& late : dispatcher_.expire(now)) {
      metrics_.shed(*late.shed, late.policy);
      metrics_.rejected();
      deliveries.push_back(make_delivery(std::move(late)));
    }
    while (auto outcome = dispatcher_.next(now, clock_.wall_now())) {
      if (!outcome->decision) {
        count_refusal(outcome->decision.error(), std::nullopt);
      }
      deliveries.push_back(make_delivery(std::move(*outcome)));
    }
    refresh_gauges();
  }
  for (Delivery& delivery : deliveries) {
    if (delivery.decision) {
      metrics_.waited(delivery.decision->receipt.queued);
      count(*delivery.decision);
    }
    delivery.waiter(std::move(delivery.decision));
  }
}

void RouterService::tick() {
  pump();
}

BusyThresholds RouterService::reject_thresholds() const {
  const MutexLock lock(mutex_);
  return dispatcher_.router().config().reject;
}

void RouterService::set_reject_thresholds(const BusyThresholds& thresholds) {
  const MutexLock lock(mutex_);
  dispatcher_.router().set_reject_thresholds(thresholds);
}

void RouterService::announce_to(std::shared_ptr<LoadAnnouncer> announcer) {
  book_->announce_to(std::move(announcer));
}

std::optional<LoadLease> RouterService::book_for_replica(const ReplicaBooking& booking) {
  std::optional<LoadSlot> slot;
  {
    const MutexLock lock(mutex_);
    slot = dispatcher_.router().load_slot(booking.worker);
  }
  if (!slot) {
    return std::nullopt;
  }
  // Who guesses what workers hold must know what others sent there.
  index_.on_routed(booking.worker, booking.sequences);
  return book_->take(booking_of(booking, *slot));
}

void RouterService::set_load_stale(bool stale) {
  const MutexLock lock(mutex_);
  dispatcher_.router().set_load_stale(stale);
}

void RouterService::forget_session(std::string_view session) {
  const MutexLock lock(mutex_);
  if (dispatcher_.router().forget_session(session)) {
    metrics_.set_sessions(dispatcher_.router().sessions().size());
  }
}

int64_t RouterService::active_requests() const {
  return book_->total_requests();
}

size_t RouterService::worker_count() const {
  const MutexLock lock(mutex_);
  return dispatcher_.router().worker_count();
}

bool RouterService::takes_work() const {
  const MutexLock lock(mutex_);
  return !std::ranges::all_of(dispatcher_.router().workers(), &WorkerTable::Worker::draining);
}

size_t RouterService::waiting() const {
  return waiting_.load(std::memory_order_relaxed);
}

}  // namespace stator::router
