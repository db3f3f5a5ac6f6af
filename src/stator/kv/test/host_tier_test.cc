// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/host_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <variant>
#include <vector>

#include "stator/core/random.h"
#include "stator/kv/block_pool.h"

namespace stator::kv {
namespace {

using blocks::SequenceHash;
using testing::ElementsAre;
using testing::IsEmpty;

BlockIdentity identity(uint64_t hash) {
  return {.sequence = SequenceHash(hash), .local = blocks::LocalHash(hash + 1000)};
}

std::vector<SequenceHash> hashes(std::initializer_list<uint64_t> values) {
  std::vector<SequenceHash> out;
  for (const uint64_t value : values) {
    out.emplace_back(value);
  }
  return out;
}

/// Blocks with a copy, as the events tell.
class Told {
 public:
  void apply(const std::vector<KvEventData>& events) {
    for (const KvEventData& event : events) {
      if (const auto* stored = std::get_if<BlocksStored>(&event)) {
        for (const StoredBlock& block : stored->blocks) {
          EXPECT_TRUE(blocks_.insert(block.external.value()).second);
        }
      } else {
        for (const blocks::ExternalHash block : std::get<BlocksRemoved>(event).blocks) {
          EXPECT_EQ(blocks_.erase(block.value()), 1U);
        }
      }
    }
  }
  const std::set<uint64_t>& blocks() const { return blocks_; }

 private:
  std::set<uint64_t> blocks_;
};

TEST(HostTier, KeepsWhatTheDeviceEvictsAndTellsWithItsParent) {
  HostTier host(4);
  BlockPool pool(2, BlockPool::Events::kRecord, &host);
  {
    BlockChain chain(pool);
    chain.append(pool.allocate());
    chain.append(pool.allocate());
    chain.register_block(0, identity(1));
    chain.register_block(1, identity(2));
  }
  const BlockHandle other = pool.allocate();  // the tail goes first

  EXPECT_EQ(host.match(hashes({1})), 0U);
  EXPECT_EQ(host.match(hashes({2, 3})), 1U);
  const auto copies = host.take_copies();
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].direction, BlockCopy::Direction::kToHost);
  EXPECT_EQ(copies[0].block, other.id());
  const auto events = host.take_events();
  ASSERT_EQ(events.size(), 1U);
  const auto& stored = std::get<BlocksStored>(events[0]);
  EXPECT_EQ(stored.parent, blocks::ExternalHash(1));
  EXPECT_THAT(stored.blocks, ElementsAre(StoredBlock{.external = blocks::ExternalHash(2),
                                                     .local = blocks::LocalHash(1002)}));
}

TEST(HostTier, DropsTheLeastRecentlyUsedCopy) {
  HostTier host(2);
  host.store(BlockId(0), identity(1), {});
  host.store(BlockId(1), identity(2), {});
  host.store(BlockId(0), identity(1), {});  // again: newest, no second copy
  host.store(BlockId(2), identity(3), {});

  EXPECT_EQ(host.match(hashes({1})), 1U);
  EXPECT_EQ(host.match(hashes({2})), 0U);
  EXPECT_EQ(host.match(hashes({3})), 1U);
  EXPECT_EQ(host.take_copies().size(), 3U);
  EXPECT_EQ(host.stored_blocks(), 2U);
  EXPECT_EQ(host.dropped_total(), 1U);
}

TEST(HostTier, HeldSlotsAreGivenToNobodyElse) {
  HostTier host(2);
  host.store(BlockId(0), identity(1), {});
  host.store(BlockId(1), identity(2), {});
  const auto slots = host.hold(hashes({1, 2}));
  host.store(BlockId(2), identity(3), {});

  EXPECT_EQ(host.match(hashes({3})), 0U) << "there was no room";
  EXPECT_EQ(host.dropped_total(), 1U);
  host.load(slots[0], BlockId(5));
  host.load(slots[1], BlockId(6));
  EXPECT_EQ(host.match(hashes({1, 2})), 2U);
  EXPECT_EQ(host.loaded_total(), 2U);
}

TEST(HostTier, ResetOfThePoolEmptiesIt) {
  HostTier host(2);
  BlockPool pool(1, BlockPool::Events::kRecord, &host);
  host.store(BlockId(0), identity(1), {});
  pool.reset();
  EXPECT_EQ(host.match(hashes({1})), 0U);
  EXPECT_THAT(host.take_events(), IsEmpty());
  EXPECT_THAT(host.take_copies(), IsEmpty());
  host.store(BlockId(0), identity(2), {});
  host.store(BlockId(0), identity(3), {});
  EXPECT_EQ(host.match(hashes({2, 3})), 2U) << "both slots are free again";
}

TEST(HostTier, WithoutSlotsNothingIsKept) {
  HostTier host(0);
  host.store(BlockId(0), identity(1), {});
  EXPECT_EQ(host.match(hashes({1})), 0U);
  EXPECT_THAT(host.take_copies(), IsEmpty());
}

TEST(HostTier, CopiesAndEventsSayWhereEverythingIs) {
  Random random(7);
  HostTier host(8);
  Told told;
  std::map<uint32_t, uint64_t> device;  // what the blocks hold, as a runner would
  std::map<uint32_t, uint64_t> memory;
  for (int i = 0; i < 2'000; ++i) {
    const uint64_t hash = 1 + random.below(20);
    const auto block = static_cast<uint32_t>(random.below(4));
    const auto wanted = hashes({hash});
    if (random.below(3) > 0 || host.match(wanted) == 0) {
      device[block] = hash;
      host.store(BlockId(block), identity(hash), {});
    } else {
      host.load(host.hold(wanted)[0], BlockId(block));
    }
    for (const BlockCopy& copy : host.take_copies()) {
      if (copy.direction == BlockCopy::Direction::kToHost) {
        memory[copy.slot] = device[copy.block.value()];
      } else {
        ASSERT_EQ(memory[copy.slot], hash);
        device[copy.block.value()] = memory[copy.slot];
      }
    }
    told.apply(host.take_events());
    ASSERT_EQ(told.blocks().size(), host.stored_blocks());
    for (const uint64_t block_told : told.blocks()) {
      ASSERT_EQ(host.match(hashes({block_told})), 1U);
    }
  }
  EXPECT_GT(host.loaded_total(), 200U);
  EXPECT_GT(host.dropped_total(), 200U);
}

}  // namespace
}  // namespace stator::kv
