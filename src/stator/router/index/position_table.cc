// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/position_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace stator::router {
namespace {

// A slot: tag << 28 | position + 2. 0 = never used, 1 = tombstone.
constexpr uint64_t kEmpty = 0;
constexpr uint64_t kTombstone = 1;
constexpr uint32_t kPositionBits = 28;
constexpr uint64_t kPositionMask = (1ULL << kPositionBits) - 1;
constexpr uint32_t kTagBits = 20;
constexpr uint64_t kSlotMask = (1ULL << (kPositionBits + kTagBits)) - 1;
constexpr double kFullest = 0.8;
constexpr double kGrowth = 1.5;
constexpr uint32_t kSmallest = 32;

uint64_t mix(uint64_t key) {
  // Keys are hashes of others, maybe weak ones (an engine may count its blocks).
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15ULL;
  key ^= key >> 29;
  key *= 0xBF58476D1CE4E5B9ULL;
  return key ^ (key >> 32);
}

size_t segment_of(uint64_t hash) {
  return hash >> 58;
}

uint64_t tag_of(uint64_t hash) {
  return hash & ((1ULL << kTagBits) - 1);
}

size_t home_of(uint64_t slot, uint32_t capacity) {
  return ((slot >> kPositionBits) * capacity) >> kTagBits;
}

uint64_t pack(uint64_t hash, uint32_t position) {
  return tag_of(hash) << kPositionBits | (uint64_t{position} + 2);
}

uint32_t position_of(uint64_t slot) {
  return static_cast<uint32_t>(slot & kPositionMask) - 2;
}

size_t after(size_t index, uint32_t capacity) {
  return index + 1 == capacity ? 0 : index + 1;
}

}  // namespace

uint64_t PositionTable::load(const Segment& segment, size_t index) {
  uint64_t slot = 0;
  std::memcpy(&slot, &segment.slots[index * kSlotBytes], sizeof(slot));
  return slot & kSlotMask;
}

void PositionTable::store(Segment& segment, size_t index, uint64_t slot) {
  std::memcpy(&segment.slots[index * kSlotBytes], &slot, kSlotBytes);
}

PositionTable::PositionTable(const BlockArena& arena) : arena_(arena) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const double stagger = std::pow(kGrowth, static_cast<double>(i) / 64.0);
    resize(segments_[i], static_cast<uint32_t>(kSmallest * stagger));
  }
}

void PositionTable::resize(Segment& segment, uint32_t capacity) {
  bytes_ -= segment.slots.size();
  segment.slots = std::vector<uint8_t>(capacity * kSlotBytes + sizeof(uint64_t) - kSlotBytes);
  segment.capacity = capacity;
  bytes_ += segment.slots.size();
}

std::optional<uint32_t> PositionTable::find(uint64_t key) const {
  const uint64_t hash = mix(key);
  const Segment& segment = segments_[segment_of(hash)];
  const uint64_t tag = tag_of(hash);
  for (size_t i = home_of(tag << kPositionBits, segment.capacity);;
       i = after(i, segment.capacity)) {
    const uint64_t slot = load(segment, i);
    if (slot == kEmpty) {
      return std::nullopt;
    }
    if (slot >> kPositionBits == tag && slot != kTombstone &&
        name_of(arena_, position_of(slot)) == key) {
      return position_of(slot);
    }
  }
}

void PositionTable::place(Segment& segment, uint64_t slot) {
  size_t i = home_of(slot, segment.capacity);
  uint64_t old = load(segment, i);
  for (; old > kTombstone; old = load(segment, i)) {
    i = after(i, segment.capacity);
  }
  segment.filled += old == kEmpty ? 1 : 0;
  store(segment, i, slot);
}

void PositionTable::insert(uint64_t key, uint32_t position) {
  const uint64_t hash = mix(key);
  Segment& segment = segments_[segment_of(hash)];
  if (segment.filled + 1 > segment.capacity * kFullest) {
    const bool mostly_tombstones = segment.live + 1 < segment.capacity * kFullest / 1.2;
    rebuild(segment, mostly_tombstones ? segment.capacity
                                       : static_cast<uint32_t>(segment.capacity * kGrowth));
  }
  place(segment, pack(hash, position));
  ++segment.live;
  ++size_;
}

void PositionTable::erase(uint64_t key, uint32_t position) {
  const uint64_t hash = mix(key);
  Segment& segment = segments_[segment_of(hash)];
  const uint64_t wanted = pack(hash, position);
  size_t i = home_of(wanted, segment.capacity);
  for (uint64_t slot = load(segment, i); slot != wanted; slot = load(segment, i)) {
    if (slot == kEmpty) {
      return;
    }
    i = after(i, segment.capacity);
  }
  const bool ends_a_run = load(segment, after(i, segment.capacity)) == kEmpty;
  store(segment, i, ends_a_run ? kEmpty : kTombstone);
  segment.filled -= ends_a_run ? 1 : 0;
  --segment.live;
  --size_;
  // After an eviction the table gives memory back.
  if (segment.capacity > kSmallest * 2 && segment.live < segment.capacity * 0.25) {
    rebuild(segment, segment.capacity / 2);
  }
}

void PositionTable::prefetch(uint64_t key) const {
  const uint64_t hash = mix(key);
  const Segment& segment = segments_[segment_of(hash)];
  __builtin_prefetch(
      &segment.slots[home_of(tag_of(hash) << kPositionBits, segment.capacity) * kSlotBytes]);
}

void PositionTable::rebuild(Segment& segment, uint32_t capacity) {
  Segment old = std::exchange(segment, {});
  bytes_ -= old.slots.size();
  resize(segment, capacity);
  segment.live = old.live;
  for (size_t i = 0; i < old.capacity; ++i) {
    const uint64_t slot = load(old, i);
    if (slot > kTombstone) {
      place(segment, slot);
    }
  }
}

}  // namespace stator::router
