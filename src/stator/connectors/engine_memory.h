// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/result.h"

namespace stator::connectors {

/// A piece of every block: that of block i lies at `address + i * stride`. A layer's keys are one,
/// its values another; where they are adjacent, both are one.
struct Region {
  uint64_t address = 0;
  uint64_t stride = 0;  ///< bytes from one block to the next
  uint64_t bytes = 0;
};

/// Where an engine keeps its blocks: readable memory of this process, the engine's own, which
/// outlives this. In a tier a block is its regions one behind the other.
/// Thread-safety: that of the bytes.
class EngineMemory {
 public:
  static constexpr size_t kRegionsMax = 65'536;

  /// `blocks`: their indices are below it. kInvalidArgument: no or too many regions, or they do not
  /// add up to `block_bytes`.
  static Result<EngineMemory> create(std::span<const Region> regions, uint64_t blocks,
                                     uint64_t block_bytes);
  /// Each block is one piece, and its index is its address.
  static EngineMemory of_pointers(uint64_t block_bytes);

  bool has(uint64_t block) const { return block < blocks_; }
  uint64_t block_bytes() const { return block_bytes_; }
  /// `out` and `from` have block_bytes().
  void gather(uint64_t block, std::span<std::byte> out) const;
  void scatter(uint64_t block, std::span<const std::byte> from) const;

 private:
  EngineMemory(std::vector<Region> regions, uint64_t blocks, uint64_t block_bytes)
      : regions_(std::move(regions)), blocks_(blocks), block_bytes_(block_bytes) {}
  std::vector<Region> regions_;
  uint64_t blocks_;
  uint64_t block_bytes_;
};

}  // namespace stator::connectors
