// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/position_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stator::router {
namespace {

constexpr uint32_t kPositionBits = 28;
constexpr uint32_t kPositionMask = (1U << kPositionBits) - 1;
// A segment of 16 k keys takes 150 KB: growing it stays in the second-level cache.
constexpr uint64_t kKeysPerSegment = 16 * 1024;
constexpr uint64_t kSegmentsMin = 16;
constexpr uint64_t kSegmentsMax = 2048;
constexpr double kFullest = 0.85;
constexpr double kGrowth = 1.75;
// Groups of a segment that outgrew its first one: enough to stagger the sizes of the segments.
constexpr double kGroupsSecond = 4;

}  // namespace

/// A group's low words, read once: which lanes hold `low`, as bits.
class PositionTable::Lanes {
 public:
#if defined(__SSE2__)
  explicit Lanes(const Group& group)
      : first_(_mm_load_si128(reinterpret_cast<const __m128i*>(&group))),
        second_(_mm_load_si128(reinterpret_cast<const __m128i*>(&group) + 1)) {}

  uint32_t with(uint16_t low) const {
    static_assert(kLanes > 8 && kLanes <= 16 && sizeof(Group) >= 32);
    const __m128i wanted = _mm_set1_epi16(static_cast<int16_t>(low));
    const __m128i equal =
        _mm_packs_epi16(_mm_cmpeq_epi16(first_, wanted), _mm_cmpeq_epi16(second_, wanted));
    return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & ((1U << kLanes) - 1);
  }

 private:
  __m128i first_;
  __m128i second_;
#else
  explicit Lanes(const Group& group) : group_(group) {}

  uint32_t with(uint16_t low) const {
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < kLanes; ++i) {
      lanes |= (group_.low[i] == low ? 1U : 0U) << i;
    }
    return lanes;
  }

 private:
  const Group& group_;
#endif
};

void PositionTable::put(Group& group, uint32_t lane, uint32_t tag, uint32_t position) {
  group.low[lane] = static_cast<uint16_t>(tag);
  group.high[lane] = tag >> 16 << kPositionBits | position;
}

/// Lanes that may be filled.
uint32_t PositionTable::limit_of(size_t groups) {
  return static_cast<uint32_t>(static_cast<double>(groups * kLanes) * kFullest);
}

PositionTable::PositionTable(const BlockArena& arena, uint64_t keys_max) : arena_(arena) {
  const uint64_t segments =
      std::bit_ceil(std::clamp(keys_max / kKeysPerSegment, kSegmentsMin, kSegmentsMax));
  segment_shift_ = 64 - static_cast<uint32_t>(std::countr_zero(segments));
  segments_.resize(segments);
  bytes_ = segments * (sizeof(Segment) + sizeof(Group));
  for (Segment& segment : segments_) {
    segment.groups.resize(1);
    segment.limit = limit_of(1);
  }
}

/// Of the lanes that have the low bits of the tag, the one that has the key.
inline std::optional<uint32_t> PositionTable::find_in(const Group& group, uint32_t lanes,
                                                      uint32_t tag, uint64_t key) const {
  for (; lanes != 0; lanes &= lanes - 1) {
    const uint32_t high = group.high[static_cast<uint32_t>(std::countr_zero(lanes))];
    const uint32_t position = high & kPositionMask;
    if (high >> kPositionBits == tag >> 16 && name_of(arena_, position) == key) {
      return position;
    }
  }
  return std::nullopt;
}

std::optional<uint32_t> PositionTable::find(uint64_t key, uint64_t hash) const {
  const Segment& segment = segment_of(hash);
  const uint32_t tag = tag_of(hash);
  for (size_t i = home_of(tag, segment);; i = i + 1 == segment.groups.size() ? 0 : i + 1) {
    const Group& group = segment.groups[i];
    const Lanes lanes(group);
    if (const auto found = find_in(group, lanes.with(static_cast<uint16_t>(tag)), tag, key)) {
      return found;
    }
    if (lanes.with(kEmpty) != 0) {
      return std::nullopt;
    }
  }
}

inline std::optional<uint32_t> PositionTable::insert(uint64_t key, uint64_t hash,
                                                     uint32_t position) {
  Segment& segment = segment_of(hash);
  if (segment.filled >= segment.limit) [[unlikely]] {
    make_room(hash);
  }
  const uint32_t tag = tag_of(hash);
  Group* tombstones = nullptr;  // the first group that has one
  for (size_t i = home_of(tag, segment);; i = i + 1 == segment.groups.size() ? 0 : i + 1) {
    Group& group = segment.groups[i];
    const Lanes lanes(group);
    if (const uint32_t alike = lanes.with(static_cast<uint16_t>(tag)); alike != 0) [[unlikely]] {
      if (const auto found = find_in(group, alike, tag, key)) {
        return found;
      }
    }
    const uint32_t empty = lanes.with(kEmpty);
    if (empty == 0) {
      tombstones = tombstones == nullptr && lanes.with(kTombstone) != 0 ? &group : tombstones;
      continue;
    }
    Group& target = tombstones != nullptr ? *tombstones : group;
    const uint32_t free = tombstones != nullptr ? Lanes(target).with(kTombstone) : empty;
    put(target, static_cast<uint32_t>(std::countr_zero(free)), tag, position);
    segment.filled += tombstones != nullptr ? 0 : 1;
    break;
  }
  ++segment.live;
  ++size_;
  return std::nullopt;
}

std::optional<uint32_t> PositionTable::find_or_insert(uint64_t key, uint64_t hash,
                                                      uint32_t position) {
  return insert(key, hash, position);
}

uint32_t PositionTable::insert_run(std::span<const uint64_t> keys, uint32_t position) {
  const auto count = static_cast<uint32_t>(keys.size());
  std::array<uint64_t, kAhead> hashes;  // of the keys from `i` on, at their number modulo kAhead
  const auto fetch = [&](uint32_t i) {
    hashes[i % kAhead] = hash_of(keys[i]);
    prefetch(hashes[i % kAhead]);
  };
  for (uint32_t i = 0; i < std::min(kAhead, count); ++i) {
    fetch(i);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (insert(keys[i], hashes[i % kAhead], position + i)) {
      return i;
    }
    if (i + kAhead < count) {
      fetch(i + kAhead);
    }
  }
  return count;
}

inline void PositionTable::erase_hashed(uint64_t hash, uint32_t position) {
  Segment& segment = segment_of(hash);
  const uint32_t tag = tag_of(hash);
  const uint32_t wanted = tag >> 16 << kPositionBits | position;
  for (size_t i = home_of(tag, segment);; i = i + 1 == segment.groups.size() ? 0 : i + 1) {
    Group& group = segment.groups[i];
    const Lanes all(group);
    uint32_t lanes = all.with(static_cast<uint16_t>(tag));
    while (lanes != 0 && group.high[static_cast<uint32_t>(std::countr_zero(lanes))] != wanted) {
      lanes &= lanes - 1;
    }
    const bool ends_here = all.with(kEmpty) != 0;
    if (lanes != 0) {
      // Nobody searched on from a group with an empty lane: one more does not cut anyone off.
      group.low[static_cast<uint32_t>(std::countr_zero(lanes))] = ends_here ? kEmpty : kTombstone;
      segment.filled -= ends_here ? 1 : 0;
      break;
    }
    if (ends_here) {
      return;
    }
  }
  --segment.live;
  --size_;
  // After an eviction the table gives memory back.
  if (segment.live < segment.shrink_below) [[unlikely]] {
    rebuild(segment, segment.groups.size() / 2);
  }
}

void PositionTable::erase(uint64_t key, uint32_t position) {
  erase_hashed(hash_of(key), position);
}

void PositionTable::erase_run(uint32_t position, uint32_t count) {
  std::array<uint64_t, kAhead> hashes;
  const auto fetch = [&](uint32_t i) {
    hashes[i % kAhead] = hash_of(name_of(arena_, position + i));
    prefetch(hashes[i % kAhead]);
  };
  for (uint32_t i = 0; i < std::min(kAhead, count); ++i) {
    fetch(i);
  }
  for (uint32_t i = 0; i < count; ++i) {
    erase_hashed(hashes[i % kAhead], position + i);
    if (i + kAhead < count) {
      fetch(i + kAhead);
    }
  }
}

/// Grows the segment, or only clears it of tombstones.
void PositionTable::make_room(uint64_t hash) {
  Segment& segment = segment_of(hash);
  const auto groups = static_cast<double>(segment.groups.size());
  const bool mostly_tombstones = segment.live + 1 < groups * kLanes * kFullest / 1.2;
  if (mostly_tombstones) {
    rebuild(segment, segment.groups.size());
    return;
  }
  const double share =
      static_cast<double>(hash >> segment_shift_) / static_cast<double>(segments_.size());
  const double grown = groups < kGroupsSecond ? kGroupsSecond * std::pow(kGrowth, share)
                                              : std::max(groups + 1, groups * kGrowth);
  rebuild(segment, static_cast<size_t>(grown));
}

void PositionTable::rebuild(Segment& segment, size_t groups) {
  const std::vector<Group> old = std::exchange(segment.groups, std::vector<Group>(groups));
  bytes_ += (groups - old.size()) * sizeof(Group);
  groups_most_ = std::max(groups_most_, groups);
  for (const Group& from : old) {
    const Lanes all(from);
    const uint32_t taken = ~(all.with(kEmpty) | all.with(kTombstone));
    for (uint32_t lanes = taken & ((1U << kLanes) - 1); lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
      const uint32_t tag = from.high[lane] >> kPositionBits << 16 | from.low[lane];
      size_t i = home_of(tag, segment);
      uint32_t empty = Lanes(segment.groups[i]).with(kEmpty);
      while (empty == 0) {
        i = i + 1 == groups ? 0 : i + 1;
        empty = Lanes(segment.groups[i]).with(kEmpty);
      }
      put(segment.groups[i], static_cast<uint32_t>(std::countr_zero(empty)), tag,
          from.high[lane] & kPositionMask);
    }
  }
  segment.filled = segment.live;
  segment.limit = limit_of(groups);
  segment.shrink_below = groups > 1 ? static_cast<uint32_t>((groups * kLanes + 3) / 4) : 0;
}

}  // namespace stator::router
