// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/storage/block_name.h"

namespace stator::storage {

/// Which slot of a store holds which block, and which goes next. Pure; its owner locks.
///
///            reserve()             publish()                  reserve() of another
///     Free ─────────────► Filling ─────────────► Stored ───────────────────────────► Filling
///       ▲                    │                     │
///       └── abandon() ───────┘◄──── erase() ───────┘
///
/// X1  A slot is in exactly one state; Free + Filling + Stored = slots.
/// X2  A lineage hash has at most one slot that is Filling or Stored.
/// X3  A block is found only when it is Stored. A pinned slot (a read is under way) is never
///     reserved for another block; erase() of one takes effect with the last unpin().
/// X4  Among stored blocks a child is less recently used than its parent, unless the parent came
///     later: so tails go before heads. match() uses a chain tail first; a new block stands right
///     behind its parent.
///
/// Cost: O(1) per block; about 100 bytes per slot.
class SlotIndex {
 public:
  explicit SlotIndex(uint32_t slots);

  uint32_t slots() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t stored() const { return stored_; }
  uint64_t evicted_total() const { return evicted_total_; }

  /// The slot of a stored block with just this name.
  std::optional<uint32_t> find(const BlockName& name) const;
  /// The name of the stored block with this lineage hash.
  std::optional<BlockName> find(const kv::LineageHash& lineage) const;
  /// Something is stored or on its way under this lineage hash, perhaps of other tokens.
  bool knows(const kv::LineageHash& lineage) const { return by_lineage_.contains(lineage); }
  /// How many of the first blocks are stored; they are the most recently used from now on.
  size_t match(std::span<const BlockName> names);

  struct Reserved {
    uint32_t slot = 0;
    std::optional<BlockName> evicted;
  };
  /// A slot for a block that is not known; nothing when all are filling or pinned.
  std::optional<Reserved> reserve(const BlockName& name, const kv::LineageHash& parent);
  void publish(uint32_t slot);
  void abandon(uint32_t slot);
  /// What a slot holds already when its store opens.
  struct Held {
    uint32_t slot = 0;
    BlockName name;
    kv::LineageHash parent;
  };
  /// Fills an index that is empty, oldest first; slots or names that are taken are left out.
  void adopt(std::span<const Held> held);
  /// Forgets a stored block.
  void erase(uint32_t slot);

  void pin(uint32_t slot) { ++entries_[slot].pins; }
  void unpin(uint32_t slot);

  bool is_stored(uint32_t slot) const { return entries_[slot].state == State::kStored; }
  const BlockName& name(uint32_t slot) const { return entries_[slot].name; }
  const kv::LineageHash& parent(uint32_t slot) const { return entries_[slot].parent; }
  /// Stored slots, least recently used first.
  std::vector<uint32_t> by_age() const;
  /// Aborts when X1 or X2 is broken. O(slots); for tests.
  void check_invariants() const;

 private:
  enum class State : uint8_t { kFree, kFilling, kStored, kErased };
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    BlockName name;
    kv::LineageHash parent;
    uint32_t older = kNone;
    uint32_t newer = kNone;
    uint32_t pins = 0;
    State state = State::kFree;
  };

  std::optional<uint32_t> oldest_unpinned() const;
  void make_free(uint32_t slot);
  void link(uint32_t slot);
  void link_newest(uint32_t slot);
  void link_before(uint32_t slot, uint32_t newer);
  void unlink(uint32_t slot);

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  FlatMap<kv::LineageHash, uint32_t> by_lineage_;
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  uint32_t stored_ = 0;
  uint64_t evicted_total_ = 0;
};

}  // namespace stator::storage
