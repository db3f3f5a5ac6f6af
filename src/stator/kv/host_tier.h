// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/kv/block_id.h"
#include "stator/kv/block_identity.h"
#include "stator/kv/content_index.h"
#include "stator/kv/event.h"
#include "stator/kv/eviction_order.h"

namespace stator::kv {

/// One copy of a block's bytes between the device and host memory.
struct BlockCopy {
  enum class Direction : uint8_t { kToHost, kToDevice };
  Direction direction = Direction::kToHost;
  BlockId block;      ///< on the device
  uint32_t slot = 0;  ///< in host memory, 0 … HostTier::total_blocks() − 1
};

/// The host tier (G2) of one engine: which blocks that left the device have a copy in host memory,
/// and which copy is dropped next: the least recently used one, or, in other orders, of those that
/// no copy stands behind the one that EvictionOrder says. Like BlockPool it is bookkeeping only: it
/// says what to copy, the model runner does. Pure; one thread.
///
///   BlockPool pool(blocks, events, &host);        // offers every block it evicts
///   const auto slots = host.hold(host.match(last content of the device's, blocks behind it));
///   … for each: host.load(slot, pool.allocate().id()) …
///   runner.copy_blocks(host.take_copies());       // in order, before anything is computed
///
/// H1  A slot is free, or holds one block; a block has at most one slot.
/// H2  Held slots (between hold() and load()) are never given to another block.
/// H3  The copies, done in order, leave in every slot the bytes of the block it is said to hold.
/// H4  The events taken so far, applied in order, give exactly the names of blocks with a slot.
/// H5  The content in front of a copy is on the device or has a copy, too, so what the events name
///     can be found: a device evicts tails first, so a copy is older than that of what is in front
///     of it, unless that is on the device; and nothing is dropped for want of room while a copy is
///     not held.
class HostTier {
 public:
  /// Whether anybody will call take_events(). Off: nothing is recorded.
  enum class Events : uint8_t { kRecord, kOff };

  explicit HostTier(uint32_t total_blocks, Events events = Events::kRecord,
                    Eviction eviction = Eviction::kLru);

  uint32_t total_blocks() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t stored_blocks() const { return static_cast<uint32_t>(contents_.size()); }

  /// A block of the device, as its pool knows it.
  struct DeviceBlock {
    BlockId block;
    ContentId content;
    ContentId parent;  ///< 0: the first of its sequence
    BlockIdentity identity;
    std::optional<blocks::SequenceHash> parent_name;
    EvictionOrder::Facts facts{};  ///< what the device knows; its `released` is not used
  };
  /// The device is about to reuse the block. Drops the oldest copy when all slots are taken;
  /// nothing is copied when all are held, or when there is a copy already.
  void store(const DeviceBlock& block);
  /// Blocks `begin` and later of a sequence, which stand behind content `parent`.
  struct Tail {
    const SequenceBlocks& sequence;
    size_t begin = 0;
    ContentId parent;
  };
  /// How many of the first blocks there have a copy.
  uint32_t match(const Tail& tail) const;
  /// The slots of the first `count` of them, which have copies; they stay until load().
  std::vector<uint32_t> hold(const Tail& tail, uint32_t count);
  /// Copies a held slot to the device; it is the most recently used one from now on.
  void load(uint32_t slot, BlockId block);
  /// Up to `count` slots for blocks that come from elsewhere than the device, dropping the oldest
  /// copies; nobody else gets them until give_back() or adopt().
  std::vector<uint32_t> reserve(uint32_t count);
  void give_back(uint32_t slot);
  /// A reserved slot holds this block from now on; it is not yet in the order of use, see use().
  /// False: refused, and given back.
  bool adopt(uint32_t slot, const DeviceBlock& block);
  /// The slot with this content.
  std::optional<uint32_t> find(ContentId parent, const BlockIdentity& identity) const {
    return contents_.find(parent, identity);
  }
  ContentId content(uint32_t slot) const { return contents_.content(slot); }
  /// Makes the slots, which have contents, the most recently used ones, the last one first.
  void use(std::span<const uint32_t> slots);

  /// The content id of a copy, for a block that has the same content on the device.
  std::optional<ContentId> find_content(ContentId parent, const BlockIdentity& identity) const;
  /// Forgets everything, without an event: AllCleared speaks for all tiers. No slot is held.
  void clear();

  /// Since the last call, in order.
  std::vector<BlockCopy> take_copies();
  std::vector<KvEventData> take_events();

  uint64_t stored_total() const { return stored_total_; }
  uint64_t loaded_total() const { return loaded_total_; }
  uint64_t dropped_total() const { return dropped_total_; }  ///< for room, or never stored

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    uint32_t older = kNone;
    uint32_t newer = kNone;
    bool linked = false;    // in the order of use
    bool reserved = false;  // by reserve()
  };

  std::optional<uint32_t> take_slot();
  void push_newest(uint32_t slot);
  void unlink(uint32_t slot);
  bool has_copies_behind(uint32_t slot) const;
  void begin_order(uint32_t slot, const DeviceBlock& block);
  void end_order(uint32_t slot);
  void record_stored(const BlockIdentity& identity, std::optional<blocks::SequenceHash> parent);
  void record_removed(blocks::SequenceHash hash);

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  ContentIndex contents_;
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  // For all orders but LRU, which is the list above.
  std::optional<EvictionOrder> order_;
  std::vector<EvictionOrder::Facts> facts_;  // by slot
  FlatMap<ContentId, uint32_t> slot_of_;     // of every copy
  FlatMap<ContentId, uint32_t> behind_;      // how many copies stand behind a content
  uint64_t uses_ = 0;
  Events record_;
  std::vector<BlockCopy> copies_;
  std::vector<KvEventData> events_;
  uint64_t stored_total_ = 0;
  uint64_t loaded_total_ = 0;
  uint64_t dropped_total_ = 0;
};

}  // namespace stator::kv
