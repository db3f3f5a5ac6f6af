// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/result.h"
#include "stator/router/index/chain_index.h"
#include "stator/router/kv_index.h"

namespace stator::router {

/// What workers probably hold, for workers that send no KV events: the blocks of the requests that
/// were sent to them, for a while. Also bridges the moment between a decision and the event it
/// causes, with a short time to live.
///
/// T1  A block is forgotten `ttl` after the worker was last sent a request that begins with it (up
///     to one tick later), and never before a block that it comes before.
/// T2  A worker has at most `blocks_per_worker_max` blocks, and all together take at most
///     `bytes_max`, half of it for the chains: beyond that those not used for longest go first, and
///     are counted.
///
/// The blocks themselves are in a ChainIndex, so threads are as there: one writer, any readers.
class TtlIndex final : public KvIndex {
 public:
  struct Config {
    Duration ttl = std::chrono::seconds(120);
    uint32_t blocks_per_worker_max = 31'250;  ///< 500 k tokens in 16-token blocks, as llm-d has it
    uint64_t bytes_max = 256ULL << 20;
  };
  struct Stats {
    uint64_t expired_blocks = 0;
    uint64_t pruned_blocks = 0;  ///< forgotten for T2
  };
  /// An entry and its place in the worker's map, with room that growing vectors keep.
  static constexpr uint64_t kBytesPerBlock = 84;
  /// Expiry is looked at once per tick.
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  static Result<std::unique_ptr<TtlIndex>> create(const Config& config);

  // Writer.
  /// Only AllCleared means something here; else kNotFollowed.
  Applied apply(WorkerKey worker, const kv::KvEvent& event) override;
  void remove_worker(WorkerKey worker) override;
  /// A `now` before an earlier one counts as that.
  void record(WorkerKey worker, std::span<const blocks::SequenceHash> sequences, TimePoint now);
  /// Forgets what is due. O(workers + forgotten blocks), and nothing to do more than once a tick.
  void expire(TimePoint now);
  /// How often each of these blocks was sent anywhere, as long as never a time to live passed
  /// between two of them at one worker; ends with the first that nobody is supposed to hold.
  /// O(blocks · workers).
  std::vector<uint64_t> frequencies(std::span<const blocks::SequenceHash> sequences) const;
  const Stats& stats() const { return stats_; }
  uint64_t holder_blocks() const override { return count_; }
  size_t memory_bytes() const;

  // Any thread.
  void find_longest_match(std::span<const blocks::SequenceHash> sequences,
                          std::vector<Overlap>& out) const override {
    chains_->find_longest_match(sequences, out);
  }
  using KvIndex::find_longest_match;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A worker's entries form a list from the block used last to the one unused for longest.
  struct Entry {
    blocks::SequenceHash sequence;
    uint32_t used = 0;  ///< tick
    uint32_t uses = 0;
    uint32_t newer = kNone;
    uint32_t older = kNone;
  };
  struct Worker {
    WorkerKey key;
    FlatMap<blocks::SequenceHash, uint32_t> entries;
    uint32_t newest = kNone;
    uint32_t oldest = kNone;
  };

  TtlIndex(const Config& config, std::unique_ptr<ChainIndex> chains)
      : config_(config), chains_(std::move(chains)) {}

  Worker& worker_of(WorkerKey key);
  void touch(Worker& worker, blocks::SequenceHash sequence);
  void unlink(Worker& worker, uint32_t id);
  blocks::ExternalHash take_oldest(Worker& worker);
  void forget(Worker& worker, std::vector<blocks::ExternalHash> gone);
  void prune(Worker& worker);

  const Config config_;
  std::unique_ptr<ChainIndex> chains_;
  std::vector<std::unique_ptr<Worker>> workers_;
  FlatMap<WorkerKey, size_t> worker_at_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  uint64_t count_ = 0;
  size_t map_slots_ = 0;
  size_t prune_next_ = 0;
  uint32_t tick_ = 0;
  Stats stats_;
};

}  // namespace stator::router
