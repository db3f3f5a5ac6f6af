// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/router/index/block_arena.h"
#include "stator/router/index/byte_stream.h"
#include "stator/router/index/chain_holders.h"
#include "stator/router/index/epoch.h"
#include "stator/router/index/head_table.h"
#include "stator/router/index/position_table.h"
#include "stator/router/kv_index.h"

namespace stator::router {

/// The production index: exact, compact, bounded, readable without a lock.
///
/// Blocks that follow each other live in a *chain*: consecutive rows of the arena's sequence-hash
/// column. A sequence hash covers everything before it, so a query follows a chain by comparing the
/// last hash both have (and bisecting only where they part). A chain's first and last hash, its
/// holders if they are few and the chain that goes on from its end are one cache line, so a prompt
/// of any length costs one hash probe and two cache misses per chain: the line, and the prompt's
/// own hash where the chain ends. Holders are stretches of rows, four bytes a worker.
///
/// I1–I3 of KvIndex hold, also for a reader that races the writer: it may miss what is being
/// written, and never sees a block under a worker that did not hold it during the call.
/// I4  memory_bytes() stays within the budget: beyond it the chains that were least recently used
///     (of a random sample) are forgotten and counted, which under-counts. A worker whose names
///     turn out to disagree may exceed it by 20 bytes a block it holds, until the next events.
/// I5  A worker's own name for a block counts only while the worker holds the block, so equal names
///     for different content (engines that number their blocks) cannot mix workers up.
///
/// Threads: one writer (everything not const); any number of readers (`find_longest_match`).
class ChainIndex final : public KvIndex {
 public:
  struct Config {
    uint64_t bytes_max = 1ULL << 30;
    uint64_t seed = 1;  ///< of the eviction sample
  };
  struct Stats {
    uint64_t chains = 0;
    uint64_t evicted_blocks = 0;  ///< (block, holder) pairs forgotten for the budget
    uint64_t refused_blocks = 0;  ///< not stored: budget, too many workers, one name given twice
    uint64_t forked_workers = 0;  ///< whose ids disagreed with those of others: 20 bytes a block
    uint64_t private_names = 0;   ///< ids kept for them
  };

  static Result<std::unique_ptr<ChainIndex>> create(const Config& config);
  /// What `save` wrote; as much of it as the budget allows. kCorrupt for bytes that are no such
  /// thing.
  static Result<std::unique_ptr<ChainIndex>> restore(const Config& config, ByteReader& in);
  ~ChainIndex() override;

  // Writer.
  Applied apply(WorkerKey worker, const kv::KvEvent& event) override;
  void remove_worker(WorkerKey worker) override;
  /// A whole prefix of blocks that are named by their sequence hashes.
  Applied store_prefix(WorkerKey worker, std::span<const blocks::SequenceHash> sequences);
  /// What the worker calls by this name and holds, if anything.
  std::optional<blocks::SequenceHash> find_held(WorkerKey worker, blocks::ExternalHash name) const;
  /// Everything, about nine bytes a block.
  void save(ByteWriter& out) const;
  /// Of whom something was stored and who was not removed, sorted.
  std::vector<WorkerKey> workers() const;
  const Stats& stats() const { return stats_; }
  uint64_t holder_blocks() const override { return holder_blocks_; }
  size_t memory_bytes() const;

  // Any thread.
  void find_longest_match(std::span<const blocks::SequenceHash> sequences,
                          std::vector<Overlap>& out) const override;
  using KvIndex::find_longest_match;

 private:
  struct alignas(64) Chain {
    std::atomic<uint64_t> head{0};
    std::atomic<uint64_t> tail{0};  ///< sequence hash of the last row
    ChainHolders holders;
    std::atomic<uint32_t> base{0};
    std::atomic<uint32_t> next{0};     ///< chain that last continued at the end; only a hint
    std::atomic<uint32_t> touched{0};  ///< tick of the last use
    std::atomic<uint32_t> version{0};  ///< odd while holders or length change (a seqlock)
    std::atomic<uint16_t> length{0};   ///< 0 = free
    std::atomic<uint16_t> fork{0};     ///< where another chain last branched off; only a hint
    uint16_t capacity = 0;             ///< rows
  };
  static_assert(sizeof(Chain) == 64 && BlockArena::kRangeMax <= ChainHolders::kRowsMax);

  /// A scope of the writer in which readers of a chain try again. May be nested.
  class Change {
   public:
    explicit Change(Chain& chain)
        : chain_(chain), version_(chain.version.load(std::memory_order_relaxed)) {
      if (version_ % 2 == 0) {
        chain_.version.store(version_ + 1, std::memory_order_seq_cst);
      }
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    ~Change() {
      if (version_ % 2 == 0) {
        chain_.version.store(version_ + 2, std::memory_order_seq_cst);
      }
    }

   private:
    Chain& chain_;
    uint32_t version_;
  };

  struct Place {
    uint32_t chain = 0;
    uint32_t offset = 0;
  };
  /// What queries need to know of a worker.
  struct SlotKey {
    std::atomic<uint64_t> worker{0};
    std::atomic<uint32_t> dp_rank{0};
    std::atomic<uint32_t> alive{0};
  };
  struct SlotEntry {
    uint64_t blocks = 0;
    /// Its names disagree with the shared ones, so that it does without them.
    bool has_own_names = false;
    bool swept = false;                     ///< removed; the sweep at work takes it out of chains
    FlatMap<uint64_t, uint64_t> own_names;  ///< to row << 32 | part of its sequence hash
  };
  struct Retired {
    uint64_t epoch = 0;
    std::variant<ChainHolders::Block, std::unique_ptr<HeadTable::Slots>, std::vector<Slot>,
                 uint32_t /*chain*/>
        what;
  };
  /// One stored event while it is being placed.
  struct Storing {
    Slot slot = 0;
    std::span<const kv::StoredBlock> blocks;
    std::vector<uint64_t> sequences;  ///< as many as blocks, or fewer after a refusal
    std::vector<uint64_t> names;      ///< hashes of the blocks' names, once they are needed
    bool by_content = false;          ///< every name is its block's sequence hash
    std::optional<Place> parent;
  };

  ChainIndex(const Config& config, BlockArena arena, memory::Arena chain_memory,
             memory::Arena key_memory);

  // chain_index.cc: events
  void begin();
  Applied store(Slot slot, const kv::BlocksStored& run);
  Applied place_all();
  void prepare(Slot slot, const kv::BlocksStored& run, uint64_t above);
  Applied remove(Slot slot, const kv::BlocksRemoved& run);
  std::optional<Slot> slot_of(WorkerKey worker);
  void retire_slot(Slot slot);
  bool place_known(Storing& storing, size_t& at);
  bool place_new(Storing& storing, size_t& at);
  bool append_to_parent(Storing& storing, size_t& at);
  uint32_t count_new(const Storing& storing, size_t at) const;
  bool bind(const Storing& storing, size_t at, uint32_t row, uint32_t first);
  bool bind_new(const Storing& storing, size_t at, uint32_t row, uint32_t first);
  void bind_own_name(Slot slot, uint64_t name, uint32_t row);
  void drop_own_name(Slot slot, uint64_t name);
  void fork_names(Slot slot);
  void drop_renamed(const Storing& storing);
  uint32_t bind_run(Storing& storing, size_t at, uint32_t row, uint32_t count);
  bool names_are_content(const Storing& storing) const;
  void hash_names(Storing& storing) const;
  void prefetch_names(const Storing& storing, size_t from) const;
  std::optional<uint32_t> find_shared(uint64_t name, uint64_t hash) const;
  std::optional<uint32_t> resolve(Slot slot, uint64_t name) const;

  // chain_edit.cc: one chain
  Chain& chain(uint32_t id) const { return chains_[id]; }
  Place place_of(uint32_t row) const;
  std::optional<uint32_t> find_head(uint64_t sequence) const;
  std::optional<Place> find_next(const std::optional<Place>& parent, uint64_t sequence) const;
  uint32_t match_length(const Chain& chain, uint32_t offset, const uint64_t* sequences,
                        uint32_t count) const;
  bool holds(uint32_t row, Slot slot) const;
  uint32_t add_holder(uint32_t id, ChainHolders::Hold hold);
  uint32_t drop_holder(uint32_t id, ChainHolders::Hold hold);
  template <typename Edit>
  void change_holders(Chain& chain, Edit&& edit);
  void truncate(uint32_t id, uint32_t length);
  void free_chain(uint32_t id);
  void touch(const Chain& chain) const;

  // chain_query.cc: lookups
  class Query;

  // chain_snapshot.cc
  class Saver;
  class Loader;

  // chain_memory.cc: bounds
  std::optional<uint32_t> new_chain(uint32_t rows);
  void discard_chain(uint32_t id);
  bool over_budget(uint32_t rows) const;
  bool evict_one();
  void evict(uint32_t id);
  void sweep();
  void sweep_chain(uint32_t id);
  void retire(decltype(Retired::what) what);
  void reclaim(size_t at_least);
  static constexpr uint32_t kEvictionsMax = 64;  ///< per event or chain

  const Config config_;
  BlockArena arena_;
  memory::Arena chain_memory_;
  memory::Arena key_memory_;
  // What lookups read besides the chains stands on cache lines that the writer hardly ever writes:
  // a line that it does write costs a reader on another core 60 to 100 ns each time.
  alignas(64) Chain* chains_;
  SlotKey* slot_keys_;
  const uint64_t number_;  // of this index among those of the process, from 1
  std::atomic<uint32_t> tick_{1};
  std::atomic<uint32_t> removals_{0};  // of workers
  HeadTable heads_;
  EpochDomain epochs_;

  alignas(64) PositionTable positions_;
  std::deque<SlotEntry> slots_;
  std::vector<Slot> free_slots_;
  FlatMap<WorkerKey, Slot> slot_by_worker_;

  uint32_t chains_top_ = 1;  // id 0 is no chain
  uint32_t chains_max_ = 0;
  std::vector<uint32_t> free_chains_;
  std::deque<Retired> retired_;
  size_t holder_lists_bytes_ = 0;

  // Slots of removed workers wait here until a sweep over all chains has dropped them.
  std::vector<Slot> dying_slots_;
  std::vector<Slot> sweeping_slots_;
  uint32_t sweep_at_ = 0;

  Storing storing_;  // of the event at hand; kept for its memory
  std::vector<kv::StoredBlock> prefix_;
  Random random_;
  uint32_t applied_ = 0;
  uint64_t holder_blocks_ = 0;
  Stats stats_;
};

/// Lets `edit` replace the list of holders, counts its memory, and keeps the old one for readers.
template <typename Edit>
void ChainIndex::change_holders(Chain& target, Edit&& edit) {
  holder_lists_bytes_ -= target.holders.bytes();
  if (ChainHolders::Block old = edit(target.holders)) {
    retire(std::move(old));
  }
  holder_lists_bytes_ += target.holders.bytes();
}

}  // namespace stator::router
