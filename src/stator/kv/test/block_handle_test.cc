// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/block_handle.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "stator/kv/block_pool.h"

namespace stator::kv {
namespace {

static_assert(std::is_nothrow_move_constructible_v<BlockHandle>);
static_assert(std::is_nothrow_move_assignable_v<BlockHandle>);
static_assert(!std::is_copy_constructible_v<BlockHandle>);
static_assert(std::is_nothrow_move_constructible_v<BlockChain>);
static_assert(std::is_nothrow_move_assignable_v<BlockChain>);
static_assert(!std::is_copy_constructible_v<BlockChain>);

TEST(BlockHandle, GivesTheBlockBackWhenDestroyed) {
  BlockPool pool(2);
  {
    const BlockHandle block = pool.allocate();
    EXPECT_EQ(pool.used_blocks(), 1U);
  }
  EXPECT_EQ(pool.used_blocks(), 0U);
}

TEST(BlockHandle, MovingLeavesTheSourceEmptyAndTheCountAlone) {
  BlockPool pool(2);
  BlockHandle first = pool.allocate();
  const BlockId id = first.id();

  const BlockHandle second = std::move(first);

  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that state is the contract
  EXPECT_EQ(second.id(), id);
  EXPECT_EQ(pool.used_blocks(), 1U);
}

TEST(BlockHandle, AssignmentGivesBackTheOldBlock) {
  BlockPool pool(2);
  BlockHandle first = pool.allocate();
  BlockHandle second = pool.allocate();
  const BlockId kept = second.id();

  first = std::move(second);

  EXPECT_EQ(first.id(), kept);
  EXPECT_EQ(pool.used_blocks(), 1U);
}

TEST(BlockHandle, SelfMoveKeepsTheBlock) {
  BlockPool pool(1);
  BlockHandle block = pool.allocate();
  BlockHandle& alias = block;

  block = std::move(alias);

  EXPECT_TRUE(block);
  EXPECT_EQ(pool.used_blocks(), 1U);
}

TEST(BlockHandleDeathTest, AnEmptyHandleHasNoId) {
  const BlockHandle empty;
  EXPECT_DEATH((void)empty.id(), "an empty handle names no block");
}

TEST(BlockChain, HoldsItsBlocksInOrderUntilCleared) {
  BlockPool pool(3);
  BlockChain chain(pool);
  chain.append(pool.allocate());
  chain.append(pool.allocate());
  EXPECT_EQ(chain.ids()[0], BlockId(0));
  EXPECT_EQ(chain.ids()[1], BlockId(1));
  EXPECT_EQ(pool.used_blocks(), 2U);

  chain.clear();

  EXPECT_TRUE(chain.empty());
  EXPECT_EQ(pool.used_blocks(), 0U);
}

TEST(BlockChain, MovedFromChainsHoldNothing) {
  BlockPool pool(3);
  BlockChain first(pool);
  first.append(pool.allocate());
  BlockChain second(pool);
  second.append(pool.allocate());

  second = std::move(first);

  EXPECT_EQ(first.size(), 0U);  // NOLINT(bugprone-use-after-move): that state is the contract
  EXPECT_EQ(second.size(), 1U);
  EXPECT_EQ(pool.used_blocks(), 1U);
}

TEST(BlockChainDeathTest, RefusesBlocksOfAnotherPool) {
  BlockPool pool(1);
  BlockPool other(1);
  BlockChain chain(pool);
  EXPECT_DEATH(chain.append(other.allocate()), "its own pool");
}

}  // namespace
}  // namespace stator::kv
