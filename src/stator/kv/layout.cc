// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace stator::kv {
namespace {

constexpr std::array<std::string_view, kBlockOrders> kNames = {"operational_nhd", "operational_hnd",
                                                               "universal_tp", "universal_pp"};
constexpr uint32_t kDimensionMax = 1U << 20;
constexpr double kBlockBytesMax = 16.0 * (1ULL << 30);

/// Bytes between two neighbours of each dimension.
struct Strides {
  uint64_t layer = 0;
  uint64_t outer = 0;
  uint64_t token = 0;
  uint64_t head = 0;
};

Strides strides_of(const BlockShape& shape, BlockOrder order) {
  const uint64_t element = shape.head_bytes;
  Strides out;
  switch (order) {
    case BlockOrder::kOperationalNhd:
      out.head = element;
      out.token = out.head * shape.heads;
      out.outer = out.token * shape.tokens;
      out.layer = out.outer * shape.outer;
      break;
    case BlockOrder::kOperationalHnd:
      out.token = element;
      out.head = out.token * shape.tokens;
      out.outer = out.head * shape.heads;
      out.layer = out.outer * shape.outer;
      break;
    case BlockOrder::kUniversalTp:
      out.token = element;
      out.outer = out.token * shape.tokens;
      out.layer = out.outer * shape.outer;
      out.head = out.layer * shape.layers;
      break;
    case BlockOrder::kUniversalPp:
      out.token = element;
      out.outer = out.token * shape.tokens;
      out.head = out.outer * shape.outer;
      out.layer = out.head * shape.heads;
      break;
  }
  return out;
}

/// Heads of a block, and where they begin in another.
struct Heads {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t count = 0;
};

/// Copies heads from one block to the other, in runs as long as both orders allow.
void copy_heads(const RankBlock& source, const RankBlock& target, const Heads& heads) {
  const Strides from = strides_of(source.shape, source.order);
  const Strides to = strides_of(target.shape, target.order);
  const uint64_t element = source.shape.head_bytes;
  const bool tokens_adjoin = from.token == element && to.token == element;
  const bool heads_adjoin = from.head == element && to.head == element;
  const uint32_t tokens = source.shape.tokens;
  const uint64_t run = element * (tokens_adjoin ? tokens : heads_adjoin ? heads.count : 1);
  const uint32_t token_steps = tokens_adjoin ? 1 : tokens;
  const uint32_t head_steps = heads_adjoin ? 1 : heads.count;
  for (uint32_t layer = 0; layer < source.shape.layers; ++layer) {
    for (uint32_t outer = 0; outer < source.shape.outer; ++outer) {
      const uint64_t read = layer * from.layer + outer * from.outer;
      const uint64_t write = layer * to.layer + outer * to.outer;
      for (uint32_t head = 0; head < head_steps; ++head) {
        const std::byte* in = source.bytes.data() + read + (heads.from + head) * from.head;
        std::byte* out = target.bytes.data() + write + (heads.to + head) * to.head;
        for (uint32_t token = 0; token < token_steps; ++token) {
          std::memcpy(out, in, run);
          in += from.token;
          out += to.token;
        }
      }
    }
  }
}

}  // namespace

std::string_view to_string(BlockOrder order) {
  return kNames[static_cast<size_t>(order)];
}

std::optional<BlockOrder> find_block_order(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  return found == kNames.end() ? std::nullopt
                               : std::optional(static_cast<BlockOrder>(found - kNames.begin()));
}

Status validate(const BlockShape& shape) {
  struct Size {
    std::string_view name;
    uint32_t value;
    uint32_t most;
  };
  for (const Size& size :
       {Size{"layers", shape.layers, kDimensionMax}, Size{"outer", shape.outer, 2},
        Size{"tokens", shape.tokens, kDimensionMax}, Size{"heads", shape.heads, kDimensionMax},
        Size{"head_bytes", shape.head_bytes, kDimensionMax}}) {
    if (size.value == 0 || size.value > size.most) {
      return Error(Code::kInvalidArgument, fmt::format("KV layout: {} is {}, must be 1 … {}",
                                                       size.name, size.value, size.most));
    }
  }
  const double bytes =
      double{1} * shape.layers * shape.outer * shape.tokens * shape.heads * shape.head_bytes;
  if (bytes > kBlockBytesMax) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("KV layout: a block of {} GiB, must be 16 at most", bytes / (1 << 30)));
  }
  return {};
}

uint64_t MemoryLayout::block_stride() const {
  switch (kind) {
    case Kind::kContiguous:
      return (shape.block_bytes() + alignment - 1) / alignment * alignment;
    case Kind::kBlockFirst:
      return shape.layer_bytes();
    case Kind::kOuterFirst:
      return shape.region_bytes();
  }
  return 0;
}

uint64_t MemoryLayout::bytes_needed() const {
  return kind == Kind::kContiguous ? blocks * block_stride() : blocks * shape.layer_bytes();
}

uint64_t MemoryLayout::offset(uint32_t block, uint32_t layer, uint32_t outer) const {
  const uint64_t region = shape.region_bytes();
  switch (kind) {
    case Kind::kContiguous:
      return block * block_stride() + layer * shape.layer_bytes() + outer * region;
    case Kind::kBlockFirst:
      return block * block_stride() + outer * region;
    case Kind::kOuterFirst:
      return block * block_stride() + outer * region * blocks;
  }
  return 0;
}

Status check_sizes(const MemoryLayout& layout, std::span<const uint64_t> allocation_bytes) {
  STATOR_CHECK(validate(layout.shape));
  const size_t wanted =
      layout.kind == MemoryLayout::Kind::kContiguous ? 1 : size_t{layout.shape.layers};
  if (layout.blocks == 0 || !std::has_single_bit(layout.alignment)) {
    return Error(Code::kInvalidArgument,
                 "KV layout: blocks must be at least 1, and alignment a power of two");
  }
  if (allocation_bytes.size() != wanted) {
    return Error(Code::kInvalidArgument, fmt::format("KV layout: {} allocations, must be {}",
                                                     allocation_bytes.size(), wanted));
  }
  for (const uint64_t bytes : allocation_bytes) {
    if (bytes < layout.bytes_needed()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("KV layout: an allocation has {} bytes, {} blocks need {}", bytes,
                               layout.blocks, layout.bytes_needed()));
    }
  }
  return {};
}

void convert(const BlockShape& shape, BlockOrder from, std::span<const std::byte> source,
             BlockOrder to, std::span<std::byte> target) {
  if (from == to) {
    std::ranges::copy(source, target.begin());
    return;
  }
  // Only read: RankBlock serves both sides.
  const std::span<std::byte> read(const_cast<std::byte*>(source.data()), source.size());
  copy_heads({.shape = shape, .order = from, .bytes = read},
             {.shape = shape, .order = to, .bytes = target}, {.count = shape.heads});
}

Result<HeadShare> share_of(uint32_t heads, uint32_t ranks, uint32_t rank) {
  if (heads == 0 || ranks == 0 || rank >= ranks || (heads % ranks != 0 && ranks % heads != 0)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("rank {} of {}: {} KV heads cannot be cut so", rank, ranks, heads));
  }
  if (heads >= ranks) {
    const uint32_t count = heads / ranks;
    return HeadShare{.first = rank * count, .count = count};
  }
  const uint32_t sharers = ranks / heads;
  return HeadShare{.first = rank / sharers, .count = 1, .writes = rank % sharers == 0};
}

ByteRange range_of(const BlockShape& whole, const HeadShare& share) {
  const uint64_t head = uint64_t{whole.layers} * whole.outer * whole.tokens * whole.head_bytes;
  return {.offset = share.first * head, .bytes = share.count * head};
}

Status reshard(std::span<const RankBlock> sources, std::span<const RankBlock> targets,
               uint32_t heads) {
  const auto check = [&](const RankBlock& block, std::span<const RankBlock> all) -> Status {
    const auto rank = static_cast<uint32_t>(&block - all.data());
    STATOR_TRY(const HeadShare share, share_of(heads, static_cast<uint32_t>(all.size()), rank));
    BlockShape same = sources.front().shape;
    same.heads = share.count;
    return block.shape == same && block.bytes.size() == same.block_bytes()
               ? Status()
               : Status(Error(Code::kInvalidArgument,
                              fmt::format("rank {} has a block of another shape", rank)));
  };
  if (sources.empty() || targets.empty()) {
    return Error(Code::kInvalidArgument, "no ranks");
  }
  STATOR_CHECK(validate(sources.front().shape));
  for (const auto all : {sources, targets}) {
    for (const RankBlock& block : all) {
      STATOR_CHECK(check(block, all));
    }
  }
  const auto target_ranks = static_cast<uint32_t>(targets.size());
  const auto source_ranks = static_cast<uint32_t>(sources.size());
  for (uint32_t to = 0; to < target_ranks; ++to) {
    STATOR_TRY(const HeadShare wanted, share_of(heads, target_ranks, to));
    for (uint32_t from = 0; from < source_ranks; ++from) {
      STATOR_TRY(const HeadShare held, share_of(heads, source_ranks, from));
      const uint32_t begin = std::max(held.first, wanted.first);
      const uint32_t end = std::min(held.first + held.count, wanted.first + wanted.count);
      if (held.writes && begin < end) {
        copy_heads(sources[from], targets[to],
                   {.from = begin - held.first, .to = begin - wanted.first, .count = end - begin});
      }
    }
  }
  return {};
}

}  // namespace stator::kv
