// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/router/index/chain_index.h"
#include "stator/router/index/index_config.h"
#include "stator/router/index/tier_index.h"
#include "stator/router/index/ttl_index.h"

namespace stator::router {

/// What of a prompt each worker of one model holds, from all there is to know it by: a ChainIndex
/// and a TierIndex fed by the events of those who tell; a TtlIndex fed by decisions for the others
/// (for all, if the configuration says so); and another one for what events will confirm soon. Adds
/// the lock of the writers, the clock, the metrics and how far each worker can be trusted.
///
/// Thread-safe. An event is applied on the thread that brings it, under a lock that only writers
/// take: decisions are never kept waiting by events. Lookups take no lock unless some worker holds
/// blocks in a lower tier.
class IndexService final : public KvIndex {
 public:
  /// kInvalidArgument for an unknown kind or a time to live that is too short.
  static Result<std::unique_ptr<IndexService>> create(const IndexConfig& config, const Clock& clock,
                                                      Metrics& metrics);
  ~IndexService() override;

  /// Only known workers' events are taken, so that none leaves blocks behind when it is gone. A
  /// known worker keeps its source.
  void add_worker(WorkerKey worker, Source source) override;
  using KvIndex::add_worker;
  void remove_worker(WorkerKey worker) override;
  Applied apply(WorkerKey worker, const kv::KvEvent& event) override;
  /// The same for what a worker tells of all its ranks, in order: one lock and one measurement for
  /// all of it, or for so much (kBatchBlocks) that others who write or look at lower tiers do not
  /// wait for long. An event of kAllRanks clears the worker.
  void apply(WorkerId worker, std::span<const kv::KvEvent> events);
  static constexpr uint32_t kAllRanks = UINT32_MAX;
  static constexpr size_t kBatchBlocks = 16 * 1024;
  /// That an event names.
  static size_t block_count(const kv::KvEvent& event);
  void on_routed(WorkerKey worker, std::span<const blocks::SequenceHash> sequences) override;
  void find_longest_match(std::span<const blocks::SequenceHash> sequences,
                          std::vector<Overlap>& out) const override;
  using KvIndex::find_longest_match;
  uint64_t holder_blocks() const override;

  /// kApproximate for a worker that is not known.
  Trust trust(WorkerKey worker) const;
  const std::atomic<Trust>* trust_of(WorkerKey worker) const override;

  /// What the events have told; empty if the index does not follow any. Writers wait meanwhile,
  /// about 10 ms per million blocks; lookups do not.
  std::string save() const;
  /// What `save` gave in an earlier life, before the first lookup or event. Its workers are
  /// degraded when they come, until they start over, and forgotten if they do not come within the
  /// configured grace. kCorrupt changes nothing.
  Status restore(std::string_view content);
  /// Forgets restored workers whose time is up. Cheap; every second or so.
  void tick();

 private:
  /// This model's part of a gauge that all models of the process share.
  class Level {
   public:
    explicit Level(Gauge gauge) : gauge_(gauge) {}
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { gauge_.add(-static_cast<double>(value_)); }
    void set(uint64_t value) {
      gauge_.add(static_cast<double>(value) - static_cast<double>(value_));
      value_ = value;
    }

   private:
    Gauge gauge_;
    uint64_t value_ = 0;
  };
  struct Instruments {
    explicit Instruments(Metrics& metrics);
    std::array<std::array<Counter, kAppliedCount>, 3> applied;  ///< by event, by what became of it
    std::array<Gauge, kTrustCount> workers;
    Level blocks;
    Level tier_blocks;
    Level bytes;
    Level private_names;
    Level restored_workers;
    Level unheard_workers;
    Counter duplicate_stores;
    Counter differing_names;
    Counter undeclared_ranks;
    Counter evicted;
    Counter expired;
    Counter pruned;
    Gauge waiting_events;
    Histogram apply_ms;
    Histogram find_ms;
  };
  struct Known {
    Source source;
    bool heard = false;                         // has told something
    std::unique_ptr<std::atomic<Trust>> trust;  // routers read it without the lock
  };

  IndexService(const IndexConfig& config, const Clock& clock, Metrics& metrics);
  /// Applies under the lock, with the clock and what all events of a batch share.
  template <typename Batch>
  void measure(size_t events, Batch&& batch) STATOR_EXCLUDES(mutex_);
  Applied apply_and_count(WorkerKey worker, const kv::KvEvent& event) STATOR_REQUIRES(mutex_);
  void clear_ranks(WorkerId worker) STATOR_REQUIRES(mutex_);
  Applied apply_locked(WorkerKey worker, const kv::KvEvent& event) STATOR_REQUIRES(mutex_);
  Applied apply_to_chains(WorkerKey worker, const kv::KvEvent& event) STATOR_REQUIRES(mutex_);
  void set_trust(WorkerKey worker, Trust trust) STATOR_REQUIRES(mutex_);
  void add_guesses(const TtlIndex& from, std::span<const blocks::SequenceHash> sequences,
                   std::vector<Overlap>& out) const;
  void report() STATOR_REQUIRES(mutex_);
  void expire(TimePoint now) const STATOR_EXCLUDES(mutex_);

  const IndexConfig config_;
  const Clock& clock_;
  Instruments instruments_;

  mutable Mutex mutex_;
  // Looked up by any thread, changed under the lock.
  std::unique_ptr<ChainIndex> chains_;   // null: nobody's events are followed
  std::unique_ptr<TtlIndex> guesses_;    // of workers that tell nothing
  std::unique_ptr<TtlIndex> predicted_;  // null: what events will say is not anticipated
  std::atomic<size_t> guessed_workers_{0};
  TierIndex tiers_ STATOR_GUARDED_BY(mutex_);
  std::atomic<bool> has_tiers_{false};
  mutable std::atomic<int64_t> expired_at_{0};  ///< the last tick at which guesses were asked to
  FlatMap<WorkerKey, Known> known_ STATOR_GUARDED_BY(mutex_);
  size_t unheard_ STATOR_GUARDED_BY(mutex_) = 0;  // of those whose events are followed
  FlatMap<WorkerId, uint32_t> ranks_ STATOR_GUARDED_BY(mutex_);  // of each, 1 + the highest ever
  FlatSet<WorkerKey> restored_ STATOR_GUARDED_BY(mutex_);        // known only from an earlier life
  TimePoint grace_end_ STATOR_GUARDED_BY(mutex_);
  uint64_t evicted_ STATOR_GUARDED_BY(mutex_) = 0;  // as far as counted
  TtlIndex::Stats ttl_counted_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::router
