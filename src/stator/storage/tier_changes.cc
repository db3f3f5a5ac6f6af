// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/tier_changes.h"

#include <algorithm>
#include <utility>

namespace stator::storage {
namespace {

/// One of those that leave with their ancestor.
struct Link {
  uint32_t position = 0;
  blocks::SequenceHash block;
  std::optional<blocks::SequenceHash> parent;
};

}  // namespace

void TierChanges::subscribe(const void* owner, Listener listener) {
  const MutexLock lock(mutex_);
  std::vector<std::pair<uint32_t, TierChange>> all;
  for (size_t tier = 0; tier < kv::kStorageTierCount; ++tier) {
    for (const auto& [sequence, held] : tiers_[tier]) {
      all.emplace_back(held.position, TierChange{.tier = static_cast<kv::StorageTier>(tier),
                                                 .sequence = sequence,
                                                 .parent = held.parent,
                                                 .local = held.local});
    }
  }
  std::ranges::sort(all, {}, &std::pair<uint32_t, TierChange>::first);  // C1
  std::vector<TierChange> told;
  told.reserve(all.size());
  for (const auto& [position, change] : all) {
    told.push_back(change);
  }
  if (!told.empty()) {
    listener(told);
  }
  listeners_.insert_or_assign(owner, std::move(listener));
}

void TierChanges::unsubscribe(const void* owner) {
  const MutexLock lock(mutex_);
  listeners_.erase(owner);
}

void TierChanges::tell(const TierChange& change) {
  for (const auto& [owner, listener] : listeners_) {
    listener({&change, 1});
  }
}

void TierChanges::stored(kv::StorageTier tier, const kv::LineageHash& lineage,
                         const kv::LineageHash& parent, blocks::LocalHash local) {
  const MutexLock lock(mutex_);
  std::vector<Orphan>& orphans = orphans_[static_cast<size_t>(tier)];
  const Orphan block{.lineage = lineage, .parent = parent, .local = local};
  if (!hold(tier, block)) {
    if (orphans.size() < kOrphansMax) {
      orphans.push_back(block);
    }
    return;
  }
  // Those that waited for it, and those that waited for them.
  std::vector<blocks::SequenceHash> fresh = {lineage.current()};
  for (size_t i = 0; i < fresh.size() && !orphans.empty(); ++i) {
    for (size_t at = 0; at < orphans.size();) {
      if (orphans[at].parent.current() != fresh[i]) {
        ++at;
        continue;
      }
      const Orphan orphan = orphans[at];
      orphans[at] = orphans.back();
      orphans.pop_back();
      if (hold(tier, orphan)) {
        fresh.push_back(orphan.lineage.current());
      }
    }
  }
}

/// False: its parent is not held. What can never be told counts as done.
bool TierChanges::hold(kv::StorageTier tier, const Orphan& block) {
  Tier& held = tiers_[static_cast<size_t>(tier)];
  Held made{.parent = std::nullopt, .local = block.local, .position = block.lineage.position()};
  if (made.position > 0) {
    made.parent = block.parent.current();
    if (!held.contains(*made.parent)) {
      return false;
    }
  }
  const blocks::SequenceHash sequence = block.lineage.current();
  // A name that is not what its parts chain to would be another block to whoever is told.
  const blocks::SequenceHash chained =
      made.parent ? blocks::chain(*made.parent, block.local) : blocks::chain(block.local);
  if (chained != sequence || (held.size() >= blocks_max_ && !held.contains(sequence))) {
    return true;
  }
  if (held.try_emplace(sequence, made).second) {
    if (made.parent) {
      ++held.at(*made.parent).children;
    }
    tell({.tier = tier, .sequence = sequence, .parent = made.parent, .local = block.local});
  }
  return true;
}

void TierChanges::removed(kv::StorageTier tier, const kv::LineageHash& lineage) {
  const MutexLock lock(mutex_);
  std::erase_if(orphans_[static_cast<size_t>(tier)],
                [&](const Orphan& orphan) { return orphan.lineage == lineage; });
  const Tier& held = tiers_[static_cast<size_t>(tier)];
  const auto found = held.find(lineage.current());
  if (found == held.end()) {
    return;
  }
  if (found->second.children > 0) {
    remove_behind(tier, lineage.current());
  }
  drop(tier, lineage.current());
}

void TierChanges::drop(kv::StorageTier tier, blocks::SequenceHash block) {
  Tier& held = tiers_[static_cast<size_t>(tier)];
  const auto found = held.find(block);
  if (found->second.parent) {
    if (const auto parent = held.find(*found->second.parent); parent != held.end()) {
      --parent->second.children;
    }
  }
  held.erase(found);
  tell({.tier = tier, .stored = false, .sequence = block, .parent = {}, .local = {}});
}

/// What stands behind a block that leaves is of no use without it. Rare: tiers evict tails first,
/// so only damage does this. O(held).
void TierChanges::remove_behind(kv::StorageTier tier, blocks::SequenceHash block) {
  std::vector<Link> links;
  for (const auto& [sequence, held] : tiers_[static_cast<size_t>(tier)]) {
    links.push_back({.position = held.position, .block = sequence, .parent = held.parent});
  }
  std::ranges::sort(links, {}, &Link::position);
  FlatSet<blocks::SequenceHash> gone = {block};
  std::vector<blocks::SequenceHash> order;
  for (const Link& link : links) {
    if (link.parent && gone.contains(*link.parent)) {
      gone.insert(link.block);
      order.push_back(link.block);
    }
  }
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    drop(tier, *at);
  }
}

size_t TierChanges::held(kv::StorageTier tier) const {
  const MutexLock lock(mutex_);
  return tiers_[static_cast<size_t>(tier)].size();
}

}  // namespace stator::storage
