// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"

namespace stator::router {

/// A worker's row in the load tables; dense, reused after the worker and its requests are gone.
using LoadSlot = uint32_t;

/// Which prompt blocks the running requests of every worker hold, a shared prefix counted once per
/// worker. A pure core; one thread at a time.
///
/// Sequence hashes cover everything before them, so a run of blocks is followed by comparing its
/// last hash (bisecting where two prompts part), and one map from a run's first hash finds the next
/// run. A request is its last node; the nodes above it are its path.
///
/// T1  A node has a holder for a slot exactly while a request of that slot runs through it.
/// T2  Nodes without holders are freed: memory follows the running requests.
///
/// Inserting costs one map probe per run passed and a copy of the blocks nobody had: a 192-block
/// prompt is 1.5 KiB. A run that was split stays split until its last request is gone.
class PromptTrie {
 public:
  using Node = uint32_t;
  using Owner = uint32_t;  ///< the caller's id of a request, unique among those inserted
  static constexpr Node kNone = ~0U;

  /// A request became, or is no longer, the only holder of so many blocks on its worker.
  struct Change {
    Owner owner = 0;
    int64_t exclusive_blocks = 0;
  };
  struct Inserted {
    Node leaf = kNone;        ///< kNone for an empty chain
    uint32_t new_blocks = 0;  ///< blocks no other request of this slot held
  };

  /// `changes` gets the requests (this one included) whose exclusive blocks changed; cleared first.
  Inserted insert(LoadSlot slot, Owner owner, std::span<const blocks::SequenceHash> chain,
                  std::vector<Change>& changes);
  /// The reverse; `leaf` as insert returned it. Returns the blocks the slot does not hold any more.
  /// `changes` has the others whose exclusive blocks changed.
  uint32_t erase(LoadSlot slot, Owner owner, Node leaf, std::vector<Change>& changes);

  /// Leading blocks of `chain` that running requests hold, per slot, into `depths` (already sized
  /// and zero). Slots at or beyond its size are skipped.
  void find(std::span<const blocks::SequenceHash> chain, std::span<uint32_t> depths) const;

  /// Slots whose running requests hold the first block: all whose depth is not 0.
  void find_holders(blocks::SequenceHash first, std::vector<LoadSlot>& slots) const;

  size_t node_count() const { return by_first_hash_.size(); }

 private:
  struct Holder {
    LoadSlot slot = 0;
    uint32_t requests = 0;
    Owner owner_xor = 0;  // of all its requests here: the only one's id when there is one
  };
  struct Run {
    Node parent = kNone;
    std::vector<blocks::SequenceHash> hashes;
    std::vector<Holder> holders;  // sorted by slot
  };

  Node make_node(Node parent, std::vector<blocks::SequenceHash> hashes);
  /// Cuts the run so that its first `length` blocks become a node above it, which is returned; the
  /// node itself keeps the rest and its id, so that leaves stay valid.
  Node split(Node node, uint32_t length);
  uint32_t hold(Node node, LoadSlot slot, Owner owner, std::vector<Change>& changes);

  std::vector<Run> nodes_;
  std::vector<Node> free_;
  FlatMap<blocks::SequenceHash, Node> by_first_hash_;
};

}  // namespace stator::router
