// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router_metrics.h"

#include "stator/core/histogram_bounds.h"

#include <algorithm>
#include <array>

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

// log .001–480 s, .001–2 s and 50–32,000 tokens, as the reference has them.
constexpr std::array<double, 18> kFirstTokenSeconds = {0.001, 0.0022, 0.0047, 0.01, 0.022, 0.047,
                                                       0.1,   0.22,   0.47,   1,    2.2,   4.7,
                                                       10,    22,     47,     100,  220,   480};
constexpr std::array<double, 13> kInterTokenSeconds = {
    0.001, 0.0019, 0.0036, 0.0067, 0.013, 0.024, 0.045, 0.084, 0.16, 0.3, 0.56, 1.1, 2};
constexpr std::array<double, 10> kOutputTokens = {50,   100,  210,  430,   880,
                                                  1800, 3700, 7600, 16000, 32000};
// .25 · 2^n
constexpr auto kBlocksLost = geometric_bounds<16>(0.25, 2);
constexpr auto kTotalMs = geometric_bounds<17>(0.01, 3);

constexpr std::string_view kPrefillTokens = "dynamo_frontend_worker_active_prefill_tokens";
constexpr std::string_view kDecodeBlocks = "dynamo_frontend_worker_active_decode_blocks";
constexpr std::string_view kRequests = "stator_router_worker_active_requests";

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

LoadRow row_of(const LoadBook& book, LoadSlot slot) {
  LoadRow row;
  book.read(std::span(&slot, 1), std::span(&row, 1));
  return row;
}

}  // namespace

RouterMetrics::RouterMetrics(Metrics& metrics, std::string_view model, std::string_view worker_type)
    : metrics_(&metrics), model_(model), worker_type_(worker_type) {
  MetricLabels by_model = {{"model", model_}};
  if (worker_type_ != "decode") {
    by_model.emplace_back("worker_type", worker_type_);
  }
  started_ = metrics.counter("dynamo_component_router_requests_started_total",
                             "requests that came to the router");
  finished_ =
      metrics.counter("dynamo_component_router_requests_total", "requests sent to a worker");
  hit_rate_ =
      metrics.histogram("dynamo_component_router_kv_hit_rate",
                        "part of the prompt's blocks cached on the chosen worker", kHitRates);
  prompt_tokens_ = metrics.histogram("dynamo_component_router_input_sequence_tokens",
                                     "prompt tokens per request", kPromptTokens);
  scheduling_ms_ = metrics.histogram("dynamo_router_overhead_scheduling_ms",
                                     "milliseconds to choose a worker", kOverheadMs);
  wait_seconds_ = metrics.histogram("stator_router_queue_wait_seconds",
                                    "how long requests waited that had to", kWaitSeconds, by_model);
  decisions_ = metrics.counter("stator_router_decisions_total", "requests routed to a worker");
  overlap_blocks_ = metrics.counter("stator_router_overlap_blocks_total",
                                    "prompt blocks already cached on the chosen worker");
  prompt_blocks_ =
      metrics.counter("stator_router_prompt_blocks_total", "full prompt blocks routed");
  rejections_ = metrics.counter("stator_router_rejections_total",
                                "requests refused because all workers are busy", by_model);
  pending_bytes_ = metrics.gauge("stator_router_queue_pending_bytes", "memory they hold", by_model);
  for (size_t i = 0; i < kRefusalCount; ++i) {
    refusals_[i] = metrics.counter("stator_router_refusals_total", "requests no worker could take",
                                   {{"reason", std::string(describe(static_cast<Refusal>(i)))}});
  }
  count_advice(metrics);
  pending("default");
  total_ms_ = metrics.histogram("dynamo_router_overhead_total_ms",
                                "milliseconds from a prompt's hashes to its worker", kTotalMs);
  non_max_ = metrics.counter("dynamo_component_router_non_max_overlap_selections_total",
                             "decisions for a worker that did not hold the longest cached prefix",
                             {{"worker_type", worker_type_}});
  overlap_lost_ = metrics.histogram("dynamo_component_router_overlap_blocks_lost",
                                    "cached blocks that such a decision passed over", kBlocksLost,
                                    {{"worker_type", worker_type_}});
  registered_ = metrics.gauge("dynamo_component_router_worker_registered",
                              "workers (with their ranks) the router knows", by_model);
  sessions_ = metrics.gauge("stator_router_sessions", "sessions bound to a worker", by_model);
  load_ = {.first_token_seconds =
               metrics.histogram("dynamo_component_router_time_to_first_token_seconds",
                                 "from the decision to the first token", kFirstTokenSeconds),
           .inter_token_seconds =
               metrics.histogram("dynamo_component_router_inter_token_latency_seconds",
                                 "between tokens, sampled once per KV block", kInterTokenSeconds),
           .output_tokens = metrics.histogram("dynamo_component_router_output_sequence_tokens",
                                              "output tokens per request", kOutputTokens)};
}

void RouterMetrics::count_advice(Metrics& metrics) {
  constexpr std::array<const char*, kAdvisedCount> kAdvised = {"followed", "unusable", "silent",
                                                               "too_many"};
  for (size_t i = 0; i < kAdvisedCount; ++i) {
    advised_[i] = metrics.counter("stator_router_remote_decisions_total",
                                  "requests that another router was to decide (router.url), by "
                                  "what became of it; all but followed were decided here",
                                  {{"outcome", kAdvised[i]}});
  }
}

RouterMetrics::~RouterMetrics() {
  for (const WorkerKey worker : FlatSet<WorkerKey>(shown_)) {
    remove_worker(worker);
  }
}

void RouterMetrics::decided(const Receipt& receipt, uint32_t overlap_blocks) const {
  decisions_.add();
  finished_.add();
  overlap_blocks_.add(overlap_blocks);
  prompt_blocks_.add(receipt.prompt_blocks);
  prompt_tokens_.observe(receipt.prompt_tokens);
  hit_rate_.observe(static_cast<double>(overlap_blocks) / std::max(1U, receipt.prompt_blocks));
  if (receipt.best_overlap_blocks > overlap_blocks) {
    non_max_.add();
    overlap_lost_.observe(receipt.best_overlap_blocks - overlap_blocks);
  }
}

void RouterMetrics::scheduled(Duration took) const {
  scheduling_ms_.observe(milliseconds(took));
  total_ms_.observe(milliseconds(took));
}

void RouterMetrics::waited(Duration queued) const {
  wait_seconds_.observe(seconds(queued));
}

RouterMetrics::Pending& RouterMetrics::pending(const std::string& policy_class) {
  const auto [entry, fresh] = pending_.try_emplace(policy_class);
  if (fresh) {
    // Dashboards and the planner expect these labels and values.
    const MetricLabels labels = {
        {"model", model_}, {"worker_type", worker_type_}, {"policy_class", policy_class}};
    Pending& made = entry->second;
    made.requests = metrics_->gauge("dynamo_frontend_router_queue_pending_requests",
                                    "requests that wait for a worker", labels);
    made.prompt_tokens = metrics_->gauge("dynamo_frontend_router_queue_pending_isl_tokens",
                                         "their prompt tokens", labels);
    made.cached_tokens = metrics_->gauge("dynamo_frontend_router_queue_pending_cached_tokens",
                                         "of those, cached on some worker", labels);
    for (size_t i = 0; i < kShedCount; ++i) {
      MetricLabels with = labels;
      with.emplace_back("reason", describe(static_cast<Shed>(i)));
      made.sheds[i] = metrics_->counter("dynamo_frontend_router_queue_backpressure_total",
                                        "requests the queue refused or gave up", with);
    }
  }
  return entry->second;
}

void RouterMetrics::shed(Shed shed, const PolicyClass* policy) {
  pending(policy == nullptr ? "default" : policy->name).sheds[static_cast<size_t>(shed)].add();
}

void RouterMetrics::set_queue(const RequestQueue& queue, std::span<const PolicyClass> classes) {
  const auto show = [this](const std::string& name, const RequestQueue::Backlog& backlog) {
    const Pending& shown = pending(name);
    shown.requests.set(static_cast<double>(backlog.requests));
    shown.prompt_tokens.set(static_cast<double>(backlog.prompt_tokens));
    shown.cached_tokens.set(static_cast<double>(backlog.cached_tokens));
  };
  for (const PolicyClass& each : classes) {
    show(each.name, queue.backlog(each.name));
  }
  if (classes.empty()) {
    show("default", {queue.size(), queue.prompt_tokens(), queue.cached_tokens()});
  }
  pending_bytes_.set(static_cast<double>(queue.bytes()));
}

MetricLabels RouterMetrics::labels_of(WorkerKey worker) const {
  return {{"model", model_},
          {"worker_id", to_string(worker.worker)},
          {"dp_rank", std::to_string(worker.dp_rank)},
          {"worker_type", worker_type_}};
}

void RouterMetrics::add_worker(WorkerKey worker, LoadSlot slot,
                               const std::shared_ptr<LoadBook>& book) {
  if (!shown_.insert(worker).second) {
    return;
  }
  const MetricLabels labels = labels_of(worker);
  metrics_->gauge_callback(kPrefillTokens, "prompt tokens this worker has yet to compute", labels,
                           [book, slot] { return row_of(*book, slot).prefill_tokens; });
  metrics_->gauge_callback(kDecodeBlocks, "KV blocks that requests sent to this worker use", labels,
                           [book, slot] { return row_of(*book, slot).active_blocks; });
  metrics_->gauge_callback(kRequests, "requests sent to this worker and not ended", labels,
                           [book, slot] { return row_of(*book, slot).active_requests; });
  registered_.set(static_cast<double>(shown_.size()));
}

void RouterMetrics::remove_worker(WorkerKey worker) {
  if (shown_.erase(worker) == 0) {
    return;
  }
  const MetricLabels labels = labels_of(worker);
  for (const std::string_view name : {kPrefillTokens, kDecodeBlocks, kRequests}) {
    metrics_->remove(name, labels);
  }
  registered_.set(static_cast<double>(shown_.size()));
}

}  // namespace stator::router
