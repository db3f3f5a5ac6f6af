// SPDX-License-Identifier: Apache-2.0
// Reading and changing one chain of a ChainIndex.
#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/router/index/chain_index.h"

namespace stator::router {

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
/// sequence hash covers all before it, so equality is monotone and can be bisected. Most end where
/// the chain does or where another left it before, which is looked at first.
uint32_t ChainIndex::match_length(const Chain& target, uint32_t offset, const uint64_t* sequences,
                                  uint32_t count) const {
  const uint32_t base = target.base.load(std::memory_order_relaxed) + offset;
  const uint32_t length = target.length.load(std::memory_order_acquire);
  if (offset >= length) {
    return 0;
  }
  const uint32_t both = std::min(length - offset, count);
  const auto equals = [&](uint32_t i) { return arena_.sequence(base + i) == sequences[i]; };
  uint32_t equal = 1;           // the first `equal` match …
  uint32_t unequal = both + 1;  // … and the one at `unequal` − 1 does not, if there is one
  const uint32_t fork = target.fork.load(std::memory_order_relaxed);
  if (fork > offset && fork - offset < both) {
    if (equals(fork - offset)) {
      equal = fork - offset + 1;
    } else if (equals(fork - offset - 1)) {
      return fork - offset;
    } else {
      unequal = fork - offset;
    }
  }
  if (unequal > both) {
    const uint64_t last = both == length - offset ? target.tail.load(std::memory_order_relaxed)
                                                  : arena_.sequence(base + both - 1);
    if (last == sequences[both - 1]) {
      return both;
    }
    unequal = both;
  }
  while (unequal - equal > 1) {
    const uint32_t middle = equal + (unequal - equal) / 2;
    (equals(middle - 1) ? equal : unequal) = middle;
  }
  return equal;
}

/// Whether the row is in use and the worker holds it.
bool ChainIndex::holds(uint32_t row, Slot slot) const {
  if (arena_.owner(row) >= chains_top_) {
    return false;
  }
  const Place place = place_of(row);
  const Chain& target = chain(place.chain);
  return place.offset < target.length.load(std::memory_order_relaxed) &&
         target.holders.holds(slot, place.offset);
}

/// Returns how many rows the worker did not hold before.
uint32_t ChainIndex::add_holder(uint32_t id, ChainHolders::Hold hold) {
  Chain& target = chain(id);
  const ChainHolders::Splice splice = target.holders.plan_add(hold);
  if (splice.rows > 0) {
    const Change change(target);
    change_holders(target, [&](ChainHolders& list) { return list.apply(splice); });
  }
  return splice.rows;
}

/// Returns how many rows the worker held of these. Rows at the end that nobody holds any more are
/// given up, and so is an empty chain.
uint32_t ChainIndex::drop_holder(uint32_t id, ChainHolders::Hold hold) {
  Chain& target = chain(id);
  const ChainHolders::Splice splice = target.holders.plan_drop(hold);
  if (splice.rows > 0) {
    const Change change(target);
    change_holders(target, [&](ChainHolders& list) { return list.apply(splice); });
    if (hold.to == target.length.load(std::memory_order_relaxed)) {
      truncate(id, target.holders.end());
    }
  }
  return splice.rows;
}

/// Forgets the rows from `length` on, whose holders are all gone.
void ChainIndex::truncate(uint32_t id, uint32_t length) {
  Chain& target = chain(id);
  const uint32_t old = target.length.load(std::memory_order_relaxed);
  const uint32_t base = target.base.load(std::memory_order_relaxed);
  if (length >= old) {
    return;
  }
  if (length == 0) {
    free_chain(id);
    return;
  }
  const Change change(target);
  target.length.store(static_cast<uint16_t>(length), std::memory_order_release);
  target.tail.store(arena_.sequence(base + length - 1), std::memory_order_relaxed);
  positions_.erase_run(base + length, old - length);
}

/// Unlinks the chain; its id and rows are used again when no reader can be in it.
void ChainIndex::free_chain(uint32_t id) {
  Chain& target = chain(id);
  const Change change(target);
  const uint32_t length = target.length.load(std::memory_order_relaxed);
  const uint32_t base = target.base.load(std::memory_order_relaxed);
  heads_.erase(target.head.load(std::memory_order_relaxed), id);
  positions_.erase_run(base, length);
  change_holders(target, [](ChainHolders& list) { return list.assign({}); });
  target.length.store(0, std::memory_order_release);
  --stats_.chains;
  retire(id);
}

}  // namespace stator::router
