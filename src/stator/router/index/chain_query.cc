// SPDX-License-Identifier: Apache-2.0
// Lookups in a ChainIndex: following chains along a prompt, without a lock.
#include <algorithm>

#include "stator/router/index/chain_index.h"

namespace stator::router {
namespace {

/// Where a worker stands in the answer, by slot: the number of the lookup above the index, so that
/// nothing has to be cleared between lookups. 512 KB per thread, of which the slots in use are
/// touched.
struct Places {
  static constexpr int kIndexBits = 16;
  std::vector<uint64_t> at = std::vector<uint64_t>(kSlotsMax);
  uint64_t lookup = 0;
};
static_assert(kSlotsMax <= 1U << Places::kIndexBits);

}  // namespace

/// One lookup. Only workers that hold the first block can have an overlap, so the first chain makes
/// the answer and the others lengthen it.
class ChainIndex::Query {
 public:
  Query(const ChainIndex& index, std::span<const blocks::SequenceHash> sequences,
        std::vector<Overlap>& out)
      : index_(index),
        wanted_(reinterpret_cast<const uint64_t*>(sequences.data())),
        total_(static_cast<uint32_t>(sequences.size())),
        out_(out) {
    static_assert(sizeof(blocks::SequenceHash) == sizeof(uint64_t));
    static thread_local Places places;
    places_ = &places;
  }

  void run() {
    walk();
    if (stamp_ == 0) {
      out_.clear();  // there is no chain to begin with
    }
  }

 private:
  struct Step {
    uint32_t count = 0;          ///< rows of the chain that match
    uint32_t next = 0;           ///< the chain to try first; 0 = none
    bool somebody_left = false;  ///< holds everything so far
  };

  void walk() {
    // Where the last chain will be compared; until then there is something else to do.
    __builtin_prefetch(wanted_ + total_ - 1);
    uint32_t next = 0;
    while (depth_ < total_) {
      const auto id = find(next);
      if (!id) {
        return;
      }
      const Step step = follow(index_.chain(*id));
      depth_ += step.count;
      if (!step.somebody_left) {
        return;
      }
      next = step.next;
    }
  }

  std::optional<uint32_t> find(uint32_t hint) const {
    if (hint != 0) {
      const Chain& target = index_.chain(hint);
      if (target.head.load(std::memory_order_relaxed) == wanted_[depth_] &&
          target.length.load(std::memory_order_acquire) > 0) {
        return hint;
      }
    }
    return index_.find_head(wanted_[depth_]);
  }

  /// Takes one chain into the answer. A step of nothing ends the query: the chain is not (or no
  /// longer) the one wanted, or the writer was faster too often, which only under-counts.
  Step follow(const Chain& target) {
    constexpr int kTries = 16;
    for (int i = 0; i < kTries; ++i) {
      const uint32_t version = target.version.load(std::memory_order_acquire);
      if (version % 2 != 0) {
        continue;
      }
      const Step step = read(target);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (target.version.load(std::memory_order_relaxed) == version) {
        index_.touch(target);
        return step;
      }
      undo();
    }
    return {};
  }

  Step read(const Chain& target) {
    Step step;
    if (target.head.load(std::memory_order_relaxed) != wanted_[depth_]) {
      return step;
    }
    const uint32_t next = target.next.load(std::memory_order_relaxed);
    __builtin_prefetch(&index_.chain(next));
    step.count = index_.match_length(target, 0, wanted_ + depth_, total_ - depth_);
    step.next = step.count == target.length.load(std::memory_order_relaxed) ? next : 0;
    const ChainHolders::View holders = target.holders.view();
    step.somebody_left = depth_ == 0 ? begin(holders, step.count) : go_on(holders, step.count);
    return step;
  }

  // What the two loops read is in locals: each load of an atomic would make the compiler read
  // members again. Of a prompt that begins like all others they are most of the lookup.
  bool begin(ChainHolders::View holders, uint32_t count) {
    stamp_ = ++places_->lookup << Places::kIndexBits;
    out_.resize(holders.size());  // what an earlier lookup left there is written over
    const SlotKey* keys = index_.slot_keys_;
    uint64_t* places = places_->at.data();
    uint64_t place = stamp_;
    Overlap* end = out_.data();
    uint32_t longest = 0;
    for (uint32_t i = 0; i < holders.size(); ++i) {
      const ChainHolders::Hold hold = holders[i];
      const SlotKey& key = keys[hold.slot];
      if (hold.from > 0 || key.alive.load(std::memory_order_acquire) == 0) {
        continue;
      }
      const uint32_t blocks = std::min(hold.to, count);
      longest = std::max(longest, blocks);
      places[hold.slot] = place++;
      *end++ = {{WorkerId(key.worker.load(std::memory_order_relaxed)),
                 key.dp_rank.load(std::memory_order_relaxed)},
                blocks};
    }
    out_.resize(place - stamp_);
    return count > 0 && longest == count;
  }

  bool go_on(ChainHolders::View holders, uint32_t count) {
    const uint64_t* places = places_->at.data();
    Overlap* out = out_.data();
    const uint64_t size = out_.size();
    uint32_t longest = 0;
    for (uint32_t i = 0; i < holders.size(); ++i) {
      const ChainHolders::Hold hold = holders[i];
      const uint64_t at = places[hold.slot] - stamp_;  // beyond the answer if it is not in there
      if (hold.from == 0 && at < size && out[at].blocks == depth_) {
        const uint32_t blocks = std::min(hold.to, count);
        longest = std::max(longest, blocks);
        out[at].blocks += blocks;
      }
    }
    return count > 0 && longest == count;
  }

  /// Back to where the query stood before the chain at hand.
  void undo() {
    if (depth_ == 0) {
      out_.clear();
    }
    for (Overlap& overlap : out_) {
      overlap.blocks = std::min(overlap.blocks, depth_);
    }
  }

  const ChainIndex& index_;
  const uint64_t* wanted_;
  uint32_t total_;
  std::vector<Overlap>& out_;
  Places* places_;      // of this thread
  uint64_t stamp_ = 0;  // of this answer in places_; 0: it is not begun
  uint32_t depth_ = 0;
};

void ChainIndex::find_longest_match(std::span<const blocks::SequenceHash> sequences,
                                    std::vector<Overlap>& out) const {
  if (sequences.empty()) {
    out.clear();
    return;
  }
  const EpochDomain::Guard guard = epochs_.enter();
  Query(*this, sequences, out).run();
}

}  // namespace stator::router
