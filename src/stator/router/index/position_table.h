// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/router/index/block_arena.h"
#include "stator/router/index/secret_mix.h"

namespace stator::router {

/// External block id → position, for the writer. A cache line holds ten entries: 28 bits of
/// position and 20 of the key's hash each, so that a search costs one miss and hardly a wrong
/// branch; the key itself is read back from the arena. The table is cut into segments that grow one
/// at a time, at staggered sizes, so that it is always about two thirds full as a whole (10 bytes
/// per key) and no insertion waits for more than one segment to move, which fits into a core's own
/// cache. One thread.
class PositionTable {
 public:
  /// `keys_max`: as many as the arena may hold; more segments for more.
  PositionTable(const BlockArena& arena, uint64_t keys_max);

  /// Where a key stands in this table: computed once for all that is done with it. Keys are hashes
  /// of others, maybe weak ones (an engine may count its blocks) or chosen ones.
  uint64_t hash_of(uint64_t key) const { return mix_(key); }

  std::optional<uint32_t> find(uint64_t key) const { return find(key, hash_of(key)); }
  std::optional<uint32_t> find(uint64_t key, uint64_t hash) const;
  /// The row that has the key already; otherwise nothing, and the key is now that of `position`,
  /// whose row must hold it. `hash` is hash_of(key).
  std::optional<uint32_t> find_or_insert(uint64_t key, uint64_t hash, uint32_t position);
  /// The same for consecutive rows, which hold these keys already. Stops before the first key that
  /// a row has; returns how many are now in the table.
  uint32_t insert_run(std::span<const uint64_t> keys, uint32_t position);
  /// Nothing happens if the key is not there or stands for another position.
  void erase(uint64_t key, uint32_t position);
  /// The names of consecutive rows.
  void erase_run(uint32_t position, uint32_t count);
  void prefetch(uint64_t hash) const {
    const Segment& segment = segments_[hash >> segment_shift_];
    __builtin_prefetch(&segment.groups[home_of(tag_of(hash), segment)]);
  }

  size_t bytes() const { return bytes_; }
  size_t size() const { return size_; }
  /// By which one insertion may enlarge the table, at most.
  size_t growth_bytes() const { return groups_most_ * sizeof(Group); }

  /// In a row's external id: the row has no name in this table, its holders have names of their
  /// own.
  static constexpr uint64_t kUnnamed = 0xFFFF'FFFF'FFFF'FFFF;
  /// Names that a row cannot have here.
  static bool is_reserved(uint64_t name) { return name == 0 || name == kUnnamed; }
  /// What a row is called: its external id, or its sequence hash if both are the same.
  static uint64_t name_of(const BlockArena& arena, uint32_t row) {
    const uint64_t external = arena.external(row);
    return external != 0 ? external : arena.sequence(row);
  }

 private:
  static constexpr uint32_t kLanes = 10;
  /// One cache line. `low[i]` is kEmpty, kTombstone or the low bits of a tag; `high[i]` has the
  /// tag's other four bits above the position.
  struct alignas(64) Group {
    std::array<uint16_t, kLanes> low;
    std::array<uint32_t, kLanes> high;
  };
  static_assert(sizeof(Group) == 64);
  struct Segment {
    std::vector<Group> groups;
    uint32_t filled = 0;  // with positions or tombstones
    uint32_t limit = 0;   // of `filled`
    uint32_t live = 0;
    uint32_t shrink_below = 0;  // of `live`
  };
  static constexpr uint16_t kEmpty = 0;
  static constexpr uint16_t kTombstone = 1;
  static constexpr uint32_t kTagBits = 20;

  /// 20 bits of the hash; those that the group stores are never those of a free lane.
  static uint32_t tag_of(uint64_t hash) {
    const auto tag = static_cast<uint32_t>(hash) & ((1U << kTagBits) - 1);
    return (tag & 0xFFFF) > kTombstone ? tag : tag + 2;
  }
  /// Rises with the tag at any number of groups: a segment that grows keeps its order.
  static size_t home_of(uint32_t tag, const Segment& segment) {
    return (uint64_t{tag} * segment.groups.size()) >> kTagBits;
  }
  /// How far ahead of use the groups of a run are fetched: about as many misses as a core keeps in
  /// flight. A power of two.
  static constexpr uint32_t kAhead = 16;

  class Lanes;
  static void put(Group& group, uint32_t lane, uint32_t tag, uint32_t position);

  Segment& segment_of(uint64_t hash) { return segments_[hash >> segment_shift_]; }
  const Segment& segment_of(uint64_t hash) const { return segments_[hash >> segment_shift_]; }
  std::optional<uint32_t> find_in(const Group& group, uint32_t lanes, uint32_t tag,
                                  uint64_t key) const;
  std::optional<uint32_t> insert(uint64_t key, uint64_t hash, uint32_t position);
  void erase_hashed(uint64_t hash, uint32_t position);
  void make_room(uint64_t hash);
  void rebuild(Segment& segment, size_t groups);
  static uint32_t limit_of(size_t groups);

  const BlockArena& arena_;
  const SecretMix mix_;
  uint32_t segment_shift_ = 0;  ///< of a hash: its other bits are the segment
  std::vector<Segment> segments_;
  size_t groups_most_ = 1;  ///< of a segment, ever
  size_t bytes_ = 0;
  size_t size_ = 0;
};

}  // namespace stator::router
