// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/storage/aligned_buffer.h"
#include "stator/storage/block_store.h"
#include "stator/storage/disk_tier.h"
#include "stator/storage/io_pool.h"
#include "stator/storage/tier_changes.h"
#include "stator/storage/tier_flow.h"

namespace stator::storage {

struct LowerTiersOptions {
  Digest space{};
  uint64_t block_bytes = 0;
  uint32_t block_tokens = 0;
  uint32_t io_threads = 4;
  uint64_t bounce_bytes = uint64_t{32} << 20;  ///< of blocks on their way down
  SaveSource saves_from = SaveSource::kDevice;
  size_t recovered_told_max =
      65'536;  ///< blocks found on disk whose headers are read for changes()
};

/// The tiers below host memory, as the engines of a process see them: a disk, a store of this host,
/// an object store, in this order. Loads and saves run on its own threads.
///
/// T1  A load that reports a block has verified it: namespace, name, check, tokens, checksum.
/// T2  At most `bounce_bytes` of blocks are on their way down; save() refuses beyond.
/// T3  A store that fails kTripErrors times in a row is left alone for kTripTime: serving goes on.
/// Thread-safety: all methods, any thread; none blocks but settle() and the destructor.
class LowerTiers {
 public:
  /// `disk` and the stores may be null; they fall with this.
  LowerTiers(const LowerTiersOptions& options, std::unique_ptr<DiskTier> disk,
             std::vector<std::unique_ptr<BlockStore>> stores, Clock& clock, Metrics& metrics);
  ~LowerTiers();
  LowerTiers(const LowerTiers&) = delete;
  LowerTiers& operator=(const LowerTiers&) = delete;

  struct Known {
    size_t blocks = 0;  ///< of the first: they are on disk
    bool ask = false;   ///< a store may know more: probe()
  };
  /// Uses them. Microseconds.
  Known known(std::span<const BlockName> names);
  /// How many of the first blocks are on disk or in a store. `done` runs on a thread of this.
  void probe(std::vector<BlockName> names, std::function<void(size_t)> done);

  struct Load {
    std::vector<BlockName> names;
    std::vector<TokenId> tokens;               ///< of all, block_tokens each; empty: unknown
    std::vector<std::span<std::byte>> places;  ///< parallel: block_bytes each, the caller's
    /// How many of the first blocks are in their places. Called once, on a thread of this.
    std::function<void(size_t)> done;
  };
  void load(Load load);

  /// Whether a tier lacks it, none is being written, and there is room on the way down.
  bool wants(const BlockName& name) const;
  struct Block {
    BlockName name;
    kv::LineageHash parent;
    std::span<const TokenId> tokens;
    std::span<const std::byte> payload;
    blocks::LocalHash local{};  ///< of its tokens; 0: unknown, and nobody is told of it
  };
  /// Copies the bytes and writes them later. False: no room on the way down.
  bool save(const Block& block);
  /// Calls `wake` whenever there is room again, from a thread of this, until off_room() returns.
  void on_room(const void* owner, std::function<void()> wake);
  void off_room(const void* owner);

  /// Nothing is on its way down.
  bool idle() const;
  /// Returns when nothing is on its way.
  void settle() { pool_->settle(); }
  const LowerTiersOptions& options() const { return options_; }
  /// What disk and object store hold, as far as it is known.
  TierChanges& changes() { return changes_; }
  const DiskTier* disk() const { return disk_.get(); }
  DiskTier* disk() { return disk_.get(); }
  /// Blocks loaded so far, by tier: disk, then the stores.
  uint64_t loaded_total() const { return loaded_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kTripErrors = 5;
  static constexpr Duration kTripTime = std::chrono::seconds(10);
  static constexpr size_t kBatchMax = 32;  // blocks that one thread reads at once

  struct Store {
    std::unique_ptr<BlockStore> store;
    std::atomic<uint32_t> errors{0};
    std::atomic<int64_t> closed_until_ns{0};
    std::unique_ptr<TierFlow> flow;
    bool is_object = false;  ///< what it gets it keeps: blocks in it are told
  };
  struct Saving;
  struct Loading;

  bool open(const Store& store) const;
  void judge(Store& store, const Status& outcome);
  void load_some(Loading& loading, size_t begin, size_t end);
  Status load_elsewhere(const BlockName& name, std::span<const TokenId> tokens,
                        std::span<std::byte> place);
  Status load_from(Store& store, const BlockName& name, std::span<const TokenId> tokens,
                   std::span<std::byte> place);
  void write_down(Saving& saving);
  bool put(Store& store, const Saving& saving, std::span<const std::byte> record);
  void tell_recovered(std::vector<JournalRecord> records, size_t begin);
  void release(const Saving& saving);

  const LowerTiersOptions options_;
  Clock& clock_;
  TierChanges changes_;
  std::unique_ptr<DiskTier> disk_;
  std::vector<std::unique_ptr<Store>> stores_;
  const size_t bounces_max_;
  std::atomic<uint64_t> loaded_{0};
  std::atomic<bool> stopping_{false};

  mutable Mutex mutex_;
  FlatSet<kv::LineageHash> saving_ STATOR_GUARDED_BY(mutex_);
  /// Names whose blocks every store has, by its own word; forgotten all at once when full.
  FlatSet<kv::LineageHash> shared_ STATOR_GUARDED_BY(mutex_);
  FlatMap<const void*, std::function<void()>> wakes_ STATOR_GUARDED_BY(mutex_);

  std::unique_ptr<TierFlow> disk_flow_;  // null: no disk
  std::unique_ptr<HitWindow> hits_;      // rows: the disk, if there is one, then the stores
  Histogram load_seconds_;
  Gauge queued_;
  std::unique_ptr<IoPool> pool_;  // last: its threads use the rest
};

}  // namespace stator::storage
