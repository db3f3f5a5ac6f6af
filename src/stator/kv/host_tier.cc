// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/host_tier.h"

#include <utility>

#include "stator/core/assert.h"

namespace stator::kv {
namespace {

blocks::ExternalHash external(blocks::SequenceHash hash) {
  return blocks::ExternalHash(hash.value());
}

}  // namespace

HostTier::HostTier(uint32_t total_blocks, Events events, Eviction eviction)
    : slots_(total_blocks), record_(events) {
  if (eviction != Eviction::kLru) {
    order_.emplace(eviction, total_blocks);
    facts_.resize(total_blocks);
  }
  clear();
}

void HostTier::clear() {
  contents_.clear();
  free_.clear();
  for (uint32_t slot = total_blocks(); slot-- > 0;) {
    slots_[slot].linked = false;
    if (!slots_[slot].reserved) {
      free_.push_back(slot);
    }
  }
  oldest_ = kNone;
  newest_ = kNone;
  slot_of_.clear();
  behind_.clear();
  if (order_) {
    order_->clear();
  }
  copies_.clear();
  events_.clear();
}

void HostTier::store(const DeviceBlock& block) {
  if (const auto found = contents_.find(block.parent, block.identity)) {
    unlink(*found);
    push_newest(*found);
    return;
  }
  const std::optional<uint32_t> slot = take_slot();
  const ContentIndex::Inserted inserted =
      slot ? contents_.insert(*slot, block.content, block.parent, block.identity)
           : ContentIndex::Inserted::kRefused;
  if (inserted == ContentIndex::Inserted::kRefused) {
    ++dropped_total_;
    if (slot) {
      free_.push_back(*slot);
    }
    return;
  }
  begin_order(*slot, block);
  push_newest(*slot);
  copies_.push_back({BlockCopy::Direction::kToHost, block.block, *slot});
  ++stored_total_;
  if (inserted == ContentIndex::Inserted::kNewName) {
    record_stored(block.identity, block.parent_name);
  }
}

std::optional<uint32_t> HostTier::take_slot() {
  if (!free_.empty()) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  const auto next = order_             ? order_->take()
                    : oldest_ == kNone ? std::nullopt
                                       : std::optional(oldest_);
  if (!next) {
    return std::nullopt;
  }
  const uint32_t slot = *next;
  unlink(slot);
  end_order(slot);
  const blocks::SequenceHash name = contents_.name(slot);
  if (contents_.erase(slot)) {
    record_removed(name);
  }
  ++dropped_total_;
  return slot;
}

uint32_t HostTier::match(const Tail& tail) const {
  uint32_t count = 0;
  ContentId parent = tail.parent;
  while (tail.begin + count < tail.sequence.size()) {
    const auto found = contents_.find(parent, tail.sequence[tail.begin + count]);
    if (!found) {
      break;
    }
    parent = contents_.content(*found);
    ++count;
  }
  return count;
}

std::vector<uint32_t> HostTier::hold(const Tail& tail, uint32_t count) {
  std::vector<uint32_t> slots;
  slots.reserve(count);
  ContentId parent = tail.parent;
  for (uint32_t i = 0; i < count; ++i) {
    const auto found = contents_.find(parent, tail.sequence[tail.begin + i]);
    STATOR_ASSERT(found.has_value(), "H2: only copies that exist are held");
    parent = contents_.content(*found);
    unlink(*found);
    slots.push_back(*found);
  }
  return slots;
}

std::optional<ContentId> HostTier::find_content(ContentId parent,
                                                const BlockIdentity& identity) const {
  const auto found = contents_.find(parent, identity);
  return found ? std::optional(contents_.content(*found)) : std::nullopt;
}

std::vector<uint32_t> HostTier::reserve(uint32_t count) {
  std::vector<uint32_t> slots;
  while (slots.size() < count) {
    const auto slot = take_slot();
    if (!slot) {
      break;
    }
    slots_[*slot].reserved = true;
    slots.push_back(*slot);
  }
  return slots;
}

void HostTier::give_back(uint32_t slot) {
  STATOR_ASSERT(slots_[slot].reserved, "H2: what is given back was reserved");
  slots_[slot].reserved = false;
  free_.push_back(slot);
}

bool HostTier::adopt(uint32_t slot, const DeviceBlock& block) {
  const auto inserted = contents_.insert(slot, block.content, block.parent, block.identity);
  if (inserted == ContentIndex::Inserted::kRefused) {
    give_back(slot);
    return false;
  }
  slots_[slot].reserved = false;
  begin_order(slot, block);
  if (inserted == ContentIndex::Inserted::kNewName) {
    record_stored(block.identity, block.parent_name);
  }
  return true;
}

void HostTier::use(std::span<const uint32_t> slots) {
  for (size_t i = slots.size(); i-- > 0;) {
    if (slots_[slots[i]].linked) {
      unlink(slots[i]);
    }
    push_newest(slots[i]);
  }
}

void HostTier::load(uint32_t slot, BlockId block) {
  if (order_) {
    ++facts_[slot].hits;
  }
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

bool HostTier::has_copies_behind(uint32_t slot) const {
  return behind_.contains(contents_.content(slot));
}

/// A copy came: what it stands behind is dropped after it from now on.
void HostTier::begin_order(uint32_t slot, const DeviceBlock& block) {
  if (!order_) {
    return;
  }
  facts_[slot] = block.facts;
  slot_of_.insert_or_assign(block.content, slot);
  ++behind_[block.parent];
  if (const auto parent = slot_of_.find(block.parent); parent != slot_of_.end()) {
    order_->erase(parent->second);
  }
}

/// A copy goes; its content is still known.
void HostTier::end_order(uint32_t slot) {
  if (!order_) {
    return;
  }
  slot_of_.erase(contents_.content(slot));
  const ContentId parent = contents_.parent(slot);
  const auto behind = behind_.find(parent);
  if (--behind->second > 0) {
    return;
  }
  behind_.erase(behind);
  const auto known = slot_of_.find(parent);
  if (known != slot_of_.end() && slots_[known->second].linked) {
    order_->insert(known->second, facts_[known->second]);
  }
}

void HostTier::push_newest(uint32_t slot) {
  if (order_) {
    slots_[slot].linked = true;
    facts_[slot].released = ++uses_;
    if (!has_copies_behind(slot)) {
      order_->insert(slot, facts_[slot]);
    }
    return;
  }
  slots_[slot].older = newest_;
  slots_[slot].newer = kNone;
  slots_[slot].linked = true;
  (newest_ == kNone ? oldest_ : slots_[newest_].newer) = slot;
  newest_ = slot;
}

void HostTier::unlink(uint32_t slot) {
  Slot& at = slots_[slot];
  at.linked = false;
  if (order_) {
    order_->erase(slot);
    return;
  }
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
