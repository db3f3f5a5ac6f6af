// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/slot_index.h"

#include <numeric>

#include "stator/core/assert.h"

namespace stator::storage {
namespace {

/// Pinned slots are few (the reads under way), so the search for a victim ends soon.
constexpr uint32_t kVictimsLookedAt = 1024;

}  // namespace

SlotIndex::SlotIndex(uint32_t slots) : entries_(slots), free_(slots) {
  std::iota(free_.rbegin(), free_.rend(), 0U);
}

std::optional<uint32_t> SlotIndex::find(const BlockName& name) const {
  const auto found = by_lineage_.find(name.lineage);
  if (found == by_lineage_.end() || !is_stored(found->second) ||
      entries_[found->second].name != name) {
    return std::nullopt;
  }
  return found->second;
}

std::optional<BlockName> SlotIndex::find(const kv::LineageHash& lineage) const {
  const auto found = by_lineage_.find(lineage);
  if (found == by_lineage_.end() || !is_stored(found->second)) {
    return std::nullopt;
  }
  return entries_[found->second].name;
}

size_t SlotIndex::match(std::span<const BlockName> names) {
  std::vector<uint32_t> found;
  for (const BlockName& name : names) {
    const auto slot = find(name);
    if (!slot) {
      break;
    }
    found.push_back(*slot);
  }
  for (size_t i = found.size(); i-- > 0;) {
    unlink(found[i]);
    link_newest(found[i]);
  }
  return found.size();
}

std::optional<uint32_t> SlotIndex::oldest_unpinned() const {
  uint32_t slot = oldest_;
  for (uint32_t looked = 0; slot != kNone && looked < kVictimsLookedAt; ++looked) {
    if (entries_[slot].pins == 0) {
      return slot;
    }
    slot = entries_[slot].newer;
  }
  return std::nullopt;
}

std::optional<SlotIndex::Reserved> SlotIndex::reserve(const BlockName& name,
                                                      const kv::LineageHash& parent) {
  STATOR_ASSERT(!knows(name.lineage), "X2: a block is stored once");
  Reserved reserved;
  if (free_.empty()) {
    const auto victim = oldest_unpinned();
    if (!victim) {
      return std::nullopt;
    }
    reserved.evicted = entries_[*victim].name;
    ++evicted_total_;
    erase(*victim);
  }
  reserved.slot = free_.back();
  free_.pop_back();
  Entry& entry = entries_[reserved.slot];
  entry.name = name;
  entry.parent = parent;
  entry.state = State::kFilling;
  by_lineage_.emplace(name.lineage, reserved.slot);
  return reserved;
}

void SlotIndex::publish(uint32_t slot) {
  STATOR_ASSERT(entries_[slot].state == State::kFilling, "X1: what is published was filling");
  entries_[slot].state = State::kStored;
  ++stored_;
  link(slot);
}

void SlotIndex::abandon(uint32_t slot) {
  STATOR_ASSERT(entries_[slot].state == State::kFilling, "X1: what is abandoned was filling");
  by_lineage_.erase(entries_[slot].name.lineage);
  make_free(slot);
}

void SlotIndex::adopt(std::span<const Held> held) {
  STATOR_ASSERT(by_lineage_.empty(), "only an empty index is filled");
  by_lineage_.reserve(held.size());
  for (const Held& block : held) {
    if (block.slot >= entries_.size() || entries_[block.slot].state != State::kFree ||
        !by_lineage_.try_emplace(block.name.lineage, block.slot).second) {
      continue;
    }
    Entry& entry = entries_[block.slot];
    entry.name = block.name;
    entry.parent = block.parent;
    entry.state = State::kStored;
    ++stored_;
    link_newest(block.slot);
  }
  std::erase_if(free_, [this](uint32_t slot) { return entries_[slot].state != State::kFree; });
}

void SlotIndex::erase(uint32_t slot) {
  STATOR_ASSERT(is_stored(slot), "X1: what is erased was stored");
  by_lineage_.erase(entries_[slot].name.lineage);
  unlink(slot);
  --stored_;
  if (entries_[slot].pins > 0) {
    entries_[slot].state = State::kErased;
    return;
  }
  make_free(slot);
}

void SlotIndex::unpin(uint32_t slot) {
  Entry& entry = entries_[slot];
  STATOR_ASSERT(entry.pins > 0, "X3: a pin is given back once");
  if (--entry.pins == 0 && entry.state == State::kErased) {
    make_free(slot);
  }
}

void SlotIndex::make_free(uint32_t slot) {
  entries_[slot] = Entry{};
  free_.push_back(slot);
}

void SlotIndex::link(uint32_t slot) {
  const auto parent = by_lineage_.find(entries_[slot].parent);
  if (entries_[slot].name.lineage.position() > 0 && parent != by_lineage_.end() &&
      is_stored(parent->second)) {
    link_before(slot, parent->second);
  } else {
    link_newest(slot);
  }
}

void SlotIndex::link_newest(uint32_t slot) {
  entries_[slot].older = newest_;
  entries_[slot].newer = kNone;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = slot;
  newest_ = slot;
}

void SlotIndex::link_before(uint32_t slot, uint32_t newer) {
  const uint32_t older = entries_[newer].older;
  entries_[slot].older = older;
  entries_[slot].newer = newer;
  entries_[newer].older = slot;
  (older == kNone ? oldest_ : entries_[older].newer) = slot;
}

void SlotIndex::unlink(uint32_t slot) {
  const Entry& entry = entries_[slot];
  (entry.older == kNone ? oldest_ : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNone ? newest_ : entries_[entry.newer].older) = entry.older;
}

std::vector<uint32_t> SlotIndex::by_age() const {
  std::vector<uint32_t> out;
  out.reserve(stored_);
  for (uint32_t slot = oldest_; slot != kNone; slot = entries_[slot].newer) {
    out.push_back(slot);
  }
  return out;
}

void SlotIndex::check_invariants() const {
  uint32_t stored = 0;
  uint32_t filling = 0;
  uint32_t erased = 0;
  for (uint32_t slot = 0; slot < entries_.size(); ++slot) {
    const Entry& entry = entries_[slot];
    stored += entry.state == State::kStored ? 1 : 0;
    filling += entry.state == State::kFilling ? 1 : 0;
    erased += entry.state == State::kErased ? 1 : 0;
    if (entry.state == State::kStored || entry.state == State::kFilling) {
      const auto found = by_lineage_.find(entry.name.lineage);
      STATOR_ASSERT(found != by_lineage_.end() && found->second == slot, "X2: a slot is found");
    }
  }
  STATOR_ASSERT(stored == stored_ && by_age().size() == stored, "X1: stored slots are listed");
  STATOR_ASSERT(stored + filling + erased + free_.size() == entries_.size(), "X1: no slot is lost");
  STATOR_ASSERT(by_lineage_.size() == stored + filling, "X2: no name is left behind");
}

}  // namespace stator::storage
