// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/layout.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::kv {
namespace {

using Kind = MemoryLayout::Kind;

BlockShape shape_of(uint32_t layers, uint32_t outer, uint32_t heads, uint32_t head_bytes,
                    uint32_t tokens) {
  return {
      .layers = layers, .outer = outer, .tokens = tokens, .heads = heads, .head_bytes = head_bytes};
}

std::vector<std::byte> random_bytes(uint64_t count) {
  Random random(count);
  std::vector<std::byte> out(count);
  for (std::byte& byte : out) {
    byte = static_cast<std::byte>(random.next());
  }
  return out;
}

TEST(KvLayout, SizesAndAddressesOfKnownModels) {
  struct Row {
    BlockShape shape;
    uint64_t region;
    uint64_t block;
  };
  const uint64_t kib = 1024;
  for (const Row& row : {Row{shape_of(32, 2, 8, 256, 16), 32 * kib, 2048 * kib},
                         Row{shape_of(80, 2, 8, 256, 16), 32 * kib, 5120 * kib},
                         Row{shape_of(80, 2, 2, 256, 16), 8 * kib, 1280 * kib},
                         Row{shape_of(36, 2, 8, 128, 16), 16 * kib, 1152 * kib},
                         Row{shape_of(61, 1, 1, 1152, 64), 72 * kib, 4'497'408},
                         Row{shape_of(2, 2, 2, 256, 16), 8 * kib, 32 * kib}}) {
    EXPECT_EQ(row.shape.region_bytes(), row.region);
    EXPECT_EQ(row.shape.block_bytes(), row.block);
    const uint32_t layer = row.shape.layers - 1;
    const uint32_t outer = row.shape.outer - 1;
    const MemoryLayout whole{.shape = row.shape, .blocks = 8, .alignment = 4096};
    EXPECT_EQ(whole.block_stride(), (row.block + 4095) / 4096 * 4096);
    EXPECT_EQ(whole.offset(3, layer, outer),
              3 * whole.block_stride() + layer * row.shape.outer * row.region + outer * row.region);
    const MemoryLayout block_first{.kind = Kind::kBlockFirst, .shape = row.shape, .blocks = 8};
    EXPECT_EQ(block_first.offset(3, layer, outer), (3 * row.shape.outer + outer) * row.region);
    const MemoryLayout outer_first{.kind = Kind::kOuterFirst, .shape = row.shape, .blocks = 8};
    EXPECT_EQ(outer_first.offset(3, layer, outer), (outer * 8 + 3) * row.region);
    EXPECT_EQ(outer_first.bytes_needed(), 8 * row.shape.outer * row.region);
  }
}

TEST(KvLayout, AllocationsThatAreTooSmallAreRefusedWithTheNumbers) {
  const MemoryLayout layout{
      .kind = Kind::kBlockFirst, .shape = shape_of(2, 2, 2, 8, 4), .blocks = 3};
  const uint64_t need = layout.bytes_needed();

  EXPECT_TRUE(check_sizes(layout, std::vector<uint64_t>{need, need}));
  const auto small = check_sizes(layout, std::vector<uint64_t>{need, need - 1});
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message().find(std::to_string(need)), std::string::npos);
  EXPECT_FALSE(check_sizes(layout, std::vector<uint64_t>{need}));
  EXPECT_FALSE(validate(shape_of(0, 2, 2, 8, 4)));
  EXPECT_FALSE(validate(shape_of(1, 3, 2, 8, 4)));
  EXPECT_FALSE(validate(shape_of(1 << 20, 2, 1 << 20, 1 << 20, 1 << 20)));
}

TEST(KvLayout, OrdersConvertIntoEachOtherAndBack) {
  const BlockShape shape = shape_of(3, 2, 5, 12, 7);
  const auto bytes = random_bytes(shape.block_bytes());
  for (size_t from = 0; from < kBlockOrders; ++from) {
    for (size_t to = 0; to < kBlockOrders; ++to) {
      std::vector<std::byte> there(bytes.size());
      std::vector<std::byte> back(bytes.size());

      convert(shape, static_cast<BlockOrder>(from), bytes, static_cast<BlockOrder>(to), there);
      convert(shape, static_cast<BlockOrder>(to), there, static_cast<BlockOrder>(from), back);

      EXPECT_EQ(back, bytes);
      EXPECT_EQ(there == bytes, from == to);
    }
  }
}

TEST(KvLayout, AHeadOfAUniversalBlockIsOneRange) {
  const BlockShape whole = shape_of(80, 2, 8, 256, 16);

  EXPECT_EQ(range_of(whole, *share_of(8, 8, 3)), (ByteRange{3 * 655'360, 655'360}));
  EXPECT_EQ(range_of(whole, *share_of(8, 4, 1)), (ByteRange{2 * 655'360, 2 * 655'360}));
}

TEST(KvLayout, ARangeOfAUniversalBlockIsTheRanksBlock) {
  const BlockShape whole = shape_of(3, 2, 8, 16, 4);
  const auto bytes = random_bytes(whole.block_bytes());
  std::vector<std::byte> universal(bytes.size());
  convert(whole, BlockOrder::kOperationalNhd, bytes, BlockOrder::kUniversalTp, universal);
  BlockShape half = whole;
  half.heads = 4;
  std::vector<std::byte> first(half.block_bytes());
  std::vector<std::byte> second(half.block_bytes());
  std::vector<std::byte> source = bytes;
  const RankBlock from{whole, BlockOrder::kOperationalNhd, source};
  const std::vector<RankBlock> to = {{half, BlockOrder::kUniversalTp, first},
                                     {half, BlockOrder::kUniversalTp, second}};

  ASSERT_TRUE(reshard({&from, 1}, to, 8));

  const ByteRange range = range_of(whole, *share_of(8, 2, 1));
  EXPECT_TRUE(std::ranges::equal(second, std::span(universal).subspan(range.offset, range.bytes)));
}

TEST(KvLayout, BlocksAreCutOverOtherNumbersOfRanksBitForBit) {
  for (const uint32_t heads : {1U, 2U, 8U, 24U}) {
    const BlockShape whole = shape_of(2, 2, heads, 8, 4);
    const auto bytes = random_bytes(whole.block_bytes());
    for (const uint32_t from : {1U, 2U, 4U, 8U}) {
      for (const uint32_t to : {1U, 2U, 4U, 8U}) {
        const auto make = [&](uint32_t ranks, BlockOrder order,
                              std::vector<std::vector<std::byte>>& memory) {
          std::vector<RankBlock> out;
          for (uint32_t rank = 0; rank < ranks; ++rank) {
            BlockShape shape = whole;
            shape.heads = share_of(heads, ranks, rank)->count;
            memory.emplace_back(shape.block_bytes());
            out.push_back({.shape = shape, .order = order});
          }
          for (uint32_t rank = 0; rank < ranks; ++rank) {
            out[rank].bytes = memory[rank];
          }
          return out;
        };
        std::vector<std::vector<std::byte>> one;
        std::vector<std::vector<std::byte>> given;
        std::vector<std::vector<std::byte>> taken;
        std::vector<std::vector<std::byte>> back;
        const auto start = make(1, BlockOrder::kOperationalNhd, one);
        std::ranges::copy(bytes, one[0].begin());
        const auto sources = make(from, BlockOrder::kOperationalHnd, given);
        const auto targets = make(to, BlockOrder::kUniversalTp, taken);
        const auto end = make(1, BlockOrder::kOperationalNhd, back);

        ASSERT_TRUE(reshard(start, sources, heads));
        ASSERT_TRUE(reshard(sources, targets, heads));
        ASSERT_TRUE(reshard(targets, end, heads));

        EXPECT_EQ(back[0], bytes) << heads << " heads, " << from << " to " << to << " ranks";
      }
    }
  }
  EXPECT_FALSE(share_of(3, 2, 0)) << "three heads over two ranks";
}

}  // namespace
}  // namespace stator::kv
