// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/position_table.h"

#include <algorithm>
#include <cmath>

namespace stator::router {
namespace {

// Slot values: 0 = never used, 1 = tombstone, else tag << 28 | position with the tag's top bits
// never both zero (see tag_of), so that no pair looks like the first two.
constexpr uint32_t kEmpty = 0;
constexpr uint32_t kTombstone = 1;
constexpr uint32_t kPositionBits = 28;
constexpr uint32_t kPositionMask = (1U << kPositionBits) - 1;
constexpr double kFullest = 0.8;
constexpr double kGrowth = 1.5;
constexpr size_t kSmallest = 32;

uint64_t mix(uint64_t key) {
  // Keys are hashes of others, maybe weak ones (an engine may count its blocks).
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15ULL;
  key ^= key >> 29;
  key *= 0xBF58476D1CE4E5B9ULL;
  return key ^ (key >> 32);
}

uint32_t tag_of(uint64_t hash) {
  return static_cast<uint32_t>((hash >> 54) & 0xF) % 15 + 1;
}

uint32_t start_of(uint64_t hash, size_t capacity) {
  return static_cast<uint32_t>(((hash & 0xFFFFFFFF) * capacity) >> 32);
}

uint32_t pack(uint64_t hash, uint32_t position) {
  return tag_of(hash) << kPositionBits | position;
}

}  // namespace

PositionTable::PositionTable(const BlockArena& arena) : arena_(arena) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const double stagger = std::pow(kGrowth, static_cast<double>(i) / 64.0);
    segments_[i].slots.resize(static_cast<size_t>(kSmallest * stagger));
    bytes_ += segments_[i].slots.size() * sizeof(uint32_t);
  }
}

std::optional<uint32_t> PositionTable::find(uint64_t key) const {
  const uint64_t hash = mix(key);
  const Segment& segment = segment_of(hash);
  const size_t capacity = segment.slots.size();
  const uint32_t tag = tag_of(hash);
  for (size_t i = start_of(hash, capacity);; i = i + 1 == capacity ? 0 : i + 1) {
    const uint32_t slot = segment.slots[i];
    if (slot == kEmpty) {
      return std::nullopt;
    }
    if (slot >> kPositionBits == tag && name_of(arena_, slot & kPositionMask) == key) {
      return slot & kPositionMask;
    }
  }
}

void PositionTable::insert(uint64_t key, uint32_t position) {
  const uint64_t hash = mix(key);
  Segment& segment = segment_of(hash);
  if (segment.filled + 1 > static_cast<double>(segment.slots.size()) * kFullest) {
    const auto needed = static_cast<double>(segment.live + 1) / kFullest;
    const auto grown = static_cast<double>(segment.slots.size()) * kGrowth;
    const bool only_tombstones = needed * 1.2 < static_cast<double>(segment.slots.size());
    rebuild(segment, only_tombstones ? segment.slots.size() : static_cast<size_t>(grown));
  }
  const size_t capacity = segment.slots.size();
  for (size_t i = start_of(hash, capacity);; i = i + 1 == capacity ? 0 : i + 1) {
    uint32_t& slot = segment.slots[i];
    if (slot == kEmpty || slot == kTombstone) {
      segment.filled += slot == kEmpty ? 1 : 0;
      slot = pack(hash, position);
      ++segment.live;
      ++size_;
      return;
    }
  }
}

void PositionTable::erase(uint64_t key, uint32_t position) {
  const uint64_t hash = mix(key);
  Segment& segment = segment_of(hash);
  const size_t capacity = segment.slots.size();
  const uint32_t wanted = pack(hash, position);
  for (size_t i = start_of(hash, capacity);; i = i + 1 == capacity ? 0 : i + 1) {
    uint32_t& slot = segment.slots[i];
    if (slot == kEmpty) {
      return;
    }
    if (slot == wanted) {
      const size_t next = i + 1 == capacity ? 0 : i + 1;
      const bool ends_a_run = segment.slots[next] == kEmpty;
      slot = ends_a_run ? kEmpty : kTombstone;
      segment.filled -= ends_a_run ? 1 : 0;
      --segment.live;
      --size_;
      break;
    }
  }
  // After an eviction the table gives memory back.
  if (capacity > kSmallest * 2 && segment.live < static_cast<double>(capacity) * 0.25) {
    rebuild(segment, static_cast<size_t>(static_cast<double>(capacity) * 0.5));
  }
}

void PositionTable::prefetch(uint64_t key) const {
  const uint64_t hash = mix(key);
  const Segment& segment = segment_of(hash);
  __builtin_prefetch(&segment.slots[start_of(hash, segment.slots.size())]);
}

void PositionTable::rebuild(Segment& segment, size_t capacity) {
  constexpr size_t kBatch = 16;  // names are read from all over the arena: overlap the misses
  std::vector<uint32_t> old = std::exchange(segment.slots, std::vector<uint32_t>(capacity));
  bytes_ = bytes_ - old.size() * sizeof(uint32_t) + capacity * sizeof(uint32_t);
  for (size_t first = 0; first < old.size(); first += kBatch) {
    const size_t last = std::min(first + kBatch, old.size());
    for (size_t i = first; i < last; ++i) {
      if (old[i] > kTombstone) {
        __builtin_prefetch(arena_.sequence_address(old[i] & kPositionMask));
      }
    }
    for (size_t i = first; i < last; ++i) {
      if (old[i] <= kTombstone) {
        continue;
      }
      const uint64_t hash = mix(name_of(arena_, old[i] & kPositionMask));
      size_t at = start_of(hash, capacity);
      while (segment.slots[at] != kEmpty) {
        at = at + 1 == capacity ? 0 : at + 1;
      }
      segment.slots[at] = old[i];
    }
  }
  segment.filled = segment.live;
}

}  // namespace stator::router
