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

/// The lanes that hold `low`, as bits.
uint32_t PositionTable::lanes_with(const Group& group, uint16_t low) {
#if defined(__SSE2__)
  static_assert(kLanes > 8 && kLanes <= 16 && sizeof(Group) >= 32);
  const auto* words = reinterpret_cast<const __m128i*>(&group);
  const __m128i wanted = _mm_set1_epi16(static_cast<int16_t>(low));
  const __m128i equal = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(words), wanted),
                                        _mm_cmpeq_epi16(_mm_load_si128(words + 1), wanted));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & ((1U << kLanes) - 1);
#else
  uint32_t lanes = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    lanes |= (group.low[i] == low ? 1U : 0U) << i;
  }
  return lanes;
#endif
}

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

std::optional<uint32_t> PositionTable::find_in(const Group& group, uint32_t tag,
                                               uint64_t key) const {
  for (uint32_t lanes = lanes_with(group, static_cast<uint16_t>(tag)); lanes != 0;
       lanes &= lanes - 1) {
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
    if (const auto found = find_in(group, tag, key)) {
      return found;
    }
    if (lanes_with(group, kEmpty) != 0) {
      return std::nullopt;
    }
  }
}

std::optional<uint32_t> PositionTable::find_or_insert(uint64_t key, uint64_t hash,
                                                      uint32_t position) {
  Segment& segment = segment_of(hash);
  if (segment.filled >= segment.limit) {
    make_room(hash);
  }
  const uint32_t tag = tag_of(hash);
  Group* tombstones = nullptr;  // the first group that has one
  for (size_t i = home_of(tag, segment);; i = i + 1 == segment.groups.size() ? 0 : i + 1) {
    Group& group = segment.groups[i];
    if (const auto found = find_in(group, tag, key)) {
      return found;
    }
    const uint32_t empty = lanes_with(group, kEmpty);
    if (empty == 0) {
      tombstones =
          tombstones == nullptr && lanes_with(group, kTombstone) != 0 ? &group : tombstones;
      continue;
    }
    Group& target = tombstones != nullptr ? *tombstones : group;
    const uint32_t free = tombstones != nullptr ? lanes_with(target, kTombstone) : empty;
    put(target, static_cast<uint32_t>(std::countr_zero(free)), tag, position);
    segment.filled += tombstones != nullptr ? 0 : 1;
    break;
  }
  ++segment.live;
  ++size_;
  return std::nullopt;
}

void PositionTable::erase(uint64_t key, uint32_t position) {
  const uint64_t hash = hash_of(key);
  Segment& segment = segment_of(hash);
  const uint32_t tag = tag_of(hash);
  const uint32_t wanted = tag >> 16 << kPositionBits | position;
  for (size_t i = home_of(tag, segment);; i = i + 1 == segment.groups.size() ? 0 : i + 1) {
    Group& group = segment.groups[i];
    uint32_t lanes = lanes_with(group, static_cast<uint16_t>(tag));
    while (lanes != 0 && group.high[static_cast<uint32_t>(std::countr_zero(lanes))] != wanted) {
      lanes &= lanes - 1;
    }
    const bool ends_here = lanes_with(group, kEmpty) != 0;
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
  if (segment.groups.size() > 1 && segment.live * 4 < segment.groups.size() * kLanes) {
    rebuild(segment, segment.groups.size() / 2);
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
    const uint32_t taken = ~(lanes_with(from, kEmpty) | lanes_with(from, kTombstone));
    for (uint32_t lanes = taken & ((1U << kLanes) - 1); lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(lanes));
      const uint32_t tag = from.high[lane] >> kPositionBits << 16 | from.low[lane];
      size_t i = home_of(tag, segment);
      uint32_t empty = lanes_with(segment.groups[i], kEmpty);
      while (empty == 0) {
        i = i + 1 == groups ? 0 : i + 1;
        empty = lanes_with(segment.groups[i], kEmpty);
      }
      put(segment.groups[i], static_cast<uint32_t>(std::countr_zero(empty)), tag,
          from.high[lane] & kPositionMask);
    }
  }
  segment.filled = segment.live;
  segment.limit = limit_of(groups);
}

}  // namespace stator::router
