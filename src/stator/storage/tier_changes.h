// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"
#include "stator/kv/event.h"
#include "stator/storage/block_name.h"

namespace stator::storage {

/// A block came into a tier below host memory, or left it.
struct TierChange {
  kv::StorageTier tier = kv::StorageTier::kDisk;
  bool stored = true;
  blocks::SequenceHash sequence;
  std::optional<blocks::SequenceHash> parent;  ///< stored: of the block in front
  blocks::LocalHash local;                     ///< stored: of its own tokens
};

/// What the tiers below host memory hold, as routers are told: KV events are made of it. A block is
/// told only when the one in front of it was told and is still there, so that events never name a
/// parent that nobody has heard of; one that comes before its parent, as threads write them, waits
/// for that. What is left out is a prefix that is told too short.
///
/// C1  Replayed to a new listener, what is held comes parents first.
/// C2  What stands behind a block that leaves, leaves with it.
/// C3  At most kOrphansMax blocks per tier wait for their parents; beyond, they are not told.
/// C4  At most `blocks_max` blocks are held per tier; beyond, blocks are not told.
/// Thread-safe. Listeners are called under the lock: they may only queue what they are given.
class TierChanges {
 public:
  static constexpr size_t kOrphansMax = 4096;

  explicit TierChanges(size_t blocks_max = size_t{1} << 20) : blocks_max_(blocks_max) {}

  using Listener = std::function<void(std::span<const TierChange>)>;
  /// Tells `listener` what is held, and from then on what changes, until unsubscribe() returns.
  void subscribe(const void* owner, Listener listener);
  void unsubscribe(const void* owner);

  /// `parent`: its lineage, of position 0 for none.
  void stored(kv::StorageTier tier, const kv::LineageHash& lineage, const kv::LineageHash& parent,
              blocks::LocalHash local);
  void removed(kv::StorageTier tier, const kv::LineageHash& lineage);
  size_t held(kv::StorageTier tier) const;

 private:
  struct Held {
    std::optional<blocks::SequenceHash> parent;
    blocks::LocalHash local;
    uint32_t position = 0;
    uint32_t children = 0;  // held blocks right behind it
  };
  using Tier = FlatMap<blocks::SequenceHash, Held>;
  struct Orphan {
    kv::LineageHash lineage;
    kv::LineageHash parent;
    blocks::LocalHash local;
  };

  bool hold(kv::StorageTier tier, const Orphan& block) STATOR_REQUIRES(mutex_);
  void tell(const TierChange& change) STATOR_REQUIRES(mutex_);
  void drop(kv::StorageTier tier, blocks::SequenceHash block) STATOR_REQUIRES(mutex_);
  void remove_behind(kv::StorageTier tier, blocks::SequenceHash block) STATOR_REQUIRES(mutex_);

  const size_t blocks_max_;
  mutable Mutex mutex_;
  Tier tiers_[kv::kStorageTierCount] STATOR_GUARDED_BY(mutex_);
  std::vector<Orphan> orphans_[kv::kStorageTierCount] STATOR_GUARDED_BY(mutex_);
  FlatMap<const void*, Listener> listeners_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::storage
