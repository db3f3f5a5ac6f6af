// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/result.h"
#include "stator/memory/arena.h"

namespace stator::router {

/// The columns of all indexed blocks, one row per position: sequence hash, external id, and per
/// granule of four rows the chain that owns it. Ranges of rows are handed out and taken back; a
/// range never moves. The address space is reserved once, pages cost memory when first written.
///
/// Sequence hashes may be read by any thread while the writer appends; all else is the writer's.
class BlockArena {
 public:
  static constexpr uint32_t kGranule = 4;               ///< rows per allocation unit
  static constexpr uint32_t kRangeMax = 256;            ///< rows in one range
  static constexpr uint32_t kRowsMax = (1U << 28) - 4;  ///< positions fit into 28 bits

  /// `rows_max` is rounded up to whole granules. kOutOfMemory when the address space is refused.
  static Result<BlockArena> create(uint64_t rows_max);

  /// Whether rows that were never used may be taken, or only what was given back.
  enum class Grow : uint8_t { kNo, kYes };
  /// First row of a free range of `rows` (≤ kRangeMax, rounded up to granules), or nothing.
  std::optional<uint32_t> allocate(uint32_t rows, Grow grow);
  void release(uint32_t base, uint32_t rows);
  /// Lengthens the range in place if what follows is free.
  bool extend(uint32_t base, uint32_t rows, uint32_t new_rows);

  uint64_t sequence(uint32_t row) const {
    return std::atomic_ref(sequences_[row]).load(std::memory_order_relaxed);
  }
  void set_sequence(uint32_t row, uint64_t value) {
    std::atomic_ref(sequences_[row]).store(value, std::memory_order_relaxed);
  }
  /// 0 = the block's external id is its sequence hash, as with our own engines: nothing is stored.
  uint64_t external(uint32_t row) const { return any_external_ ? externals_[row] : 0; }
  void set_external(uint32_t row, uint64_t value) {
    any_external_ = any_external_ || value != 0;
    if (any_external_) {
      externals_[row] = value;
    }
  }
  /// Whether any was ever set but 0: until then the column costs nothing.
  bool any_external() const { return any_external_; }
  /// The chain of a row in use; something ≥ kFree for a free row.
  uint32_t owner(uint32_t row) const { return owners_[row / kGranule]; }
  static constexpr uint32_t kFree = 1U << 31;
  void set_owner(uint32_t base, uint32_t rows, uint32_t chain);

  /// For the writer, to copy whole ranges.
  const uint64_t* sequence_address(uint32_t row) const { return &sequences_[row]; }
  const uint64_t* external_address(uint32_t row) const { return &externals_[row]; }

  static constexpr uint32_t rounded(uint32_t rows) {
    return (rows + kGranule - 1) / kGranule * kGranule;
  }
  /// Rows that were ever used: what the pages of the columns cost.
  uint32_t high_water() const { return top_; }
  uint32_t rows_used() const { return used_; }

 private:
  BlockArena() = default;
  // A free range is marked at both ends in the owner column, so that neighbours find each other.
  void mark_free(uint32_t base, uint32_t rows);
  void unlink(uint32_t base, uint32_t rows);
  std::vector<uint32_t>& list_of(uint32_t rows);
  uint32_t first_free(uint32_t size) const;

  memory::Arena sequence_memory_;
  memory::Arena external_memory_;
  memory::Arena owner_memory_;
  memory::Arena link_memory_;
  // Constant, so on another cache line than what the writer counts: readers look here every time.
  alignas(64) uint64_t* sequences_ = nullptr;
  uint64_t* externals_ = nullptr;
  uint32_t* owners_ = nullptr;
  uint32_t* links_ = nullptr;  // of a free range's first granule: where its list entry is
  alignas(64) std::vector<std::vector<uint32_t>> free_;  // by size in granules; the last holds all
                                                         // larger ones
  std::array<uint64_t, 2> sizes_free_{};                 // bit of each list that is not empty
  uint32_t rows_max_ = 0;
  uint32_t top_ = 0;
  uint32_t used_ = 0;
  bool any_external_ = false;
};

}  // namespace stator::router
