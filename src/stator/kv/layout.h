// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::kv {

/// Order of the dimensions inside a block, the head's own elements always innermost: layers, outer
/// (keys and values), tokens and heads, from the outermost on.
enum class BlockOrder : uint8_t {
  kOperationalNhd,  ///< layer, outer, token, head
  kOperationalHnd,  ///< layer, outer, head, token
  kUniversalTp,     ///< head, layer, outer, token: heads of a rank are one range
  kUniversalPp,     ///< layer, head, outer, token
};
inline constexpr size_t kBlockOrders = 4;
/// "operational_nhd", "operational_hnd", "universal_tp", "universal_pp".
std::string_view to_string(BlockOrder order);
std::optional<BlockOrder> find_block_order(std::string_view name);

/// Sizes of the KV blocks that one worker holds.
struct BlockShape {
  uint32_t layers = 0;
  uint32_t outer = 2;  ///< 2: keys and values; 1: latent attention, or both fused
  uint32_t tokens = 0;
  uint32_t heads = 0;       ///< of this worker
  uint32_t head_bytes = 0;  ///< one head of one token: head_dim × element size
  friend bool operator==(const BlockShape&, const BlockShape&) = default;

  uint64_t region_bytes() const { return uint64_t{tokens} * heads * head_bytes; }
  uint64_t layer_bytes() const { return outer * region_bytes(); }
  uint64_t block_bytes() const { return layers * layer_bytes(); }
};
/// kInvalidArgument, naming the size that is out of range, or when a block has more than 16 GiB.
Status validate(const BlockShape& shape);

/// Where the regions (one layer's keys or values) of many blocks lie in memory.
struct MemoryLayout {
  enum class Kind : uint8_t {
    kContiguous,  ///< all layers of a block behind each other, in one allocation
    kBlockFirst,  ///< an allocation per layer: [block][outer][region]
    kOuterFirst,  ///< an allocation per layer: [outer][block][region]
  };
  Kind kind = Kind::kContiguous;
  BlockShape shape;
  uint32_t blocks = 1;
  uint64_t alignment = 1;  ///< of contiguous blocks, a power of two

  uint64_t block_stride() const;
  /// Bytes each allocation needs.
  uint64_t bytes_needed() const;
  /// Offset of a region in its allocation, which is that of `layer` but for kContiguous.
  uint64_t offset(uint32_t block, uint32_t layer, uint32_t outer) const;
};
/// kInvalidArgument, with the bytes needed and given, unless every allocation is large enough.
Status check_sizes(const MemoryLayout& layout, std::span<const uint64_t> allocation_bytes);

/// Rewrites one block from one order to another. Both spans have shape.block_bytes() and do not
/// overlap.
void convert(const BlockShape& shape, BlockOrder from, std::span<const std::byte> source,
             BlockOrder to, std::span<std::byte> target);

/// The heads that rank `rank` of `ranks` holds of `heads` in all: an equal share, or, where there
/// are fewer heads than ranks, one that several hold (`writes`: this rank is the lowest of them).
struct HeadShare {
  uint32_t first = 0;
  uint32_t count = 0;
  bool writes = true;
  friend bool operator==(const HeadShare&, const HeadShare&) = default;
};
/// kInvalidArgument where neither divides the other.
Result<HeadShare> share_of(uint32_t heads, uint32_t ranks, uint32_t rank);

/// What of a universal_tp block of `whole` (all heads) a share is: one range.
struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
ByteRange range_of(const BlockShape& whole, const HeadShare& share);

/// One rank's block.
struct RankBlock {
  BlockShape shape;
  BlockOrder order = BlockOrder::kOperationalNhd;
  std::span<std::byte> bytes;
};
/// Fills every block of `targets`, one for each of their ranks, from the blocks of `sources`, which
/// hold the same tokens of the same model cut over another number of ranks.
Status reshard(std::span<const RankBlock> sources, std::span<const RankBlock> targets,
               uint32_t heads);

}  // namespace stator::kv
