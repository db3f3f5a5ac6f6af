// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/index_service.h"

#include "stator/core/histogram_bounds.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace stator::router {
namespace {

constexpr std::array<const char*, kAppliedCount> kStatus = {"ok",
                                                            "parent_block_not_found",
                                                            "block_not_found",
                                                            "ignored_tier",
                                                            "capacity_exhausted",
                                                            "not_followed",
                                                            "unknown_worker"};
constexpr const char* kWarningHelp =
    "KV events that count and yet are odd: blocks stored again, ids that differ from other "
    "workers', ranks nobody announced";
constexpr std::array<const char*, 3> kEvent = {"stored", "removed", "cleared"};

constexpr std::array<double, 10> kApplyMs = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 10, 100, 1000};

/// 0.01 ms · 3^n, as the reference has it.
constexpr auto kOverheadBoundsMs = geometric_bounds<17>(0.01, 3);

}  // namespace

void describe(ConfigSchema& schema, IndexConfig& config) {
  schema.choice("router.index", config.kind, {"chain", "ttl"},
                "how to know what workers have cached: from their KV events (guessed of those that "
                "publish none), or guessed of all from where requests were sent");
  schema.bytes("router.index_bytes_max", config.bytes_max,
               "memory of one model's KV index; beyond it what was not asked for longest is "
               "forgotten");
  schema.integer("router.index_tier_blocks_max", config.tier_blocks_max, 0, 1ULL << 32,
                 "(block, holder) pairs known of host memory, disks and object stores, about 40 "
                 "bytes each");
  schema.duration("router.ttl", config.ttl,
                  "guessed: how long a worker is supposed to keep what it was sent",
                  {.env_peer = "DYN_ROUTER_TTL_SECS"});
  schema.integer("router.ttl_blocks_max", config.ttl_blocks_max, 1, UINT32_MAX,
                 "guessed: blocks a worker is supposed to have room for");
  schema.text("router.snapshot", config.snapshot_path,
              "file that keeps the KV index over a restart of the frontend: written at its end and "
              "from time to time, read at start; empty = none");
  schema.duration("router.snapshot_interval", config.snapshot_interval,
                  "how often the snapshot is written");
  schema.duration("router.snapshot_grace", config.snapshot_grace,
                  "how long after a start the workers of the snapshot may take to come back before "
                  "they are forgotten");
  schema.duration("router.predicted_ttl", config.predicted_ttl,
                  "index chain: how long to count on what a worker was sent before its events say "
                  "so, 0 = not at all",
                  {.env_peer = "DYN_ROUTER_PREDICTED_TTL_SECS"});
}

IndexService::Instruments::Instruments(Metrics& metrics)
    : blocks(metrics.gauge("stator_router_index_blocks", "(block, holder) pairs in the KV index")),
      tier_blocks(metrics.gauge("stator_router_index_tier_blocks",
                                "(block, holder) pairs known below the devices")),
      bytes(metrics.gauge("stator_router_index_bytes", "memory of the KV index")),
      private_names(metrics.gauge("stator_router_index_private_names",
                                  "block ids kept for workers whose ids differ from the others'")),
      restored_workers(
          metrics.gauge("stator_router_index_restored_workers",
                        "workers known from a snapshot that have not reported what they "
                        "hold themselves")),
      unheard_workers(metrics.gauge("dynamo_component_router_kv_event_source_mismatch_workers",
                                    "workers (with their ranks) that should publish what they have "
                                    "cached and have not published anything yet")),
      duplicate_stores(metrics.counter("kv_cache_event_warnings", kWarningHelp,
                                       {{"warning_kind", "duplicate_store"}})),
      differing_names(metrics.counter("kv_cache_event_warnings", kWarningHelp,
                                      {{"warning_kind", "block_hash_mismatch"}})),
      undeclared_ranks(metrics.counter("kv_cache_event_warnings", kWarningHelp,
                                       {{"warning_kind", "undeclared_rank"}})),
      evicted(metrics.counter("stator_router_index_evicted_blocks_total",
                              "(block, holder) pairs forgotten for the index' memory bound")),
      expired(metrics.counter("stator_router_index_expired_blocks_total",
                              "supposed (block, holder) pairs whose time to live was over")),
      pruned(metrics.counter("stator_router_index_pruned_blocks_total",
                             "supposed (block, holder) pairs beyond what a worker has room for")),
      waiting_events(metrics.gauge("stator_router_index_waiting_events",
                                   "KV events on their way into the index: each is applied by the "
                                   "thread that brought it, one after the other")),
      apply_ms(metrics.histogram("stator_router_index_apply_ms",
                                 "from an event's arrival until look-ups see it: its wait for "
                                 "others, and applying it",
                                 kApplyMs)),
      find_ms(metrics.histogram("dynamo_router_overhead_indexer_find_matches_ms",
                                "time of one index lookup", kOverheadBoundsMs)) {
  for (size_t event = 0; event < kEvent.size(); ++event) {
    for (size_t status = 0; status < kAppliedCount; ++status) {
      applied[event][status] = metrics.counter(
          "dynamo_component_kv_cache_events_applied", "KV events by kind and what became of them",
          {{"event_type", kEvent[event]}, {"status", kStatus[status]}});
    }
  }
  for (size_t trust = 0; trust < kTrustCount; ++trust) {
    workers[trust] = metrics.gauge("stator_router_index_workers",
                                   "workers by how far the index can be trusted about them",
                                   {{"trust", std::string(describe(static_cast<Trust>(trust)))}});
  }
}

Result<std::unique_ptr<IndexService>> IndexService::create(const IndexConfig& config,
                                                           const Clock& clock, Metrics& metrics) {
  auto service = std::unique_ptr<IndexService>(new IndexService(config, clock, metrics));
  const bool follows_events = config.kind == "chain";
  if (!follows_events && config.kind != "ttl") {
    return Error(Code::kInvalidArgument,
                 "router.index must be chain or ttl, not '" + config.kind + "'");
  }
  if (follows_events) {
    STATOR_TRY(service->chains_, ChainIndex::create({.bytes_max = config.bytes_max}));
  }
  const auto make_guesses = [&](Duration ttl) {
    return TtlIndex::create({.ttl = ttl,
                             .blocks_per_worker_max = config.ttl_blocks_max,
                             .bytes_max = config.bytes_max});
  };
  STATOR_TRY(service->guesses_, make_guesses(config.ttl), "router.ttl");
  if (follows_events && config.predicted_ttl > Duration::zero()) {
    STATOR_TRY(service->predicted_, make_guesses(config.predicted_ttl), "router.predicted_ttl");
  }
  return service;
}

IndexService::IndexService(const IndexConfig& config, const Clock& clock, Metrics& metrics)
    : config_(config), clock_(clock), instruments_(metrics), tiers_(config.tier_blocks_max) {}

IndexService::~IndexService() {
  // The gauges are shared by all models of the process.
  const MutexLock lock(mutex_);
  for (const auto& [worker, known] : known_) {
    instruments_.workers[static_cast<size_t>(known.trust->load())].add(-1);
  }
}

// ── Writers ──

void IndexService::set_trust(WorkerKey worker, Trust trust) {
  const auto known = known_.find(worker);
  if (known == known_.end() || known->second.trust->load() == trust) {
    return;
  }
  const Trust before = known->second.trust->exchange(trust);
  instruments_.workers[static_cast<size_t>(before)].add(-1);
  instruments_.workers[static_cast<size_t>(trust)].add(1);
}

void IndexService::add_worker(WorkerKey worker, Source source) {
  const MutexLock lock(mutex_);
  if (known_.contains(worker)) {
    return;
  }
  const bool guessed = chains_ == nullptr || source == Source::kDecisions;
  const Trust trust = guessed                      ? Trust::kApproximate
                      : restored_.contains(worker) ? Trust::kDegraded
                                                   : Trust::kExact;
  known_.emplace(worker, Known{.source = guessed ? Source::kDecisions : Source::kEvents,
                               .trust = std::make_unique<std::atomic<Trust>>(trust)});
  unheard_ += guessed ? 0 : 1;
  instruments_.workers[static_cast<size_t>(trust)].add(1);
  guessed_workers_ += guessed ? 1 : 0;
  uint32_t& ranks = ranks_[worker.worker];
  ranks = std::max(ranks, worker.dp_rank + 1);
  report();
}

void IndexService::remove_worker(WorkerKey worker) {
  const MutexLock lock(mutex_);
  if (const auto known = known_.find(worker); known != known_.end()) {
    instruments_.workers[static_cast<size_t>(known->second.trust->load())].add(-1);
    const bool guessed = known->second.source == Source::kDecisions;
    guessed_workers_ -= guessed ? 1 : 0;
    unheard_ -= guessed || known->second.heard ? 0 : 1;
    known_.erase(known);
  }
  if (worker.dp_rank == 0) {
    ranks_.erase(worker.worker);
  }
  restored_.erase(worker);
  if (chains_ != nullptr) {
    chains_->remove_worker(worker);
  }
  guesses_->remove_worker(worker);
  if (predicted_ != nullptr) {
    predicted_->remove_worker(worker);
  }
  tiers_.remove_worker(worker);
  report();
}

size_t IndexService::block_count(const kv::KvEvent& event) {
  if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
    return stored->blocks.size();
  }
  const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data);
  return removed == nullptr ? 0 : removed->blocks.size();
}

void IndexService::clear_ranks(WorkerId worker) {
  const auto known = ranks_.find(worker);
  const uint32_t ranks = known == ranks_.end() ? 0 : known->second;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    apply_and_count({worker, rank}, {.dp_rank = rank, .data = kv::AllCleared{}});
  }
}

template <typename Batch>
void IndexService::measure(size_t events, Batch&& batch) {
  const TimePoint arrival = clock_.now();
  instruments_.waiting_events.add(static_cast<double>(events));
  {
    const MutexLock lock(mutex_);
    batch();
    report();
  }
  instruments_.waiting_events.add(-static_cast<double>(events));
  instruments_.apply_ms.observe(
      std::chrono::duration<double, std::milli>(clock_.now() - arrival).count(), events);
}

Applied IndexService::apply(WorkerKey worker, const kv::KvEvent& event) {
  Applied applied = Applied::kOk;
  measure(1, [&]() STATOR_REQUIRES(mutex_) { applied = apply_and_count(worker, event); });
  return applied;
}

void IndexService::apply(WorkerId worker, std::span<const kv::KvEvent> events) {
  while (!events.empty()) {
    size_t count = 0;
    for (size_t blocks = 0; count < events.size() && blocks < kBatchBlocks; ++count) {
      blocks += 1 + block_count(events[count]);
    }
    measure(count, [&]() STATOR_REQUIRES(mutex_) {
      for (const kv::KvEvent& event : events.first(count)) {
        if (event.dp_rank == kAllRanks) {
          clear_ranks(worker);
        } else {
          apply_and_count({worker, event.dp_rank}, event);
        }
      }
    });
    events = events.subspan(count);
  }
}

Applied IndexService::apply_and_count(WorkerKey worker, const kv::KvEvent& event) {
  const auto known = known_.find(worker);
  if (known == known_.end()) {
    const bool is_rank = ranks_.contains(worker.worker);
    instruments_.undeclared_ranks.add(is_rank ? 1 : 0);
  } else if (known->second.source == Source::kEvents && !std::exchange(known->second.heard, true)) {
    --unheard_;
  }
  const Applied applied = known == known_.end() ? Applied::kUnknownWorker
                          : known->second.source == Source::kDecisions &&
                                  !std::holds_alternative<kv::AllCleared>(event.data)
                              ? Applied::kNotFollowed
                              : apply_locked(worker, event);
  instruments_.applied[event.data.index()][static_cast<size_t>(applied)].add();
  return applied;
}

Applied IndexService::apply_locked(WorkerKey worker, const kv::KvEvent& event) {
  if (std::holds_alternative<kv::AllCleared>(event.data)) {
    tiers_.remove_worker(worker);
    guesses_->apply(worker, event);
    if (predicted_ != nullptr) {
      predicted_->apply(worker, event);
    }
    if (chains_ != nullptr) {
      chains_->apply(worker, event);
      restored_.erase(worker);
    }
    if (known_.at(worker).source == Source::kEvents) {
      set_trust(worker, Trust::kExact);  // what comes now is all there is
    }
    return Applied::kOk;
  }
  Applied applied = Applied::kOk;
  if (event.tier == kv::StorageTier::kDevice) {
    applied = apply_to_chains(worker, event);
  } else {
    const auto* run = std::get_if<kv::BlocksStored>(&event.data);
    const auto parent =
        run != nullptr && run->parent ? chains_->find_held(worker, *run->parent) : std::nullopt;
    applied = tiers_.apply(worker, event, parent);
  }
  if (applied == Applied::kUnknownParent || applied == Applied::kOverBudget) {
    set_trust(worker, Trust::kDegraded);
  }
  return applied;
}

/// What is odd shows in what the index holds afterwards.
Applied IndexService::apply_to_chains(WorkerKey worker, const kv::KvEvent& event) {
  const ChainIndex::Stats before = chains_->stats();
  const uint64_t held = chains_->holder_blocks();
  const Applied applied = chains_->apply(worker, event);
  const ChainIndex::Stats& after = chains_->stats();
  instruments_.differing_names.add(after.forked_workers > before.forked_workers ? 1 : 0);
  const auto* run = std::get_if<kv::BlocksStored>(&event.data);
  if (run != nullptr && applied == Applied::kOk) {
    const uint64_t stored = chains_->holder_blocks() - held + after.evicted_blocks -
                            before.evicted_blocks + after.refused_blocks - before.refused_blocks;
    if (stored < run->blocks.size()) {
      instruments_.duplicate_stores.add(run->blocks.size() - stored);
    }
  }
  return applied;
}

void IndexService::on_routed(WorkerKey worker, std::span<const blocks::SequenceHash> sequences) {
  if (predicted_ == nullptr && guessed_workers_.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const MutexLock lock(mutex_);
  const auto known = known_.find(worker);
  if (known == known_.end()) {
    return;
  }
  TtlIndex* index = known->second.source == Source::kDecisions ? guesses_.get() : predicted_.get();
  if (index != nullptr) {
    index->record(worker, sequences, clock_.now());
    report();
  }
}

/// After every change: tells readers and metrics.
void IndexService::report() {
  has_tiers_.store(tiers_.holder_blocks() > 0, std::memory_order_release);
  instruments_.tier_blocks.set(tiers_.holder_blocks());
  instruments_.restored_workers.set(restored_.size());
  instruments_.unheard_workers.set(unheard_);
  size_t bytes = 0;
  uint64_t blocks = guesses_->holder_blocks();
  TtlIndex::Stats guessed;
  for (const TtlIndex* index : {guesses_.get(), predicted_.get()}) {
    if (index != nullptr) {
      bytes += index->memory_bytes();
      guessed.expired_blocks += index->stats().expired_blocks;
      guessed.pruned_blocks += index->stats().pruned_blocks;
    }
  }
  instruments_.expired.add(guessed.expired_blocks - ttl_counted_.expired_blocks);
  instruments_.pruned.add(guessed.pruned_blocks - ttl_counted_.pruned_blocks);
  ttl_counted_ = guessed;
  if (chains_ != nullptr) {
    bytes += chains_->memory_bytes();
    blocks += chains_->holder_blocks();
    instruments_.private_names.set(chains_->stats().private_names);
    instruments_.evicted.add(chains_->stats().evicted_blocks - evicted_);
    evicted_ = chains_->stats().evicted_blocks;
  }
  instruments_.blocks.set(blocks);
  instruments_.bytes.set(bytes);
}

// ── Over a restart ──

std::string IndexService::save() const {
  const MutexLock lock(mutex_);
  ByteWriter out;
  if (chains_ != nullptr) {
    chains_->save(out);
  }
  return out.take();
}

Status IndexService::restore(std::string_view content) {
  const MutexLock lock(mutex_);
  if (chains_ == nullptr || content.empty()) {
    return {};
  }
  ByteReader in(content);
  STATOR_TRY(chains_, ChainIndex::restore({.bytes_max = config_.bytes_max}, in));
  for (const WorkerKey worker : chains_->workers()) {
    restored_.insert(worker);
    set_trust(worker, Trust::kDegraded);
  }
  grace_end_ = clock_.now() + config_.snapshot_grace;
  report();
  return {};
}

void IndexService::tick() {
  const MutexLock lock(mutex_);
  if (restored_.empty() || clock_.now() < grace_end_) {
    return;
  }
  std::vector<WorkerKey> lost;
  for (const WorkerKey worker : restored_) {
    if (!known_.contains(worker)) {
      lost.push_back(worker);
    }
  }
  for (const WorkerKey worker : lost) {
    restored_.erase(worker);
    chains_->remove_worker(worker);
  }
  report();
}

// ── Readers ──

/// Once per tick, whoever comes first: nothing else may happen for a long time.
void IndexService::expire(TimePoint now) const {
  const int64_t tick = now.time_since_epoch() / TtlIndex::kTick;
  int64_t before = expired_at_.load(std::memory_order_relaxed);
  if (tick > before && expired_at_.compare_exchange_strong(before, tick)) {
    const MutexLock lock(mutex_);
    guesses_->expire(now);
    if (predicted_ != nullptr) {
      predicted_->expire(now);
    }
  }
}

void IndexService::add_guesses(const TtlIndex& from,
                               std::span<const blocks::SequenceHash> sequences,
                               std::vector<Overlap>& out) const {
  static thread_local std::vector<Overlap> guesses;
  from.find_longest_match(sequences, guesses);
  for (const Overlap& guess : guesses) {
    const auto known = std::ranges::find(out, guess.worker, &Overlap::worker);
    if (known == out.end()) {
      out.push_back(guess);
    } else {
      known->blocks = std::max(known->blocks, guess.blocks);
    }
  }
}

void IndexService::find_longest_match(std::span<const blocks::SequenceHash> sequences,
                                      std::vector<Overlap>& out) const {
  const TimePoint start = clock_.now();
  const bool any_guessed = guessed_workers_.load(std::memory_order_relaxed) > 0;
  if (any_guessed || predicted_ != nullptr) {
    expire(start);
  }
  if (chains_ == nullptr) {
    guesses_->find_longest_match(sequences, out);
  } else {
    chains_->find_longest_match(sequences, out);
    if (any_guessed) {
      add_guesses(*guesses_, sequences, out);
    }
    if (predicted_ != nullptr) {
      add_guesses(*predicted_, sequences, out);
    }
  }
  if (has_tiers_.load(std::memory_order_acquire)) {
    const MutexLock lock(mutex_);
    tiers_.extend(sequences, out);
  }
  instruments_.find_ms.observe(
      std::chrono::duration<double, std::milli>(clock_.now() - start).count());
}

uint64_t IndexService::holder_blocks() const {
  const MutexLock lock(mutex_);
  return guesses_->holder_blocks() + (chains_ != nullptr ? chains_->holder_blocks() : 0);
}

Trust IndexService::trust(WorkerKey worker) const {
  const auto* cell = trust_of(worker);
  return cell == nullptr ? Trust::kApproximate : cell->load();
}

const std::atomic<Trust>* IndexService::trust_of(WorkerKey worker) const {
  const MutexLock lock(mutex_);
  const auto known = known_.find(worker);
  return known == known_.end() ? nullptr : known->second.trust.get();
}

}  // namespace stator::router
