// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/storage/block_name.h"

namespace stator::connectors {

/// Which slot of host memory (G2) holds which block. Pure bookkeeping: the bytes are the caller's.
///
///            take()                publish()               last unpin()
///   free ───────────► filling ───────────────► held ───────────────────► idle
///     ▲                  │ last unpin()          ▲        pin()            │
///     └──────────────────┴──────────── take() evicts the least recent ◄────┘
///
/// H1  free + filling + held + idle = slots.
/// H2  Only published slots are found, and only under name and check together.
/// H3  A pinned slot is never given to another block.
/// Not thread-safe.
class HostBlocks {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit HostBlocks(uint32_t slots);

  /// The slot of a published block, else kNone.
  uint32_t find(const storage::BlockName& name) const;
  /// A slot to fill, pinned once: a free one, else that of the least recently used idle block.
  /// kNone: every slot is pinned.
  uint32_t take();
  /// The slot's block is complete. False: the name is taken, the slot stays as it is.
  bool publish(uint32_t slot, const storage::BlockName& name, uint32_t crc);
  void pin(uint32_t slot);
  void unpin(uint32_t slot);
  /// Larger stamps are evicted later. Of a chain the first block should have the largest.
  void touch(uint32_t slot, uint64_t stamp);
  /// A published block that turned out to be damaged: not found any more, free when unpinned.
  void forget(uint32_t slot);

  uint32_t crc(uint32_t slot) const { return slots_[slot].crc; }
  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  /// Published blocks.
  uint32_t stored() const { return static_cast<uint32_t>(by_name_.size()); }
  uint32_t pinned() const { return pinned_; }
  uint64_t evicted_total() const { return evicted_; }

 private:
  struct Slot {
    storage::BlockName name;
    uint64_t stamp = 0;
    uint32_t pins = 0;
    uint32_t crc = 0;
    bool published = false;
  };

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::set<std::pair<uint64_t, uint32_t>> idle_;  // stamp, slot
  FlatMap<kv::LineageHash, uint32_t> by_name_;
  uint32_t pinned_ = 0;  // slots with pins
  uint64_t evicted_ = 0;
};

}  // namespace stator::connectors
