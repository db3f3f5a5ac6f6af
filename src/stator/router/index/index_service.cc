// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/index_service.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace stator::router {
namespace {

constexpr std::array<const char*, kAppliedCount> kStatus = {
    "ok",           "parent_block_not_found", "block_not_found",
    "ignored_tier", "capacity_exhausted",     "not_followed"};
constexpr std::array<const char*, 3> kEvent = {"stored", "removed", "cleared"};
constexpr std::array<const char*, kTrustCount> kTrustName = {"exact", "degraded", "approximate"};

/// 0.01 ms · 3^n, as the reference has it.
constexpr auto kOverheadBoundsMs = [] {
  std::array<double, 17> bounds{};
  double bound = 0.01;
  for (double& each : bounds) {
    each = bound;
    bound *= 3;
  }
  return bounds;
}();

}  // namespace

void describe(ConfigSchema& schema, IndexConfig& config) {
  schema.choice("router.index", config.kind, {"chain", "ttl"},
                "how to know what workers have cached: from their KV events, or guessed from where "
                "requests were sent");
  schema.bytes("router.index_bytes_max", config.bytes_max,
               "memory of one model's KV index; beyond it what was not asked for longest is "
               "forgotten");
  schema.integer("router.index_tier_blocks_max", config.tier_blocks_max, 0, 1ULL << 32,
                 "(block, holder) pairs known of host memory, disks and object stores, about 40 "
                 "bytes each");
  schema.duration("router.ttl", config.ttl,
                  "index ttl: how long a worker is supposed to keep what it was sent",
                  {.env_peer = "DYN_ROUTER_TTL_SECS"});
  schema.integer("router.ttl_blocks_max", config.ttl_blocks_max, 1, UINT32_MAX,
                 "index ttl: blocks a worker is supposed to have room for");
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
      restored_workers(metrics.gauge("stator_router_index_restored_workers",
                                     "workers known from a snapshot that have not told what they "
                                     "hold themselves")),
      evicted(metrics.counter("stator_router_index_evicted_blocks_total",
                              "(block, holder) pairs forgotten for the index' memory bound")),
      expired(metrics.counter("stator_router_index_expired_blocks_total",
                              "supposed (block, holder) pairs whose time to live was over")),
      pruned(metrics.counter("stator_router_index_pruned_blocks_total",
                             "supposed (block, holder) pairs beyond what a worker has room for")),
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
                                   {{"trust", kTrustName[trust]}});
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
  const Duration ttl = follows_events ? config.predicted_ttl : config.ttl;
  if (!follows_events || ttl > Duration::zero()) {
    STATOR_TRY(service->routed_,
               TtlIndex::create({.ttl = ttl,
                                 .blocks_per_worker_max = config.ttl_blocks_max,
                                 .bytes_max = config.bytes_max}),
               follows_events ? "router.predicted_ttl" : "router.ttl");
  }
  return service;
}

IndexService::IndexService(const IndexConfig& config, const Clock& clock, Metrics& metrics)
    : config_(config), clock_(clock), instruments_(metrics), tiers_(config.tier_blocks_max) {}

IndexService::~IndexService() {
  // The gauges are shared by all models of the process.
  const MutexLock lock(mutex_);
  for (const auto& [worker, trust] : trust_) {
    instruments_.workers[static_cast<size_t>(trust)].add(-1);
  }
}

// ── Writers ──

void IndexService::set_trust(WorkerKey worker, Trust trust) {
  const auto known = trust_.find(worker);
  if (known == trust_.end() || known->second == trust) {
    return;
  }
  instruments_.workers[static_cast<size_t>(known->second)].add(-1);
  instruments_.workers[static_cast<size_t>(trust)].add(1);
  known->second = trust;
}

void IndexService::add_worker(WorkerKey worker) {
  const MutexLock lock(mutex_);
  const Trust trust = chains_ == nullptr           ? Trust::kApproximate
                      : restored_.contains(worker) ? Trust::kDegraded
                                                   : Trust::kExact;
  if (trust_.try_emplace(worker, trust).second) {
    instruments_.workers[static_cast<size_t>(trust)].add(1);
  }
}

void IndexService::remove_worker(WorkerKey worker) {
  const MutexLock lock(mutex_);
  if (const auto known = trust_.find(worker); known != trust_.end()) {
    instruments_.workers[static_cast<size_t>(known->second)].add(-1);
    trust_.erase(known);
  }
  restored_.erase(worker);
  if (chains_ != nullptr) {
    chains_->remove_worker(worker);
  }
  if (routed_ != nullptr) {
    routed_->remove_worker(worker);
  }
  tiers_.remove_worker(worker);
  report();
}

Applied IndexService::apply(WorkerKey worker, const kv::KvEvent& event) {
  const MutexLock lock(mutex_);
  const Applied applied =
      trust_.contains(worker) ? apply_locked(worker, event) : Applied::kUnknownBlock;
  instruments_.applied[event.data.index()][static_cast<size_t>(applied)].add();
  report();
  return applied;
}

Applied IndexService::apply_locked(WorkerKey worker, const kv::KvEvent& event) {
  if (std::holds_alternative<kv::AllCleared>(event.data)) {
    tiers_.remove_worker(worker);
    if (routed_ != nullptr) {
      routed_->apply(worker, event);
    }
    if (chains_ != nullptr) {
      chains_->apply(worker, event);
      restored_.erase(worker);
      set_trust(worker, Trust::kExact);  // what comes now is all there is
    }
    return Applied::kOk;
  }
  if (chains_ == nullptr) {
    return Applied::kNotFollowed;
  }
  Applied applied = Applied::kOk;
  if (event.tier == kv::StorageTier::kDevice) {
    applied = chains_->apply(worker, event);
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

void IndexService::on_routed(WorkerKey worker, std::span<const blocks::SequenceHash> sequences) {
  if (routed_ == nullptr) {
    return;
  }
  const MutexLock lock(mutex_);
  if (trust_.contains(worker)) {
    routed_->record(worker, sequences, clock_.now());
    report();
  }
}

/// After every change: tells readers and metrics.
void IndexService::report() {
  has_tiers_.store(tiers_.holder_blocks() > 0, std::memory_order_release);
  instruments_.tier_blocks.set(tiers_.holder_blocks());
  instruments_.restored_workers.set(restored_.size());
  size_t bytes = 0;
  uint64_t blocks = 0;
  if (routed_ != nullptr) {
    bytes += routed_->memory_bytes();
    blocks = routed_->holder_blocks();
    const TtlIndex::Stats& stats = routed_->stats();
    instruments_.expired.add(stats.expired_blocks - ttl_counted_.expired_blocks);
    instruments_.pruned.add(stats.pruned_blocks - ttl_counted_.pruned_blocks);
    ttl_counted_ = stats;
  }
  if (chains_ != nullptr) {
    bytes += chains_->memory_bytes();
    blocks = chains_->holder_blocks();
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
    if (!trust_.contains(worker)) {
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
    routed_->expire(now);
  }
}

void IndexService::find_longest_match(std::span<const blocks::SequenceHash> sequences,
                                      std::vector<Overlap>& out) const {
  const TimePoint start = clock_.now();
  if (routed_ != nullptr) {
    expire(start);
  }
  const KvIndex& main = chains_ != nullptr ? static_cast<const KvIndex&>(*chains_) : *routed_;
  main.find_longest_match(sequences, out);
  if (chains_ != nullptr && routed_ != nullptr) {
    static thread_local std::vector<Overlap> predicted;
    routed_->find_longest_match(sequences, predicted);
    for (const Overlap& guess : predicted) {
      const auto known = std::ranges::find(out, guess.worker, &Overlap::worker);
      if (known == out.end()) {
        out.push_back(guess);
      } else {
        known->blocks = std::max(known->blocks, guess.blocks);
      }
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
  return chains_ != nullptr ? chains_->holder_blocks() : routed_->holder_blocks();
}

Trust IndexService::trust(WorkerKey worker) const {
  const MutexLock lock(mutex_);
  const auto known = trust_.find(worker);
  return known == trust_.end() ? Trust::kApproximate : known->second;
}

}  // namespace stator::router
