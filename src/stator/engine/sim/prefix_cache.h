// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"

namespace stator::engine {

/// The KV blocks of one simulated engine: which are in use, which idle ones can serve a prefix
/// again, and which is evicted next. It behaves block by block like vLLM's pool (least recently
/// used first, tails of a sequence before its head) at the price of a few *runs* per request:
/// consecutive blocks with the same holders are one record. Blocks are compared by their hashes,
/// for there are no tokens: it counts hits and serves nobody. A pure core; one thread at a time.
///
///   auto match = cache.match(chain);                         // what is cached
///   if (cache.can_take(match, needed)) { leaf = cache.acquire(chain, match.blocks); … }
///   leaf = cache.extend(leaf, chain, from, to, removed);     // blocks that are now computed
///   cache.release(leaf);                                     // idle from now on, still cached
///
/// C1  in_use() + idle() + free() = capacity.
/// C2  A block's predecessor is resident whenever the block is: children leave before parents.
/// C3  A run without holders is in the list of idle runs, behind all idle runs below it.
class PrefixCache {
 public:
  using Run = uint32_t;
  static constexpr Run kNone = ~0U;
  using Chain = std::span<const blocks::SequenceHash>;
  using Removed = std::vector<blocks::SequenceHash>;

  struct Match {
    uint32_t blocks = 0;       ///< leading blocks that are resident
    uint32_t idle_blocks = 0;  ///< of those, held by nobody: taking them uses no free block up
  };

  explicit PrefixCache(uint32_t capacity_blocks) : capacity_(capacity_blocks) {}

  Match match(Chain chain) const;
  /// Whether `count` further blocks are to be had besides those of the match.
  bool can_take(const Match& match, uint32_t count) const {
    return uint64_t{count} + match.idle_blocks <= uint64_t{free()} + idle_;
  }

  /// Holds the first `blocks` of the chain, which are resident. kNone for none.
  Run acquire(Chain chain, uint32_t blocks);
  struct Extended {
    Run leaf = kNone;
    uint32_t shared = 0;  ///< of the blocks added, those that were resident
  };
  /// The holder of `leaf`, which has blocks [0, from) of the chain, now has all of it; content that
  /// is resident already is shared. Evicted blocks are appended to `removed`. The caller has
  /// checked can_take().
  Extended extend(Run leaf, Chain chain, uint32_t from, Removed& removed);
  /// Gives the whole path up to and including `leaf` back; tails become evictable first.
  void release(Run leaf);

  /// Blocks without content: the partial last block of a sequence. can_take() was checked.
  void take_nameless(uint32_t count, Removed& removed);
  void give_nameless(uint32_t count) { nameless_ -= count; }

  uint32_t capacity() const { return capacity_; }
  uint32_t in_use() const { return resident_ - idle_ + nameless_; }
  uint32_t idle() const { return idle_; }
  uint32_t free() const { return capacity_ - resident_ - nameless_; }
  size_t run_count() const { return by_first_.size(); }

 private:
  struct Record {
    std::vector<blocks::SequenceHash> hashes;
    Run parent = kNone;
    uint32_t holders = 0;
    uint32_t children = 0;
    Run older = kNone;  // in the list of idle runs
    Run newer = kNone;
  };

  Run make(Run parent, Chain hashes);
  /// Cuts the run after `length` blocks; the upper part is returned, the lower keeps its id.
  Run split(Run run, uint32_t length);
  void hold(Run run);
  void link_newest(Run run);
  void unlink(Run run);
  void evict(uint32_t count, Removed& removed);
  void forget(Run run);
  void make_room(uint32_t count, Removed& removed);

  uint32_t capacity_;
  uint32_t resident_ = 0;  // named blocks, held or idle
  uint32_t idle_ = 0;
  uint32_t nameless_ = 0;
  std::vector<Record> runs_;
  std::vector<Run> free_runs_;
  FlatMap<blocks::SequenceHash, Run> by_first_;
  Run oldest_ = kNone;
  Run newest_ = kNone;
};

}  // namespace stator::engine
