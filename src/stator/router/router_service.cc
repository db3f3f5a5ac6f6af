// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router_service.h"

#include <algorithm>
#include <array>
#include <utility>

#include "stator/router/index/index_service.h"

namespace stator::router {
namespace {

constexpr std::array<double, 20> kHitRates = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
                                              0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1};
constexpr std::array<double, 12> kPromptTokens = {50,   102,  208,   424,   865,   1764,
                                                  3598, 7338, 14966, 30523, 62252, 128000};
constexpr std::array<double, 15> kOverheadMs = {0.001, 0.002, 0.004, 0.008, 0.016,
                                                0.032, 0.064, 0.128, 0.256, 0.512,
                                                1.024, 2.048, 4.096, 8.192, 16.384};
constexpr std::array<double, 12> kWaitSeconds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3,
                                                 1,     3,     10,   30,   60,  120};

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

}  // namespace

void describe(ConfigSchema& schema, RouterConfig& config) {
  CostConfig& cost = config.cost;
  schema.choice("router.mode", config.mode, policy_names(), "how a worker is chosen",
                {.flag = "router", .env_peer = "DYN_ROUTER_MODE"});
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
                "extra cost of a worker per running request, in blocks");
  schema.number("router.accelerator_weight", cost.accelerator_weight, 0.001, 1e6,
                "mode device_aware_weighted: how many CPU workers one accelerator is worth",
                {.env_peer = "DYN_ENCODER_CUDA_TO_CPU_RATIO"});
  schema.number("router.residents_weight", cost.residents_weight, 0, 1000,
                "mode predicted_latency: a millisecond of decode delay against one to the first "
                "token");
  schema.number("router.ttft_target_ms", cost.ttft_target_ms, 0, 1e9,
                "mode dual_map: a prefix whose homes would miss this goes anywhere");
  schema.choice("router.prefill_load_model", config.prefill_load_model, {"none", "learned"},
                "whether prompts queued at a worker shrink with time, by the speeds learned",
                {.env_peer = "DYN_ROUTER_PREFILL_LOAD_MODEL"});
  describe(schema, config.index);
  describe_limits(schema, config);
}

RouterService::Series::Series(Metrics& metrics, std::string_view model) {
  const MetricLabels by_model = {{"model", std::string(model)}};
  // Dashboards and the planner expect these labels and values.
  const MetricLabels by_class = {
      {"model", std::string(model)}, {"worker_type", "decode"}, {"policy_class", "default"}};
  started = metrics.counter("dynamo_component_router_requests_started_total",
                            "requests that came to the router");
  finished = metrics.counter("dynamo_component_router_requests_total", "requests sent to a worker");
  hit_rate =
      metrics.histogram("dynamo_component_router_kv_hit_rate",
                        "part of the prompt's blocks cached on the chosen worker", kHitRates);
  prompt_tokens = metrics.histogram("dynamo_component_router_input_sequence_tokens",
                                    "prompt tokens per request", kPromptTokens);
  scheduling_ms = metrics.histogram("dynamo_router_overhead_scheduling_ms",
                                    "milliseconds to choose a worker", kOverheadMs);
  wait_seconds = metrics.histogram("stator_router_queue_wait_seconds",
                                   "how long requests waited that had to", kWaitSeconds, by_model);
  decisions = metrics.counter("stator_router_decisions_total", "requests routed to a worker");
  overlap_blocks = metrics.counter("stator_router_overlap_blocks_total",
                                   "prompt blocks already cached on the chosen worker");
  prompt_blocks = metrics.counter("stator_router_prompt_blocks_total", "full prompt blocks routed");
  rejections = metrics.counter("dynamo_frontend_model_rejection_total",
                               "requests refused because all workers are busy", by_model);
  pending_requests = metrics.gauge("dynamo_frontend_router_queue_pending_requests",
                                   "requests that wait for a worker", by_class);
  pending_tokens = metrics.gauge("dynamo_frontend_router_queue_pending_isl_tokens",
                                 "their prompt tokens", by_class);
  pending_cached = metrics.gauge("dynamo_frontend_router_queue_pending_cached_tokens",
                                 "of those, cached on some worker", by_class);
  pending_bytes = metrics.gauge("stator_router_queue_pending_bytes", "memory they hold", by_model);
  for (size_t i = 0; i < kShedCount; ++i) {
    MetricLabels labels = by_class;
    labels.emplace_back("reason", describe(static_cast<Shed>(i)));
    sheds[i] = metrics.counter("dynamo_frontend_router_queue_backpressure_total",
                               "requests the queue refused or gave up", labels);
  }
  for (size_t i = 0; i < kRefusalCount; ++i) {
    refusals[i] = metrics.counter("stator_router_refusals_total", "requests no worker could take",
                                  {{"reason", std::string(describe(static_cast<Refusal>(i)))}});
  }
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
                                                             ReceiptLog& receipts) {
  STATOR_TRY(const QueueOrder order, parse_queue_order(config.queue.order));
  auto book = LoadBook::make(clock);
  STATOR_TRY(std::unique_ptr<KvIndex> index, IndexService::create(config.index, clock, metrics));
  KvIndex& shared = *index;
  STATOR_TRY(auto router, Router::create(config, book, Random::from_entropy(), std::move(index)));
  std::shared_ptr<RouterService> service(new RouterService(
      {std::move(router), shared, book, order}, Series(metrics, model), clock, receipts));
  book->set_listener([weak = std::weak_ptr(service)] {
    if (const auto self = weak.lock()) {
      self->pump();
    }
  });
  return service;
}

RouterService::RouterService(Parts parts, Series series, const Clock& clock, ReceiptLog& receipts)
    : clock_(clock),
      receipts_(receipts),
      index_(parts.index),
      book_(std::move(parts.book)),
      series_(std::move(series)),
      dispatcher_(std::move(parts.router), parts.order) {}

RouterService::~RouterService() {
  book_->set_listener({});
}

void RouterService::add_worker(WorkerKey worker, WorkerFacts facts) {
  {
    const MutexLock lock(mutex_);
    dispatcher_.router().add_worker(worker, std::move(facts));
  }
  pump();
}

void RouterService::remove_worker(WorkerKey worker) {
  {
    const MutexLock lock(mutex_);
    dispatcher_.router().remove_worker(worker);
  }
  pump();
}

void RouterService::set_draining(WorkerKey worker, bool draining) {
  {
    const MutexLock lock(mutex_);
    dispatcher_.router().set_draining(worker, draining);
  }
  pump();
}

void RouterService::apply(WorkerKey worker, const kv::KvEvent& event) {
  (void)index_.apply(worker, event);
}

void RouterService::count_refusal(const Error& error, std::optional<Shed> shed) {
  if (shed) {
    series_.sheds[static_cast<size_t>(*shed)].add();
  } else {
    series_.refusals[static_cast<size_t>(dispatcher_.router().last_refusal())].add();
  }
  if (error.code() == Code::kOverloaded) {
    series_.rejections.add();
  }
}

void RouterService::count(Decision& decision) {
  const Receipt& receipt = decision.receipt;
  series_.decisions.add();
  series_.finished.add();
  series_.overlap_blocks.add(decision.overlap_blocks);
  series_.prompt_blocks.add(receipt.prompt_blocks);
  series_.prompt_tokens.observe(receipt.prompt_tokens);
  series_.hit_rate.observe(static_cast<double>(decision.overlap_blocks) /
                           std::max(1U, receipt.prompt_blocks));
  receipts_.add(std::move(decision.receipt));
}

Result<Decision> RouterService::route(const RouteRequest& request) {
  series_.started.add();
  Result<Decision> decision = [&]() -> Result<Decision> {
    const MutexLock lock(mutex_);
    auto routed = dispatcher_.router().route(request, clock_.wall_now());
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

Result<RouterService::Routed> RouterService::route_or_wait(const RouteRequest& request,
                                                           const QueueHints& hints, Waiter waiter) {
  series_.started.add();
  const TimePoint begin = clock_.now();
  Routed routed;
  {
    const MutexLock lock(mutex_);
    auto submitted = dispatcher_.submit(request, hints, clock_.wall_now());
    if (!submitted) {
      count_refusal(submitted.error(), dispatcher_.last_shed());
      return std::move(submitted.error());
    }
    series_.sessions.set(static_cast<double>(dispatcher_.router().sessions().size()));
    if (auto* decision = std::get_if<Decision>(&*submitted)) {
      routed.decision = std::move(*decision);
    } else {
      const auto id = std::get<Dispatcher::Id>(*submitted);
      waiters_.emplace(id, std::move(waiter));
      routed.ticket = QueueTicket(weak_from_this(), id);
      refresh_gauges();
    }
  }
  series_.scheduling_ms.observe(
      std::chrono::duration<double, std::milli>(clock_.now() - begin).count());
  if (routed.decision) {
    count(*routed.decision);
  } else {
    // What was freed before the book knew that somebody waits told nobody.
    pump();
  }
  return routed;
}

void RouterService::cancel(Dispatcher::Id id) noexcept {
  Waiter waiter;  // destroyed without the lock
  const MutexLock lock(mutex_);
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
  series_.pending_requests.set(static_cast<double>(queue.size()));
  series_.pending_tokens.set(static_cast<double>(queue.prompt_tokens()));
  series_.pending_cached.set(static_cast<double>(queue.cached_tokens()));
  series_.pending_bytes.set(static_cast<double>(queue.bytes()));
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
      series_.sheds[static_cast<size_t>(Shed::kWait)].add();
      series_.rejections.add();
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
      series_.wait_seconds.observe(
          std::chrono::duration<double>(delivery.decision->receipt.queued).count());
      count(*delivery.decision);
    }
    delivery.waiter(std::move(delivery.decision));
  }
}

void RouterService::tick() {
  pump();
}

int64_t RouterService::active_requests() const {
  return book_->total_requests();
}

size_t RouterService::worker_count() const {
  const MutexLock lock(mutex_);
  return dispatcher_.router().worker_count();
}

size_t RouterService::waiting() const {
  return waiting_.load(std::memory_order_relaxed);
}

}  // namespace stator::router
