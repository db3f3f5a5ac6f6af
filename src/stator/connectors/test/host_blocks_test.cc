// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/host_blocks.h"

#include <gtest/gtest.h>

#include "stator/storage/test/blocks_fixture.h"

namespace stator::connectors {
namespace {

using storage::TestSequence;

const TestSequence kBlocks(8, 1, storage::test_space());

uint32_t store(HostBlocks& host, size_t block, uint64_t stamp) {
  const uint32_t slot = host.take();
  EXPECT_TRUE(host.publish(slot, kBlocks.names[block], 7));
  host.touch(slot, stamp);
  host.unpin(slot);
  return slot;
}

TEST(HostBlocks, OnlyPublishedBlocksAreFoundByNameAndCheck) {
  HostBlocks host(2);

  const uint32_t slot = host.take();
  EXPECT_EQ(host.find(kBlocks.names[0]), HostBlocks::kNone);
  EXPECT_TRUE(host.publish(slot, kBlocks.names[0], 7));

  EXPECT_EQ(host.find(kBlocks.names[0]), slot);
  storage::BlockName forged = kBlocks.names[0];
  forged.check[0] ^= std::byte{1};
  EXPECT_EQ(host.find(forged), HostBlocks::kNone);
}

TEST(HostBlocks, TheLeastRecentIdleBlockGoesFirstAndPinnedOnesStay) {
  HostBlocks host(3);
  const uint32_t first = store(host, 0, 10);
  const uint32_t second = store(host, 1, 9);
  store(host, 2, 11);
  host.pin(second);

  EXPECT_EQ(host.take(), first);
  EXPECT_NE(host.take(), HostBlocks::kNone);
  EXPECT_EQ(host.take(), HostBlocks::kNone);

  EXPECT_EQ(host.find(kBlocks.names[1]), second);
  EXPECT_EQ(host.evicted_total(), 2U);
}

TEST(HostBlocks, ASecondBlockOfOneNameStaysUnpublished) {
  HostBlocks host(3);
  const uint32_t first = store(host, 0, 1);

  const uint32_t second = host.take();
  EXPECT_FALSE(host.publish(second, kBlocks.names[0], 7));
  host.unpin(second);

  EXPECT_EQ(host.find(kBlocks.names[0]), first);
  EXPECT_EQ(host.stored(), 1U);
  EXPECT_EQ(host.pinned(), 0U);
}

TEST(HostBlocks, AForgottenBlockIsFreeWhenItIsUnpinned) {
  HostBlocks host(1);
  const uint32_t slot = store(host, 0, 1);
  host.pin(slot);

  host.forget(slot);
  EXPECT_EQ(host.find(kBlocks.names[0]), HostBlocks::kNone);
  EXPECT_EQ(host.take(), HostBlocks::kNone);
  host.unpin(slot);

  EXPECT_EQ(host.take(), slot);
  EXPECT_EQ(host.evicted_total(), 0U);
}

}  // namespace
}  // namespace stator::connectors
