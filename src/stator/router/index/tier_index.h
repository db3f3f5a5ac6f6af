// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/router/index/holder_sets.h"
#include "stator/router/kv_index.h"

namespace stator::router {

/// Which worker holds which blocks below its device: in host memory, on disk, in an object store.
/// A block there is of use if all before it are on the device or in a tier, so a match goes on
/// where the device's ends, tier after tier.
///
/// I1–I3 of KvIndex hold per tier. About 40 bytes per (block, holder), 30 more where a worker's
/// names are not the sequence hashes; at `blocks_max` (pairs, or such names)
/// further stores are refused, which under-counts.
///
/// A pure core for one thread. Leaving workers cost a look at every block.
class TierIndex {
 public:
  explicit TierIndex(uint64_t blocks_max = 4ULL << 20) : blocks_max_(blocks_max) {}

  /// An event of a tier below the device, or AllCleared. `parent`: what the worker calls by the
  /// name of the stored run's parent, if its device holds that.
  Applied apply(WorkerKey worker, const kv::KvEvent& event,
                std::optional<blocks::SequenceHash> parent);
  void remove_worker(WorkerKey worker);

  /// Adds to every worker's match what its tiers hold behind it, and workers that have only that.
  void extend(std::span<const blocks::SequenceHash> sequences,
              std::vector<Overlap>& overlaps) const;

  /// (block, holder) pairs now stored, all tiers.
  uint64_t holder_blocks() const { return count_; }

 private:
  static constexpr size_t kTiers = 3;
  struct Worker {
    WorkerKey key;
    uint64_t blocks = 0;
    /// Only names that are not the sequence hash.
    FlatMap<blocks::ExternalHash, blocks::SequenceHash> names;
  };
  /// How far one worker's match reaches while it is extended.
  struct Front {
    Slot slot = 0;
    uint32_t reach = 0;
    bool listed = false;  ///< has a match on its device
    std::array<uint32_t, kTiers> gained{};
  };

  Applied store(Slot slot, size_t tier, const kv::BlocksStored& run,
                std::optional<blocks::SequenceHash> parent);
  Applied remove(Slot slot, size_t tier, const kv::BlocksRemoved& run);
  Slot slot_of(WorkerKey worker);
  std::optional<blocks::SequenceHash> resolve(Slot slot, blocks::ExternalHash name) const;
  bool holds(Slot slot, size_t tier, blocks::SequenceHash block) const;
  bool holds_anywhere(Slot slot, blocks::SequenceHash block) const;
  bool add(Slot slot, size_t tier, blocks::SequenceHash block);
  bool drop(Slot slot, size_t tier, blocks::SequenceHash block);
  void name(Slot slot, blocks::ExternalHash name, blocks::SequenceHash block);
  void set_holders(size_t tier, blocks::SequenceHash block, SetId before, SetId after);
  bool advance(size_t tier, blocks::SequenceHash block, uint32_t depth,
               std::vector<Front>& fronts) const;

  const uint64_t blocks_max_;
  std::array<FlatMap<blocks::SequenceHash, SetId>, kTiers> holders_;
  HolderSets sets_;
  std::vector<Worker> workers_;  // by slot
  std::vector<Slot> free_slots_;
  FlatMap<WorkerKey, Slot> slot_by_worker_;
  uint64_t count_ = 0;
  uint64_t names_ = 0;
};

}  // namespace stator::router
