// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/kv/event.h"

namespace stator::router {

/// How many leading blocks of one request a worker holds: `blocks` on its device, and behind them
/// as many more in slower tiers, each going on where the one before ends.
struct Overlap {
  WorkerKey worker;
  uint32_t blocks = 0;
  uint32_t host_blocks = 0;
  uint32_t disk_blocks = 0;
  uint32_t external_blocks = 0;
  friend bool operator==(const Overlap&, const Overlap&) = default;
};

/// What became of an event, for metrics and for the follower that decides about a resync.
enum class Applied : uint8_t {
  kOk,
  kUnknownParent,  ///< a run hangs in the air: nothing of it was stored (under-counts, never over)
  kUnknownBlock,   ///< removal of something we did not know; harmless
  kIgnoredTier,    ///< not the device tier
  kOverBudget,     ///< the index is full: the run was not stored
  kNotFollowed,    ///< the index does not learn from this worker's events
  kUnknownWorker,  ///< nobody has announced this worker, or this rank of it
};
inline constexpr size_t kAppliedCount = 7;

/// How far what an index says about one worker can be believed. It never says too much about an
/// exact one or about one whose events were lost; of an approximate one it only guesses.
enum class Trust : uint8_t {
  kExact,        ///< every event was applied
  kDegraded,     ///< some could not be, so the worker holds more than is known; or what is known is
                 ///< from before a restart of ours. Until it starts over
  kApproximate,  ///< told by our own decisions, not by the worker
};
inline constexpr size_t kTrustCount = 3;
std::string_view describe(Trust trust);

/// How an index learns what one worker has.
enum class Source : uint8_t {
  kEvents,     ///< from its own word
  kDecisions,  ///< it tells nothing: guessed from what it was sent
};

/// Which worker holds which blocks, fed by the workers' own events.
///
/// I1  A worker's overlap never exceeds the leading blocks it reported stored and not yet removed.
/// I2  Blocks match by content (chained local hashes), so workers that name equal content by
///     different external ids are all found, and each removes by its own ids.
/// I3  After remove_worker or AllCleared nothing of that worker is left.
class KvIndex {
 public:
  virtual ~KvIndex() = default;
  /// This worker is there from now on. Indexes that take any need not be told.
  virtual void add_worker(WorkerKey /*worker*/, Source /*source*/) {}
  void add_worker(WorkerKey worker) { add_worker(worker, Source::kEvents); }
  /// How far what is said of a known worker can be believed, now and later, until remove_worker.
  /// Null: always exactly.
  virtual const std::atomic<Trust>* trust_of(WorkerKey /*worker*/) const { return nullptr; }
  virtual Applied apply(WorkerKey worker, const kv::KvEvent& event) = 0;
  /// A request with these blocks was sent there: the worker will hold them soon. Ignored by indexes
  /// that wait for the event.
  virtual void on_routed(WorkerKey /*worker*/,
                         std::span<const blocks::SequenceHash> /*sequences*/) {}
  virtual void remove_worker(WorkerKey worker) = 0;
  /// Longest cached prefix per worker, in no particular order, into `out` (cleared first, so that
  /// its memory is reused). `sequences` are the chained hashes of the request's blocks in order;
  /// scanning stops at the first block nobody holds. Workers without overlap are omitted.
  virtual void find_longest_match(std::span<const blocks::SequenceHash> sequences,
                                  std::vector<Overlap>& out) const = 0;
  std::vector<Overlap> find_longest_match(std::span<const blocks::SequenceHash> sequences) const {
    std::vector<Overlap> out;
    find_longest_match(sequences, out);
    return out;
  }
  /// (block, holder) pairs now stored.
  virtual uint64_t holder_blocks() const = 0;
};

/// The exact, simple implementation: one hash map from content to holders. It is the oracle every
/// faster index is tested against. O(blocks × holders) per lookup. Not thread-safe.
/// About 100 bytes per (block, holder) pair; at `holder_blocks_max` further stores are refused and
/// counted, which only under-counts.
class ExactIndex final : public KvIndex {
 public:
  explicit ExactIndex(uint64_t holder_blocks_max = 16ULL << 20);

  Applied apply(WorkerKey worker, const kv::KvEvent& event) override;
  void remove_worker(WorkerKey worker) override;
  void find_longest_match(std::span<const blocks::SequenceHash> sequences,
                          std::vector<Overlap>& out) const override;
  using KvIndex::find_longest_match;
  uint64_t holder_blocks() const override { return holder_blocks_; }

 private:
  using Domain = FlatMap<blocks::ExternalHash, blocks::SequenceHash>;

  Applied store(WorkerKey worker, const kv::BlocksStored& run);
  Applied remove(WorkerKey worker, const kv::BlocksRemoved& run);
  void drop_holder(blocks::SequenceHash block, WorkerKey worker);

  uint64_t holder_blocks_max_;
  uint64_t holder_blocks_ = 0;
  FlatMap<blocks::SequenceHash, std::vector<WorkerKey>> holders_;
  FlatMap<WorkerKey, Domain> domains_;  // each worker's own names for the content it holds
};

}  // namespace stator::router
