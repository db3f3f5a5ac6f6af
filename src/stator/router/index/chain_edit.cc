// SPDX-License-Identifier: Apache-2.0
// Reading and changing one chain of a ChainIndex, and following chains along a query.
#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/router/index/chain_index.h"

namespace stator::router {
namespace {

constexpr uint64_t kEmptyWord = uint64_t{kNoHolders} << 1;

}  // namespace

void ChainIndex::touch(const Chain& target) const {
  const uint32_t now = tick_.load(std::memory_order_relaxed);
  if (target.touched.load(std::memory_order_relaxed) != now) {
    const_cast<Chain&>(target).touched.store(now, std::memory_order_relaxed);
  }
}

ChainIndex::Place ChainIndex::place_of(uint32_t row) const {
  const uint32_t id = arena_.owner(row);
  return {id, row - chain(id).base.load(std::memory_order_relaxed)};
}

std::optional<uint32_t> ChainIndex::find_head(uint64_t sequence) const {
  return heads_.find(sequence, [&](uint32_t candidate) {
    const Chain& target = chain(candidate);
    return target.length.load(std::memory_order_acquire) > 0 &&
           target.head.load(std::memory_order_relaxed) == sequence;
  });
}

/// Where the block with this sequence hash is, given the block before it.
std::optional<ChainIndex::Place> ChainIndex::find_next(const std::optional<Place>& parent,
                                                       uint64_t sequence) const {
  if (parent) {
    const Chain& above = chain(parent->chain);
    const uint32_t offset = parent->offset + 1;
    if (offset < above.length.load(std::memory_order_relaxed) &&
        arena_.sequence(above.base.load(std::memory_order_relaxed) + offset) == sequence) {
      return Place{parent->chain, offset};
    }
  }
  const auto id = find_head(sequence);
  return id ? std::optional(Place{*id, 0}) : std::nullopt;
}

/// How many of `sequences` stand in the chain from `offset` on, knowing that the first does. A
/// sequence hash covers all before it, so equality is monotone and can be bisected.
uint32_t ChainIndex::match_length(const Chain& target, uint32_t offset, const uint64_t* sequences,
                                  uint32_t count) const {
  const uint32_t base = target.base.load(std::memory_order_relaxed) + offset;
  const uint32_t length = target.length.load(std::memory_order_acquire);
  if (offset >= length) {
    return 0;
  }
  const uint32_t both = std::min(length - offset, count);
  if (arena_.sequence(base + both - 1) == sequences[both - 1]) {
    return both;
  }
  uint32_t equal = 0;       // the first `equal` match …
  uint32_t unequal = both;  // … and the one at `unequal` − 1 does not
  while (unequal - equal > 1) {
    const uint32_t middle = equal + (unequal - equal) / 2;
    (arena_.sequence(base + middle - 1) == sequences[middle - 1] ? equal : unequal) = middle;
  }
  return equal;
}

SetId ChainIndex::set_at(const Chain& target, uint32_t offset) const {
  const uint64_t word = target.holders.load(std::memory_order_acquire);
  if ((word & 1) == 0) {
    return static_cast<SetId>(word >> 1);
  }
  for (const Run& run : *reinterpret_cast<const Runs*>(word & ~uint64_t{1})) {
    if (offset < run.end) {
      return run.set;
    }
  }
  return kNoHolders;
}

/// Whether the row is in use and the worker holds it.
bool ChainIndex::holds(uint32_t row, Slot slot) const {
  if (arena_.owner(row) >= chains_top_) {
    return false;
  }
  const Place place = place_of(row);
  const Chain& target = chain(place.chain);
  return place.offset < target.length.load(std::memory_order_relaxed) &&
         sets_.contains(set_at(target, place.offset), slot);
}

/// A removed worker may still be named by chains that only it held (until the sweep gets there).
SetId ChainIndex::living(SetId set) const {
  return set < kSlotsMax && !slots_[set].alive.load(std::memory_order_relaxed) ? kNoHolders : set;
}

ChainIndex::Runs ChainIndex::runs_of(const Chain& target) const {
  const uint64_t word = target.holders.load(std::memory_order_relaxed);
  if ((word & 1) != 0) {
    return *reinterpret_cast<const Runs*>(word & ~uint64_t{1});
  }
  return {{target.length.load(std::memory_order_relaxed), static_cast<SetId>(word >> 1)}};
}

/// Gives the chain new holders; the old sets are released after the new ones are acquired.
void ChainIndex::set_runs(uint32_t id, Runs runs) {
  Chain& target = chain(id);
  const Change change(target);
  const Runs old = runs_of(target);
  const uint64_t old_word = target.holders.load(std::memory_order_relaxed);
  for (const Run& run : runs) {
    sets_.acquire(run.set);
  }
  uint64_t word = kEmptyWord;
  if (runs.size() == 1) {
    word = uint64_t{runs.front().set} << 1;
  } else if (runs.size() > 1) {
    auto list = std::make_unique<const Runs>(std::move(runs));
    runs_bytes_ += sizeof(Runs) + list->capacity() * sizeof(Run);
    word = reinterpret_cast<uint64_t>(list.release()) | 1;
  }
  target.holders.store(word, std::memory_order_release);
  for (const Run& run : old) {
    sets_.release(run.set);
  }
  if ((old_word & 1) != 0) {
    std::unique_ptr<const Runs> list(reinterpret_cast<const Runs*>(old_word & ~uint64_t{1}));
    runs_bytes_ -= sizeof(Runs) + list->capacity() * sizeof(Run);
    retire(std::move(list));
  }
  for (HolderSets::Retired& gone : sets_.take_retired()) {
    retire(std::move(gone));
  }
}

/// Adds or drops a holder of the rows [from, to); returns how many rows changed. Rows at the end
/// that nobody holds any more are given up, and so is an empty chain.
uint32_t ChainIndex::edit(uint32_t id, uint32_t from, uint32_t to, Slot slot, bool add) {
  Chain& target = chain(id);
  const uint32_t length = target.length.load(std::memory_order_relaxed);
  const uint64_t word = target.holders.load(std::memory_order_relaxed);
  if (!add && to == length && word == uint64_t{slot} << 1) {
    truncate(id, from);  // the usual removal: the end of a sequence only this worker holds
    return to - from;
  }
  Runs changed;
  uint32_t count = 0;
  const auto append = [&changed](uint32_t end, SetId set) {
    if (!changed.empty() && changed.back().set == set) {
      changed.back().end = static_cast<uint16_t>(end);
    } else {
      changed.push_back({static_cast<uint16_t>(end), set});
    }
  };
  uint32_t start = 0;
  for (const Run& run : runs_of(target)) {
    const uint32_t low = std::clamp<uint32_t>(from, start, run.end);
    const uint32_t high = std::clamp<uint32_t>(to, low, run.end);
    if (start < low) {
      append(low, run.set);
    }
    if (low < high) {
      const SetId old = living(run.set);
      const SetId set = add ? sets_.with(old, slot) : sets_.without(old, slot);
      count += set == old ? 0 : high - low;
      append(high, set);
    }
    if (high < run.end) {
      append(run.end, run.set);
    }
    start = run.end;
  }
  if (count == 0) {
    return 0;
  }
  const Change change(target);
  const bool open_end = changed.back().set == kNoHolders;
  if (open_end && changed.size() == 1) {
    truncate(id, 0);
    return count;
  }
  const uint32_t kept = open_end ? changed[changed.size() - 2].end : length;
  if (open_end) {
    changed.pop_back();
    target.length.store(static_cast<uint16_t>(kept), std::memory_order_release);
  }
  set_runs(id, std::move(changed));
  for (uint32_t offset = kept; offset < length; ++offset) {
    forget_names(target.base.load(std::memory_order_relaxed) + offset);
  }
  return count;
}

/// Forgets the rows from `length` on, whose holders are all gone (or leave with it).
void ChainIndex::truncate(uint32_t id, uint32_t length) {
  Chain& target = chain(id);
  const uint32_t old = target.length.load(std::memory_order_relaxed);
  const uint32_t base = target.base.load(std::memory_order_relaxed);
  if (length == 0) {
    free_chain(id);
    return;
  }
  const Change change(target);
  target.length.store(static_cast<uint16_t>(length), std::memory_order_release);
  for (uint32_t offset = length; offset < old; ++offset) {
    forget_names(base + offset);
  }
}

void ChainIndex::forget_names(uint32_t row) {
  positions_.erase(PositionTable::name_of(arena_, row), row);
}

/// Unlinks the chain; its id and rows are used again when no reader can be in it.
void ChainIndex::free_chain(uint32_t id) {
  Chain& target = chain(id);
  const Change change(target);
  const uint32_t length = target.length.load(std::memory_order_relaxed);
  const uint32_t base = target.base.load(std::memory_order_relaxed);
  heads_.erase(target.head.load(std::memory_order_relaxed), id);
  for (uint32_t offset = 0; offset < length; ++offset) {
    forget_names(base + offset);
  }
  set_runs(id, {});
  target.length.store(0, std::memory_order_release);
  --stats_.chains;
  retire(id);
}

// ── Queries ──

namespace {

/// Workers that hold everything so far, and those that dropped out with how far they got.
class Matching {
 public:
  explicit Matching(std::vector<std::pair<Slot, uint32_t>>& done) : done_(done) { active_.clear(); }

  /// Everybody still active must be in `members` (sorted) to go on. False when nobody is left.
  bool meet(std::span<const Slot> members, uint32_t depth) {
    if (depth == 0) {
      active_.assign(members.begin(), members.end());
      return !active_.empty();
    }
    size_t kept = 0;
    auto member = members.begin();
    for (const Slot slot : active_) {
      while (member != members.end() && *member < slot) {
        ++member;
      }
      if (member != members.end() && *member == slot) {
        active_[kept++] = slot;
      } else {
        done_.emplace_back(slot, depth);
      }
    }
    active_.resize(kept);
    return kept > 0;
  }

  void finish(uint32_t depth) {
    for (const Slot slot : active_) {
      done_.emplace_back(slot, depth);
    }
  }

 private:
  std::vector<std::pair<Slot, uint32_t>>& done_;
  // Buffers of the thread: a lookup allocates nothing once they have grown.
  inline static thread_local std::vector<Slot> active_;
};

}  // namespace

/// Reads a chain while the writer may change it. A count of 0 ends the query: the chain is not
/// (or no longer) the one wanted, or the writer was faster too often, which only under-counts.
ChainIndex::Seen ChainIndex::look(uint32_t id, const uint64_t* wanted, uint32_t count) const {
  constexpr int kTries = 16;
  const Chain& target = chain(id);
  for (int i = 0; i < kTries; ++i) {
    const uint32_t version = target.version.load(std::memory_order_acquire);
    if (version % 2 != 0) {
      continue;
    }
    Seen seen;
    seen.holders = target.holders.load(std::memory_order_acquire);
    seen.next = target.next.load(std::memory_order_acquire);
    if (target.head.load(std::memory_order_acquire) == *wanted) {
      seen.count = match_length(target, 0, wanted, count);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (target.version.load(std::memory_order_relaxed) == version) {
      return seen;
    }
  }
  return {};
}

void ChainIndex::find_longest_match(std::span<const blocks::SequenceHash> sequences,
                                    std::vector<Overlap>& out) const {
  static_assert(sizeof(blocks::SequenceHash) == sizeof(uint64_t));
  static thread_local std::vector<std::pair<Slot, uint32_t>> done;
  done.clear();
  out.clear();
  const EpochDomain::Guard guard = epochs_.enter();
  Matching matching(done);
  const auto* wanted = reinterpret_cast<const uint64_t*>(sequences.data());
  const auto total = static_cast<uint32_t>(sequences.size());
  uint32_t depth = 0;
  uint32_t hint = 0;
  bool alive = true;
  while (alive && depth < total) {
    const bool continues = hint != 0 &&
                           chain(hint).head.load(std::memory_order_relaxed) == wanted[depth] &&
                           chain(hint).length.load(std::memory_order_acquire) > 0;
    const auto id = continues ? std::optional(hint) : find_head(wanted[depth]);
    const Seen seen = id ? look(*id, wanted + depth, total - depth) : Seen{};
    if (seen.count == 0) {
      break;
    }
    touch(chain(*id));
    hint = seen.next;
    Slot single = 0;
    if ((seen.holders & 1) == 0) {
      const auto set = static_cast<SetId>(seen.holders >> 1);
      alive = matching.meet(sets_.members(set, single), depth);
      depth += alive ? seen.count : 0;
      continue;
    }
    uint32_t start = 0;
    for (const Run& run : *reinterpret_cast<const Runs*>(seen.holders & ~uint64_t{1})) {
      alive = start < seen.count && matching.meet(sets_.members(run.set, single), depth);
      if (!alive) {
        break;
      }
      depth += std::min<uint32_t>(run.end, seen.count) - start;
      start = run.end;
    }
    alive = alive || start >= seen.count;
  }
  if (alive) {
    matching.finish(depth);
  }
  for (const auto& [slot, blocks] : done) {
    const SlotEntry& entry = slots_[slot];
    if (blocks > 0 && entry.alive.load(std::memory_order_acquire)) {
      out.push_back({{WorkerId(entry.worker.load(std::memory_order_relaxed)),
                      entry.dp_rank.load(std::memory_order_relaxed)},
                     blocks});
    }
  }
}

}  // namespace stator::router
