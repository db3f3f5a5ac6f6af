// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/kv_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::engine::cpu {
namespace {

using kv::BlockId;

constexpr KvLayout kLayout{.layers = 3, .kv_heads = 2, .head_dim = 16, .block_size = 4};

TEST(KvArena, ABlockIsOneRangeOfAllLayers) {
  auto arena = KvArena::create(kLayout, 5);

  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->blocks(), 5U);
  EXPECT_EQ(arena->layout(), kLayout);
  EXPECT_EQ(kLayout.block_bytes(), 3U * 2 * 4 * 2 * 16 * 4);
  const auto view = arena->block_view(BlockId(2));
  EXPECT_EQ(view.size(), kLayout.block_bytes());
  const auto at = [&](uint64_t floats) { return view.data() + floats * sizeof(float); };
  EXPECT_EQ(arena->keys(BlockId(2), 0, 0), at(0));
  EXPECT_EQ(arena->keys(BlockId(2), 0, 1), at(4 * 16));
  EXPECT_EQ(arena->values(BlockId(2), 0, 0), at(4 * 2 * 16));
  EXPECT_EQ(arena->keys(BlockId(2), 1, 0), at(2 * 4 * 2 * 16));
  EXPECT_EQ(arena->values(BlockId(2), 2, 1) + sizeof(float) * 4 * 16, view.data() + view.size());
}

TEST(KvArena, ElementsTakeTheBytesOfTheirType) {
  KvLayout layout = kLayout;
  for (const auto& [type, bytes] :
       {std::pair{KvType::kF16, 2}, {KvType::kBf16, 2}, {KvType::kInt8, 1}}) {
    layout.type = type;
    const size_t scales = type == KvType::kInt8 ? 3U * 2 * 2 * 4 * sizeof(float) : 0;
    EXPECT_EQ(layout.block_bytes(), 3U * 2 * 4 * 2 * 16 * static_cast<size_t>(bytes) + scales);
  }
  layout.head_dim = 20;
  layout.type = KvType::kF16;
  EXPECT_EQ(layout.block_bytes(), 3U * 2 * 4 * 2 * 32 * 2) << "heads are padded to whole vectors";
}

TEST(KvArena, ChecksumsTellContentsApart) {
  auto arena = KvArena::create(kLayout, 3);
  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->checksum(BlockId(0)), arena->checksum(BlockId(1)));

  *arena->values(BlockId(1), 2, 1) = std::byte{1};

  EXPECT_NE(arena->checksum(BlockId(0)), arena->checksum(BlockId(1)));
  EXPECT_EQ(arena->checksum(BlockId(0)), arena->checksum(BlockId(2)));
}

TEST(KvArena, RefusesImpossibleSizes) {
  const auto none = KvArena::create(kLayout, 0);
  KvLayout huge = kLayout;
  huge.kv_heads = huge.head_dim = huge.block_size = UINT32_MAX;
  const auto too_many = KvArena::create(huge, UINT32_MAX);

  for (const auto* arena : {&none, &too_many}) {
    ASSERT_FALSE(arena->has_value());
    EXPECT_EQ(arena->error().code(), Code::kInvalidArgument);
    EXPECT_THAT(arena->error().message(), testing::HasSubstr("kv_blocks"));
  }
}

TEST(KvArenaDeathTest, AssertsTheIndex) {
  auto arena = KvArena::create(kLayout, 2);
  EXPECT_DEATH((void)arena->block_view(BlockId(2)), "no such block");
}

}  // namespace
}  // namespace stator::engine::cpu
