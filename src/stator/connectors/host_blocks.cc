// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/host_blocks.h"

#include "stator/core/assert.h"

namespace stator::connectors {

HostBlocks::HostBlocks(uint32_t slots) : slots_(slots) {
  free_.reserve(slots);
  for (uint32_t slot = slots; slot > 0; --slot) {
    free_.push_back(slot - 1);
  }
}

uint32_t HostBlocks::find(const storage::BlockName& name) const {
  const auto found = by_name_.find(name.lineage);
  return found == by_name_.end() || slots_[found->second].name != name ? kNone : found->second;
}

uint32_t HostBlocks::take() {
  uint32_t slot = kNone;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else if (!idle_.empty()) {
    slot = idle_.begin()->second;
    idle_.erase(idle_.begin());
    by_name_.erase(slots_[slot].name.lineage);
    ++evicted_;
  } else {
    return kNone;
  }
  slots_[slot] = {.pins = 1};
  ++pinned_;
  return slot;
}

bool HostBlocks::publish(uint32_t slot, const storage::BlockName& name, uint32_t crc) {
  Slot& of = slots_[slot];
  STATOR_ASSERT(of.pins > 0 && !of.published, "only a slot being filled is published");
  if (!by_name_.try_emplace(name.lineage, slot).second) {
    return false;
  }
  of.name = name;
  of.crc = crc;
  of.published = true;
  return true;
}

void HostBlocks::pin(uint32_t slot) {
  Slot& of = slots_[slot];
  if (of.pins++ == 0) {
    idle_.erase({of.stamp, slot});
    ++pinned_;
  }
}

void HostBlocks::unpin(uint32_t slot) {
  Slot& of = slots_[slot];
  STATOR_ASSERT(of.pins > 0, "H3: an unpin belongs to a pin");
  if (--of.pins > 0) {
    return;
  }
  --pinned_;
  if (of.published) {
    idle_.emplace(of.stamp, slot);
  } else {
    free_.push_back(slot);
  }
}

void HostBlocks::touch(uint32_t slot, uint64_t stamp) {
  Slot& of = slots_[slot];
  if (of.pins == 0) {
    idle_.erase({of.stamp, slot});
    idle_.emplace(stamp, slot);
  }
  of.stamp = stamp;
}

void HostBlocks::forget(uint32_t slot) {
  Slot& of = slots_[slot];
  if (!of.published) {
    return;
  }
  by_name_.erase(of.name.lineage);
  of.published = false;
  if (of.pins == 0) {
    idle_.erase({of.stamp, slot});
    free_.push_back(slot);
  }
}

}  // namespace stator::connectors
