// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "stator/router/index/block_arena.h"

namespace stator::router {

/// External block id → position, for the writer. Four bytes per slot: 28 bits of position and four
/// of the key's hash; the key itself is read back from the arena. 64 segments grow one at a time,
/// at staggered sizes, so the table as a whole is always about 70 % full and no insertion waits for
/// more than 1/64 of it to move. One thread.
class PositionTable {
 public:
  explicit PositionTable(const BlockArena& arena);

  std::optional<uint32_t> find(uint64_t key) const;
  /// The key must not be in the table; its row must already hold it.
  void insert(uint64_t key, uint32_t position);
  /// Nothing happens if the key is not there or stands for another position.
  void erase(uint64_t key, uint32_t position);
  void prefetch(uint64_t key) const;

  size_t bytes() const { return bytes_; }
  size_t size() const { return size_; }

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
  struct Segment {
    std::vector<uint8_t> slots;  // of kSlotBytes each, and room to load a whole word at the last
    uint32_t capacity = 0;
    uint32_t filled = 0;  // with positions or tombstones
    uint32_t live = 0;
  };
  static constexpr size_t kSlotBytes = 6;

  static uint64_t load(const Segment& segment, size_t index);
  static void store(Segment& segment, size_t index, uint64_t slot);
  static void place(Segment& segment, uint64_t slot);
  void resize(Segment& segment, uint32_t capacity);
  void rebuild(Segment& segment, uint32_t capacity);

  const BlockArena& arena_;
  std::array<Segment, 64> segments_;
  size_t bytes_ = 0;
  size_t size_ = 0;
};

}  // namespace stator::router
