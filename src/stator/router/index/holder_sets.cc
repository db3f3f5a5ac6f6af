// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/holder_sets.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

uint64_t hash_of(Slot slot) {
  uint64_t hash = (uint64_t{slot} + 1) * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 31;
  hash *= 0xBF58476D1CE4E5B9ULL;
  return hash ^ (hash >> 30);
}

size_t bytes_of(const HolderSets::Members& members) {
  return sizeof(members) + members.slots.capacity() * sizeof(Slot);
}

}  // namespace

HolderSets::HolderSets() = default;

HolderSets::~HolderSets() {
  for (uint32_t i = 0; i < records_; ++i) {
    std::unique_ptr<const Members>(record(kSlotsMax + i).members.load());
  }
  for (std::atomic<Record*>& chunk : chunks_) {
    std::unique_ptr<Record[]>(chunk.load());
  }
}

bool HolderSets::contains(SetId set, Slot slot) const {
  Slot single = 0;
  const auto slots = members(set, single);
  return std::ranges::binary_search(slots, slot);
}

SetId HolderSets::with(SetId set, Slot slot) {
  STATOR_ASSERT(slot < kSlotsMax, "slot out of range");
  if (set == kNoHolders) {
    return slot;
  }
  Slot single = 0;
  const auto old = members(set, single);
  const auto at = std::ranges::lower_bound(old, slot);
  if (at != old.end() && *at == slot) {
    return set;
  }
  std::vector<Slot> slots;
  slots.reserve(old.size() + 1);
  slots.assign(old.begin(), at);
  slots.push_back(slot);
  slots.insert(slots.end(), at, old.end());
  uint64_t content = 0;
  for (const Slot member : slots) {
    content += hash_of(member);
  }
  return intern(std::move(slots), content);
}

SetId HolderSets::without(SetId set, Slot slot) {
  if (!contains(set, slot)) {
    return set;
  }
  Slot single = 0;
  const auto old = members(set, single);
  if (old.size() == 1) {
    return kNoHolders;
  }
  std::vector<Slot> slots;
  slots.reserve(old.size() - 1);
  uint64_t content = 0;
  for (const Slot member : old) {
    if (member != slot) {
      slots.push_back(member);
      content += hash_of(member);
    }
  }
  return intern(std::move(slots), content);
}

SetId HolderSets::intern(std::vector<Slot> slots, uint64_t content) {
  if (slots.size() == 1) {
    return slots.front();
  }
  std::vector<SetId>& same = by_content_[content];
  for (const SetId set : same) {
    const Members* members = record(set).members.load(std::memory_order_relaxed);
    if (members->slots == slots) {
      return set;
    }
  }
  SetId set = kNoHolders;
  if (!free_.empty()) {
    set = free_.back();
    free_.pop_back();
  } else {
    STATOR_ASSERT(records_ < kChunk * kChunksMax, "more sets of holders than ids");
    if (records_ % kChunk == 0) {
      chunks_[records_ / kChunk].store(std::make_unique<Record[]>(kChunk).release());
      bytes_ += kChunk * sizeof(Record);
    }
    set = kSlotsMax + records_++;
  }
  same.push_back(set);
  auto members = std::make_unique<const Members>(Members{content, std::move(slots)});
  bytes_ += bytes_of(*members);
  record(set).references = 0;
  record(set).members.store(members.release(), std::memory_order_release);
  ++live_;
  return set;
}

void HolderSets::acquire(SetId set) {
  if (set >= kSlotsMax && set != kNoHolders) {
    ++record(set).references;
  }
}

void HolderSets::release(SetId set) {
  if (set < kSlotsMax || set == kNoHolders) {
    return;
  }
  Record& entry = record(set);
  STATOR_ASSERT(entry.references > 0, "released more often than acquired");
  if (--entry.references > 0) {
    return;
  }
  const Members* members = entry.members.load(std::memory_order_relaxed);
  const auto same = by_content_.find(members->content);
  if (same != by_content_.end()) {
    std::erase(same->second, set);
    if (same->second.empty()) {
      by_content_.erase(same);
    }
  }
  replace(set, nullptr);
  --live_;
}

void HolderSets::replace(SetId set, std::unique_ptr<const Members> members) {
  // The id must rest, too: a reader may have it from a chain that named it a moment ago, and would
  // find the members of another set under it.
  const SetId free_id = members == nullptr ? set : kNoHolders;
  bytes_ += members ? bytes_of(*members) : 0;
  std::unique_ptr<const Members> old(
      record(set).members.exchange(members.release(), std::memory_order_acq_rel));
  bytes_ -= bytes_of(*old);
  retired_.push_back({std::move(old), free_id});
}

void HolderSets::recycle(Retired retired) {
  if (retired.set != kNoHolders) {
    free_.push_back(retired.set);
  }
}

void HolderSets::drop_slot(Slot slot) {
  for (uint32_t i = 0; i < records_; ++i) {
    Record& entry = record(kSlotsMax + i);
    const Members* old = entry.members.load(std::memory_order_relaxed);
    if (old == nullptr || !std::ranges::binary_search(old->slots, slot)) {
      continue;
    }
    const auto same = by_content_.find(old->content);
    std::erase(same->second, kSlotsMax + i);
    if (same->second.empty()) {
      by_content_.erase(same);
    }
    auto members = std::make_unique<Members>(*old);
    std::erase(members->slots, slot);
    members->slots.shrink_to_fit();
    members->content -= hash_of(slot);
    by_content_[members->content].push_back(kSlotsMax + i);
    replace(kSlotsMax + i, std::move(members));
  }
}

std::vector<HolderSets::Retired> HolderSets::take_retired() {
  return std::exchange(retired_, {});
}

}  // namespace stator::router
