// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/host_tier.h"

#include <numeric>
#include <utility>

#include "stator/core/assert.h"

namespace stator::kv {
namespace {

blocks::ExternalHash external(blocks::SequenceHash hash) {
  return blocks::ExternalHash(hash.value());
}

}  // namespace

HostTier::HostTier(uint32_t total_blocks, Events events) : slots_(total_blocks), record_(events) {
  clear();
}

void HostTier::clear() {
  by_hash_.clear();
  free_.resize(slots_.size());
  std::iota(free_.rbegin(), free_.rend(), 0U);
  oldest_ = kNone;
  newest_ = kNone;
  copies_.clear();
  events_.clear();
}

void HostTier::store(BlockId block, const BlockIdentity& identity,
                     std::optional<blocks::SequenceHash> parent) {
  if (const auto found = by_hash_.find(identity.sequence); found != by_hash_.end()) {
    unlink(found->second);
    push_newest(found->second);
    return;
  }
  const std::optional<uint32_t> slot = take_slot();
  if (!slot) {
    ++dropped_total_;
    return;
  }
  slots_[*slot].hash = identity.sequence;
  by_hash_.emplace(identity.sequence, *slot);
  push_newest(*slot);
  copies_.push_back({BlockCopy::Direction::kToHost, block, *slot});
  ++stored_total_;
  record_stored(identity, parent);
}

std::optional<uint32_t> HostTier::take_slot() {
  if (!free_.empty()) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  const uint32_t slot = oldest_;
  if (slot == kNone) {
    return std::nullopt;
  }
  unlink(slot);
  by_hash_.erase(slots_[slot].hash);
  record_removed(slots_[slot].hash);
  ++dropped_total_;
  return slot;
}

uint32_t HostTier::match(std::span<const blocks::SequenceHash> hashes) const {
  uint32_t count = 0;
  while (count < hashes.size() && by_hash_.contains(hashes[count])) {
    ++count;
  }
  return count;
}

std::vector<uint32_t> HostTier::hold(std::span<const blocks::SequenceHash> hashes) {
  std::vector<uint32_t> slots;
  slots.reserve(hashes.size());
  for (const blocks::SequenceHash hash : hashes) {
    const auto found = by_hash_.find(hash);
    STATOR_ASSERT(found != by_hash_.end(), "H2: only copies that exist are held");
    unlink(found->second);
    slots.push_back(found->second);
  }
  return slots;
}

void HostTier::load(uint32_t slot, BlockId block) {
  push_newest(slot);
  copies_.push_back({BlockCopy::Direction::kToDevice, block, slot});
  ++loaded_total_;
}

std::vector<BlockCopy> HostTier::take_copies() {
  return std::exchange(copies_, {});
}

std::vector<KvEventData> HostTier::take_events() {
  return std::exchange(events_, {});
}

void HostTier::push_newest(uint32_t slot) {
  slots_[slot].older = newest_;
  slots_[slot].newer = kNone;
  (newest_ == kNone ? oldest_ : slots_[newest_].newer) = slot;
  newest_ = slot;
}

void HostTier::unlink(uint32_t slot) {
  const Slot& at = slots_[slot];
  (at.older == kNone ? oldest_ : slots_[at.older].newer) = at.newer;
  (at.newer == kNone ? newest_ : slots_[at.newer].older) = at.older;
}

void HostTier::record_stored(const BlockIdentity& identity,
                             std::optional<blocks::SequenceHash> parent) {
  if (record_ == Events::kOff) {
    return;
  }
  BlocksStored stored;
  if (parent) {
    stored.parent = external(*parent);
  }
  stored.blocks.push_back({.external = external(identity.sequence), .local = identity.local});
  events_.emplace_back(std::move(stored));
}

void HostTier::record_removed(blocks::SequenceHash hash) {
  if (record_ == Events::kOff) {
    return;
  }
  if (events_.empty() || !std::holds_alternative<BlocksRemoved>(events_.back())) {
    events_.emplace_back(BlocksRemoved{});
  }
  std::get<BlocksRemoved>(events_.back()).blocks.push_back(external(hash));
}

}  // namespace stator::kv
