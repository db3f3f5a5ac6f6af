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
  const auto* base = reinterpret_cast<const float*>(view.data());
  EXPECT_EQ(arena->keys(BlockId(2), 0), base);
  EXPECT_EQ(arena->values(BlockId(2), 0), base + 4 * 2 * 16);
  EXPECT_EQ(arena->keys(BlockId(2), 1), base + 2 * 4 * 2 * 16);
  EXPECT_EQ(arena->values(BlockId(2), 2) + 4 * 2 * 16, arena->keys(BlockId(3), 0));
}

TEST(KvArena, ChecksumsTellContentsApart) {
  auto arena = KvArena::create(kLayout, 3);
  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->checksum(BlockId(0)), arena->checksum(BlockId(1)));

  *arena->values(BlockId(1), 2) = 1.0F;

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
