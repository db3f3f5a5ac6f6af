// SPDX-License-Identifier: Apache-2.0
// Lookups in a ChainIndex: following chains along a prompt, without a lock.
#include <algorithm>

#include "stator/router/index/chain_index.h"

namespace stator::router {
namespace {

// Answers of more workers than this are made anew: a thread keeps at most 32 KB.
constexpr size_t kKeptMax = 1024;
// How many hashes of a prompt are fetched at once, before the first is waited for: whoever hashed
// it did so on another core or long ago, and chains end anywhere. Eight cache lines.
constexpr size_t kFetched = 64;

/// What one thread keeps from one lookup to the next.
struct Scratch {
  static constexpr int kIndexBits = 16;
  /// Where a worker stands in the answer, by slot: the number of the answer's beginning above the
  /// index, so that nothing has to be cleared. 512 KB, of which the slots in use are touched.
  std::vector<uint64_t> places = std::vector<uint64_t>(kSlotsMax);
  uint64_t begun = 0;

  /// What the first `count` rows of a chain gave last time. Prompts that begin alike (with a system
  /// prompt) follow each other: as long as the chain and the workers are as they were, the answer
  /// begins the same.
  struct Beginning {
    uint64_t index = 0;  ///< ChainIndex's number; 0: nothing is kept
    uint32_t chain = 0;
    uint32_t version = 0;   ///< of the chain
    uint32_t removals = 0;  ///< of workers, until then
    uint32_t count = 0;
    uint64_t stamp = 0;  ///< of its places above
    bool somebody_left = false;
    std::vector<Overlap> answer;
  };
  Beginning last;
};
static_assert(kSlotsMax <= 1U << Scratch::kIndexBits);

}  // namespace

/// One lookup. Only workers that hold the first block can have an overlap, so the first chain makes
/// the answer (or it is the same as last time) and the others lengthen it.
class ChainIndex::Query {
 public:
  Query(const ChainIndex& index, std::span<const blocks::SequenceHash> sequences,
        std::vector<Overlap>& out)
      : index_(index),
        wanted_(reinterpret_cast<const uint64_t*>(sequences.data())),
        total_(static_cast<uint32_t>(sequences.size())),
        out_(out) {
    static_assert(sizeof(blocks::SequenceHash) == sizeof(uint64_t));
    static thread_local Scratch scratch;
    scratch_ = &scratch;
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
    // A guess is compared with the first hash, a probe would have to wait for it.
    uint32_t next = scratch_->last.index == index_.number_ ? scratch_->last.chain : 0;
    while (depth_ < total_) {
      const auto id = find(next);
      if (!id) {
        return;
      }
      const Step step = follow(*id);
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
  Step follow(uint32_t id) {
    constexpr int kTries = 16;
    const Chain& target = index_.chain(id);
    for (int i = 0; i < kTries; ++i) {
      const uint32_t version = target.version.load(std::memory_order_acquire);
      if (version % 2 != 0) {
        continue;
      }
      const Step step = read(id, version);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (target.version.load(std::memory_order_relaxed) == version) {
        index_.touch(target);
        return step;
      }
      undo();
    }
    return {};
  }

  Step read(uint32_t id, uint32_t version) {
    const Chain& target = index_.chain(id);
    Step step;
    if (target.head.load(std::memory_order_relaxed) != wanted_[depth_]) {
      return step;
    }
    const uint32_t next = target.next.load(std::memory_order_relaxed);
    __builtin_prefetch(&index_.chain(next));
    step.count = index_.match_length(target, 0, wanted_ + depth_, total_ - depth_);
    step.next = step.count == target.length.load(std::memory_order_relaxed) ? next : 0;
    step.somebody_left =
        depth_ == 0 ? begin(id, version, step.count) : go_on(target.holders.view(), step.count);
    return step;
  }

  bool begin(uint32_t id, uint32_t version, uint32_t count) {
    // Before any worker is looked at: if one leaves now, the next lookup sees another number.
    const uint32_t removals = index_.removals_.load(std::memory_order_acquire);
    Scratch::Beginning& last = scratch_->last;
    if (last.index == index_.number_ && last.chain == id && last.version == version &&
        last.removals == removals && last.count == count) {
      stamp_ = last.stamp;
      out_.assign(last.answer.begin(), last.answer.end());
      return last.somebody_left;
    }
    last.index = 0;
    const bool somebody_left = make_beginning(index_.chain(id).holders.view(), count);
    if (out_.size() <= kKeptMax) {
      // If the writer was at it, the chain has another version by now, and never this one again.
      last.answer.assign(out_.begin(), out_.end());
      last = {.index = index_.number_,
              .chain = id,
              .version = version,
              .removals = removals,
              .count = count,
              .stamp = stamp_,
              .somebody_left = somebody_left,
              .answer = std::move(last.answer)};
    }
    return somebody_left;
  }

  // What the two loops read is in locals: each load of an atomic would make the compiler read
  // members again.
  bool make_beginning(ChainHolders::View holders, uint32_t count) {
    stamp_ = ++scratch_->begun << Scratch::kIndexBits;
    out_.resize(holders.size());  // what an earlier lookup left there is written over
    const SlotKey* keys = index_.slot_keys_;
    uint64_t* places = scratch_->places.data();
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
    const uint64_t* places = scratch_->places.data();
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
  Scratch* scratch_;    // of this thread
  uint64_t stamp_ = 0;  // of this answer's places; 0: it is not begun
  uint32_t depth_ = 0;
};

void ChainIndex::find_longest_match(std::span<const blocks::SequenceHash> sequences,
                                    std::vector<Overlap>& out) const {
  if (sequences.empty()) {
    out.clear();
    return;
  }
  for (size_t i = 0; i < std::min(sequences.size(), kFetched); i += 64 / sizeof(uint64_t)) {
    __builtin_prefetch(&sequences[i]);
  }
  __builtin_prefetch(&sequences.back());
  const EpochDomain::Guard guard = epochs_.enter();
  Query(*this, sequences, out).run();
}

}  // namespace stator::router
