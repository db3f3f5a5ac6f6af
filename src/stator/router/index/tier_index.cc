// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/tier_index.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace stator::router {
namespace {

using blocks::ExternalHash;
using blocks::SequenceHash;

size_t row_of(kv::StorageTier tier) {
  return static_cast<size_t>(tier) - 1;  // the device comes first and is not ours
}

}  // namespace

Applied TierIndex::apply(WorkerKey worker, const kv::KvEvent& event,
                         std::optional<SequenceHash> parent) {
  if (std::holds_alternative<kv::AllCleared>(event.data)) {
    remove_worker(worker);
    return Applied::kOk;
  }
  if (event.tier == kv::StorageTier::kDevice || row_of(event.tier) >= kTiers) {
    return Applied::kIgnoredTier;
  }
  if (const auto* run = std::get_if<kv::BlocksStored>(&event.data)) {
    if (slot_by_worker_.size() >= kSlotsMax && !slot_by_worker_.contains(worker)) {
      return Applied::kOverBudget;
    }
    return store(slot_of(worker), row_of(event.tier), *run, parent);
  }
  const auto known = slot_by_worker_.find(worker);
  return known == slot_by_worker_.end()
             ? Applied::kUnknownBlock
             : remove(known->second, row_of(event.tier), std::get<kv::BlocksRemoved>(event.data));
}

Slot TierIndex::slot_of(WorkerKey worker) {
  const auto [known, fresh] = slot_by_worker_.try_emplace(worker, 0);
  if (fresh) {
    if (free_slots_.empty()) {
      known->second = static_cast<Slot>(workers_.size());
      workers_.emplace_back();
    } else {
      known->second = free_slots_.back();
      free_slots_.pop_back();
    }
    workers_[known->second].key = worker;
  }
  return known->second;
}

void TierIndex::remove_worker(WorkerKey worker) {
  const auto known = slot_by_worker_.find(worker);
  if (known == slot_by_worker_.end()) {
    return;
  }
  const Slot slot = known->second;
  slot_by_worker_.erase(known);
  for (size_t tier = 0; tier < kTiers && workers_[slot].blocks > 0; ++tier) {
    std::vector<SequenceHash> held;
    for (const auto& [block, set] : holders_[tier]) {
      if (sets_.contains(set, slot)) {
        held.push_back(block);
      }
    }
    for (const SequenceHash block : held) {
      drop(slot, tier, block);
    }
  }
  names_ -= workers_[slot].names.size();
  workers_[slot] = {};
  free_slots_.push_back(slot);
}

// ── Names and holders ──

std::optional<SequenceHash> TierIndex::resolve(Slot slot, ExternalHash name) const {
  const auto& names = workers_[slot].names;
  if (const auto own = names.find(name); own != names.end()) {
    return own->second;
  }
  const SequenceHash same(name.value());
  return holds_anywhere(slot, same) ? std::optional(same) : std::nullopt;
}

bool TierIndex::holds(Slot slot, size_t tier, SequenceHash block) const {
  const auto entry = holders_[tier].find(block);
  return entry != holders_[tier].end() && sets_.contains(entry->second, slot);
}

bool TierIndex::holds_anywhere(Slot slot, SequenceHash block) const {
  for (size_t tier = 0; tier < kTiers; ++tier) {
    if (holds(slot, tier, block)) {
      return true;
    }
  }
  return false;
}

void TierIndex::set_holders(size_t tier, SequenceHash block, SetId before, SetId after) {
  if (after == kNoHolders) {
    holders_[tier].erase(block);
  } else {
    sets_.acquire(after);
    holders_[tier][block] = after;
  }
  sets_.release(before);
  for (HolderSets::Retired& gone : sets_.take_retired()) {
    sets_.recycle(std::move(gone));  // nobody reads meanwhile
  }
}

bool TierIndex::add(Slot slot, size_t tier, SequenceHash block) {
  const auto entry = holders_[tier].find(block);
  const SetId before = entry == holders_[tier].end() ? kNoHolders : entry->second;
  const SetId after = sets_.with(before, slot);
  if (after == before) {
    return false;
  }
  set_holders(tier, block, before, after);
  ++workers_[slot].blocks;
  ++count_;
  return true;
}

bool TierIndex::drop(Slot slot, size_t tier, SequenceHash block) {
  const auto entry = holders_[tier].find(block);
  if (entry == holders_[tier].end()) {
    return false;
  }
  const SetId before = entry->second;
  const SetId after = sets_.without(before, slot);
  if (after == before) {
    return false;
  }
  set_holders(tier, block, before, after);
  --workers_[slot].blocks;
  --count_;
  return true;
}

/// From now on the worker means this block by the name; what it meant before is gone.
void TierIndex::name(Slot slot, ExternalHash name, SequenceHash block) {
  const auto before = resolve(slot, name);
  if (before == block) {
    return;
  }
  if (before) {
    for (size_t tier = 0; tier < kTiers; ++tier) {
      drop(slot, tier, *before);
    }
  }
  if (name.value() == block.value()) {
    names_ -= workers_[slot].names.erase(name);
  } else {
    names_ += workers_[slot].names.insert_or_assign(name, block).second ? 1 : 0;
  }
}

// ── Events ──

Applied TierIndex::store(Slot slot, size_t tier, const kv::BlocksStored& run,
                         std::optional<SequenceHash> parent) {
  if (run.parent) {
    const auto own = resolve(slot, *run.parent);
    parent = own ? own : parent;
    if (!parent) {
      return Applied::kUnknownParent;
    }
  } else {
    parent.reset();
  }
  for (const kv::StoredBlock& block : run.blocks) {
    const SequenceHash sequence =
        parent ? blocks::chain(*parent, block.local) : blocks::chain(block.local);
    parent = sequence;
    const bool is_new = !holds(slot, tier, sequence);
    if ((is_new && count_ >= blocks_max_) || names_ >= blocks_max_) {
      return Applied::kOverBudget;
    }
    name(slot, block.external, sequence);
    add(slot, tier, sequence);
  }
  return Applied::kOk;
}

Applied TierIndex::remove(Slot slot, size_t tier, const kv::BlocksRemoved& run) {
  Applied applied = Applied::kOk;
  for (const ExternalHash external : run.blocks) {
    const auto block = resolve(slot, external);
    if (!block || !drop(slot, tier, *block)) {
      applied = Applied::kUnknownBlock;
      continue;
    }
    if (!holds_anywhere(slot, *block)) {
      names_ -= workers_[slot].names.erase(external);
    }
  }
  return applied;
}

// ── Queries ──

/// Lets every front that has reached `depth` and whose worker holds the block go one further.
bool TierIndex::advance(size_t tier, SequenceHash block, uint32_t depth,
                        std::vector<Front>& fronts) const {
  const auto entry = holders_[tier].find(block);
  if (entry == holders_[tier].end()) {
    return false;
  }
  bool moved = false;
  Slot single = 0;
  for (const Slot slot : sets_.members(entry->second, single)) {
    auto front = std::ranges::lower_bound(fronts, slot, {}, &Front::slot);
    if (front == fronts.end() || front->slot != slot) {
      if (depth > 0) {
        continue;
      }
      front = fronts.insert(front, {.slot = slot});  // holds nothing on its device
    }
    if (front->reach == depth) {
      ++front->reach;
      ++front->gained[tier];
      moved = true;
    }
  }
  return moved;
}

void TierIndex::extend(std::span<const SequenceHash> sequences,
                       std::vector<Overlap>& overlaps) const {
  if (count_ == 0) {
    return;
  }
  std::vector<Front> fronts;
  for (const Overlap& overlap : overlaps) {
    if (const auto known = slot_by_worker_.find(overlap.worker); known != slot_by_worker_.end()) {
      fronts.push_back({.slot = known->second, .reach = overlap.blocks, .listed = true});
    }
  }
  std::ranges::sort(fronts, {}, &Front::slot);
  for (size_t tier = 0; tier < kTiers; ++tier) {
    for (uint32_t depth = 0; depth < sequences.size();) {
      if (advance(tier, sequences[depth], depth, fronts)) {
        ++depth;
        continue;
      }
      // Nobody goes on from here: to where the next one stands.
      auto next = static_cast<uint32_t>(sequences.size());
      for (const Front& front : fronts) {
        next = front.reach > depth ? std::min(next, front.reach) : next;
      }
      depth = next;
    }
  }
  for (Overlap& overlap : overlaps) {
    const auto known = slot_by_worker_.find(overlap.worker);
    if (known == slot_by_worker_.end()) {
      continue;
    }
    const auto front = std::ranges::lower_bound(fronts, known->second, {}, &Front::slot);
    overlap.host_blocks = front->gained[0];
    overlap.disk_blocks = front->gained[1];
    overlap.external_blocks = front->gained[2];
  }
  for (const Front& front : fronts) {
    if (!front.listed) {
      overlaps.push_back({.worker = workers_[front.slot].key,
                          .blocks = 0,
                          .host_blocks = front.gained[0],
                          .disk_blocks = front.gained[1],
                          .external_blocks = front.gained[2]});
    }
  }
}

}  // namespace stator::router
