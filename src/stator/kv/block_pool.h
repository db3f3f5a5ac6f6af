// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/kv/block_handle.h"
#include "stator/kv/block_id.h"
#include "stator/kv/block_identity.h"
#include "stator/kv/content_index.h"
#include "stator/kv/event.h"
#include "stator/kv/eviction_order.h"
#include "stator/kv/host_tier.h"

namespace stator::kv {

/// The device tier (G1) of one engine: who uses which KV block, which idle blocks can be reused for
/// a prefix, and which is evicted next. Pure: no I/O, clock or lock; one thread. It hands out
/// indices and never touches the bytes; the arena belongs to the model runner.
///
///            allocate()             register_block()            last handle dropped
///     Reset ────────────► Partial ─────────────────► Registered ───────────────────► Inactive
///       ▲                    │                         │    ▲                         │  │
///       │                    │ register_block()        │    └──── match_prefix() ─────┘  │
///       │                    │ behind a private block  │ reset()                         │
///       │                    ▼                         │                                 │
///       │◄──last handle── Complete ◄───────────────────┘                                 │
///       │◄──last handle, or register_block() of a duplicate── Partial                    │
///       └◄──allocate() evicts one, or reset()────────────────────────────────────────────┘
///
/// Partial: one writer. Complete: full but private, never found. Registered: in use and findable.
/// Inactive: idle, findable, evicted in the order of `eviction`, children before parents.
///
/// P1  Every block is in exactly one state; used + cached + free = total.
/// P2  A block has references iff it is Partial (exactly one), Complete or Registered.
/// P3  The registry has each findable block under its content: the block in front of it, its tokens
///     and, for a first block, whose they are. Blocks are found by comparing these, never by their
///     64-bit hashes, of which anybody finds two alike.
/// P4  The parent of a findable block is findable. (Chains hold all ancestors and give back in
///     reverse order, so children become idle, and are evicted, first.)
/// P5  The events taken so far, applied in order, give exactly the names of the registered blocks,
///     each behind a parent that was announced. Two contents of one name are one to routers, who
///     may so choose a worker that has less than they think; collisions_total() counts them.
///
/// Cost: O(1) per block touched, amortised (O(log blocks) per idle leaf for orders other than LRU);
/// 24 bytes per block, and what ContentIndex and EvictionOrder need.
class BlockPool {
 public:
  /// Whether anybody will call take_events(). Off: nothing is recorded.
  using Events = HostTier::Events;

  /// `total_blocks` ≥ 1. All blocks start in Reset. `host`, if any, is offered each block that is
  /// evicted, and forgets with reset(); it outlives the pool.
  explicit BlockPool(uint32_t total_blocks, Events events = Events::kRecord,
                     HostTier* host = nullptr, Eviction eviction = Eviction::kLru);
  /// All handles and chains must be gone.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  uint32_t total_blocks() const { return static_cast<uint32_t>(blocks_.size()); }
  /// Blocks with references.
  uint32_t used_blocks() const { return total_blocks() - available_blocks(); }
  /// Idle registered blocks: reusable and evictable.
  uint32_t cached_blocks() const { return inactive_.length; }
  /// How many allocate() calls would succeed now.
  uint32_t available_blocks() const { return free_.length + inactive_.length; }

  /// A block for one writer, in state Partial. Evicts an idle block if no block is free. Empty
  /// handle when every block is in use: the caller preempts or waits.
  BlockHandle allocate();

  /// The longest known chain: the first blocks of the sequence, up to the first one nobody has.
  BlockChain match_prefix(const SequenceBlocks& sequence);
  /// How long that chain is and how many of its blocks are idle now, without taking references.
  struct PrefixPeek {
    uint32_t blocks = 0;
    uint32_t idle_blocks = 0;
    ContentId last;  ///< of its last block
  };
  PrefixPeek peek_prefix(const SequenceBlocks& sequence) const;

  /// Forgets every registered block: idle ones become free, used ones go back to private
  /// (Complete). Records AllCleared.
  void reset();

  /// Blocks of a sequence that were loaded into slots of the host tier, reserved before: those of
  /// its blocks `begin` and later. They are findable from now on, unless what stands in front of
  /// them is gone or they came by other ways meanwhile; the slots that are not needed go back.
  /// Returns how many of them the host tier has now.
  size_t adopt(const SequenceBlocks& sequence, size_t begin, std::span<const uint32_t> slots);

  /// A block that became findable by registration.
  struct Registration {
    BlockId block;
    ContentId content;
    std::optional<BlockId> parent;
    ContentId parent_content;
  };
  /// From now on registrations are kept until they are taken, parents first. Grows by at most one
  /// per register_block().
  void record_registrations() { keep_registrations_ = true; }
  std::vector<Registration> take_registrations() { return std::exchange(registrations_, {}); }
  /// How many hold the block.
  uint32_t references(BlockId block) const { return blocks_[block.value()].references; }
  /// The block in front of a findable one.
  std::optional<BlockId> parent(BlockId block) const {
    const uint32_t parent = blocks_[block.value()].parent;
    return parent == kNone ? std::nullopt : std::optional(BlockId(parent));
  }
  /// What the block holds, if it is findable and still has this content.
  std::optional<BlockIdentity> find_content(BlockId block, ContentId content) const;

  /// What changed since the last call, in order; runs of consecutive blocks are one entry. Grows by
  /// at most one block entry per allocate() and register_block(), so the owner takes them every
  /// step.
  std::vector<KvEventData> take_events();

  /// Blocks registered although another content had their name. More than a few in the life of the
  /// universe are forged.
  uint64_t collisions_total() const { return collisions_total_; }

  /// Since construction.
  struct Counts {
    uint64_t allocations = 0;
    uint64_t evictions = 0;  ///< of those
    uint64_t registrations = 0;
    uint64_t duplicates = 0;  ///< given up for an equal block
    uint64_t matches_asked = 0;
    uint64_t matches_found = 0;
  };
  const Counts& counts() const { return counts_; }

  /// Names that events have announced and not taken back.
  size_t registered_names() const { return registry_.names(); }

  /// Checks P1-P4 over all blocks and aborts if one is broken. O(total_blocks); for tests.
  void check_invariants() const;

 private:
  friend class BlockHandle;
  friend class BlockChain;

  enum class State : uint8_t { kReset, kPartial, kComplete, kRegistered, kInactive };
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Block {
    uint32_t references = 0;
    uint32_t parent = kNone;  // block in front, Registered and Inactive only; kNone = first
    uint32_t children = 0;    // registered blocks whose parent this is
    uint32_t older = kNone;   // neighbours in the list this block is in
    uint32_t newer = kNone;
    State state = State::kReset;
  };
  struct List {  // intrusive, doubly linked through Block::older and newer
    uint32_t oldest = kNone;
    uint32_t newest = kNone;
    uint32_t length = 0;
  };

  /// Partial → Registered, or, if the same content is registered already, gives `block` back and
  /// returns a reference to that block instead. The block stays Complete (private, never matched)
  /// when its parent is not registered. Returns the block that the chain holds from now on.
  BlockId register_block(BlockId block, std::optional<BlockId> parent,
                         const BlockIdentity& identity);
  void release(BlockId block) noexcept;

  ContentId content_of(uint32_t index) const;
  void add_reference(uint32_t index);
  void make_reset(uint32_t index);
  void offer_to_host(uint32_t index);
  void unregister(uint32_t index);
  std::optional<uint32_t> next_victim();
  void order(uint32_t index);
  void push_newest(List& list, uint32_t index);
  void unlink(List& list, uint32_t index);
  void record_stored(std::optional<blocks::SequenceHash> parent, const BlockIdentity& identity);
  void record_removed(blocks::SequenceHash hash);

  std::vector<Block> blocks_;
  ContentIndex registry_;
  uint64_t last_content_ = 0;
  uint64_t collisions_total_ = 0;
  Counts counts_;
  List free_;
  List inactive_;
  std::optional<EvictionOrder> order_;       // of idle leaves; none for LRU
  std::vector<EvictionOrder::Facts> facts_;  // by block; empty for LRU
  uint64_t releases_ = 0;
  Events record_;
  HostTier* host_;
  std::vector<KvEventData> events_;
  bool keep_registrations_ = false;
  std::vector<Registration> registrations_;
};

}  // namespace stator::kv
