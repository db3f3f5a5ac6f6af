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
#include "stator/kv/test/sequence_fixture.h"

namespace stator::kv {
namespace {

using blocks::SequenceHash;
using testing::ElementsAre;
using testing::IsEmpty;

// Blocks 1, 2, 3, … stand behind one another; their numbers are their names and contents.
BlockIdentity identity(uint64_t number) {
  return {.sequence = SequenceHash(number), .local = blocks::LocalHash(number + 1000)};
}

HostTier::DeviceBlock on_device(uint32_t block, uint64_t number) {
  return {.block = BlockId(block),
          .content = ContentId(number),
          .parent = ContentId(number - 1),
          .identity = identity(number),
          .parent_name = number == 1 ? std::nullopt : std::optional(SequenceHash(number - 1))};
}

/// Consecutive blocks, whose tokens nobody knows.
class Stretch {
 public:
  Stretch(std::initializer_list<uint64_t> numbers) : before_(*numbers.begin() - 1) {
    for (const uint64_t number : numbers) {
      names_.emplace_back(number);
    }
    blocks_ = {.sequences = names_, .unknown = names_.size()};
  }
  HostTier::Tail tail() const { return {blocks_, 0, ContentId(before_)}; }
  uint32_t size() const { return static_cast<uint32_t>(names_.size()); }

 private:
  uint64_t before_;
  std::vector<SequenceHash> names_;
  SequenceBlocks blocks_;
};

uint32_t match(const HostTier& host, const Stretch& stretch) {
  return host.match(stretch.tail());
}

std::vector<uint32_t> hold(HostTier& host, const Stretch& stretch) {
  return host.hold(stretch.tail(), stretch.size());
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

  EXPECT_EQ(match(host, {1}), 0U);
  EXPECT_EQ(match(host, {2, 3}), 1U);
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
  host.store(on_device(0, 1));
  host.store(on_device(1, 2));
  host.store(on_device(0, 1));  // again: newest, no second copy
  host.store(on_device(2, 3));

  EXPECT_EQ(match(host, {1}), 1U);
  EXPECT_EQ(match(host, {2}), 0U);
  EXPECT_EQ(match(host, {3}), 1U);
  EXPECT_EQ(host.take_copies().size(), 3U);
  EXPECT_EQ(host.stored_blocks(), 2U);
  EXPECT_EQ(host.dropped_total(), 1U);
}

TEST(HostTier, HeldSlotsAreGivenToNobodyElse) {
  HostTier host(2);
  host.store(on_device(0, 1));
  host.store(on_device(1, 2));
  const auto slots = hold(host, {1, 2});
  host.store(on_device(2, 3));

  EXPECT_EQ(match(host, {3}), 0U) << "there was no room";
  EXPECT_EQ(host.dropped_total(), 1U);
  host.load(slots[0], BlockId(5));
  host.load(slots[1], BlockId(6));
  EXPECT_EQ(match(host, {1, 2}), 2U);
  EXPECT_EQ(host.loaded_total(), 2U);
}

TEST(HostTier, ResetOfThePoolEmptiesIt) {
  HostTier host(2);
  BlockPool pool(1, BlockPool::Events::kRecord, &host);
  host.store(on_device(0, 1));
  pool.reset();
  EXPECT_EQ(match(host, {1}), 0U);
  EXPECT_THAT(host.take_events(), IsEmpty());
  EXPECT_THAT(host.take_copies(), IsEmpty());
  host.store(on_device(0, 2));
  host.store(on_device(0, 3));
  EXPECT_EQ(match(host, {2, 3}), 2U) << "both slots are free again";
}

TEST(HostTier, WithoutSlotsNothingIsKept) {
  HostTier host(0);
  host.store(on_device(0, 1));
  EXPECT_EQ(match(host, {1}), 0U);
  EXPECT_THAT(host.take_copies(), IsEmpty());
}

TEST(HostTier, ACopyIsFoundByItsTokensAndWhatIsInFrontOfIt) {
  const TestSequence victim(4, {1, 1, 1, 1, 2, 2, 2, 2});
  TestSequence attack(4, {7, 7, 7, 7, 2, 2, 2, 2});
  attack.forge_names(victim);
  HostTier host(4);
  BlockPool pool(2, BlockPool::Events::kRecord, &host);
  const auto compute_and_evict = [&](const TestSequence& sequence) {
    {
      BlockChain chain(pool);
      chain.append(pool.allocate());
      chain.append(pool.allocate());
      chain.register_block(0, sequence[0]);
      chain.register_block(1, sequence[1]);
    }
    const BlockHandle first = pool.allocate();
    const BlockHandle second = pool.allocate();
  };
  const auto found = [&](const TestSequence& sequence) {
    return host.match({sequence.blocks(), 0, ContentId(0)});
  };

  compute_and_evict(attack);
  EXPECT_EQ(found(attack), 2U);
  EXPECT_EQ(found(victim), 0U);
  compute_and_evict(victim);

  EXPECT_EQ(found(victim), 2U);
  EXPECT_EQ(found(attack), 2U);
  EXPECT_EQ(host.stored_blocks(), 4U);
  size_t announced = 0;
  for (const KvEventData& event : host.take_events()) {
    announced += std::get<BlocksStored>(event).blocks.size();
  }
  EXPECT_EQ(announced, 2U) << "each name once";
}

TEST(HostTier, ComputedAgainItStillLeadsToTheCopiesBehindIt) {
  const TestSequence sequence(4, {1, 1, 1, 1, 2, 2, 2, 2});
  HostTier host(4);
  BlockPool pool(2, BlockPool::Events::kRecord, &host);
  for (int round = 0; round < 2; ++round) {
    {
      BlockChain chain(pool);
      chain.append(pool.allocate());
      chain.register_block(0, sequence[0]);
      if (round == 0) {
        chain.append(pool.allocate());
        chain.register_block(1, sequence[1]);
      } else {
        const BlockPool::PrefixPeek peek = pool.peek_prefix(sequence.blocks());
        EXPECT_EQ(peek.blocks, 1U);
        EXPECT_EQ(host.match({sequence.blocks(), 1, peek.last}), 1U);
      }
    }
    const BlockHandle first = pool.allocate();
    const BlockHandle second = pool.allocate();
  }
}

class HostTierOrder : public testing::TestWithParam<Eviction> {};

TEST_P(HostTierOrder, CopiesAndEventsSayWhereEverythingIs) {
  Random random(7);
  HostTier host(8, HostTier::Events::kRecord, GetParam());
  Told told;
  std::map<uint32_t, uint64_t> device;  // what the blocks hold, as a runner would
  std::map<uint32_t, uint64_t> memory;
  for (int i = 0; i < 2'000; ++i) {
    const uint64_t hash = 1 + random.below(20);
    const auto block = static_cast<uint32_t>(random.below(4));
    const Stretch wanted{hash};
    if (random.below(3) > 0 || match(host, wanted) == 0) {
      device[block] = hash;
      host.store(on_device(block, hash));
    } else {
      host.load(hold(host, wanted)[0], BlockId(block));
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
      ASSERT_EQ(match(host, {block_told}), 1U);
    }
  }
  EXPECT_GT(host.loaded_total(), 200U);
  EXPECT_GT(host.dropped_total(), 200U);
}

TEST_P(HostTierOrder, DropsACopyAfterThoseBehindIt) {
  // A chain of six as a device evicts it, tail first; then others push it out.
  HostTier host(6, HostTier::Events::kRecord, GetParam());
  for (uint64_t number = 6; number >= 1; --number) {
    host.store(on_device(0, number));
  }
  for (uint64_t other = 101; other <= 109; other += 2) {  // none of them stands behind another
    host.store(on_device(0, other));
    bool there = true;
    for (uint64_t number = 1; number <= 6; ++number) {
      const bool has = match(host, {number}) == 1;
      EXPECT_TRUE(there || !has) << "a copy went before the one behind it";
      there = has;
    }
  }
}

/// Blocks 3 and 4 come from a lower tier, behind 1 and 2, which are the oldest copies.
TEST_P(HostTierOrder, WhatIsLoadedDoesNotPushOutWhatItStandsBehind) {
  HostTier host(4, HostTier::Events::kRecord, GetParam());
  for (const uint64_t number : {2, 1, 12, 11}) {
    host.store(on_device(0, number));
  }
  const Stretch front({1, 2});
  std::vector<uint32_t> held = hold(host, front);
  const std::vector<uint32_t> slots = host.reserve(2);
  host.use(held);
  ASSERT_EQ(slots.size(), 2U);
  EXPECT_EQ(match(host, {1, 2}), 2U);
  EXPECT_EQ(match(host, {11}), 0U);
  held = hold(host, front);
  EXPECT_EQ(host.reserve(4).size(), 0U) << "nothing else can go";
  host.use(held);
  EXPECT_TRUE(host.adopt(slots[0], on_device(0, 3)));
  EXPECT_TRUE(host.adopt(slots[1], on_device(0, 4)));
  host.use(slots);
  EXPECT_EQ(match(host, {1, 2, 3, 4}), 4U);
}

INSTANTIATE_TEST_SUITE_P(Orders, HostTierOrder,
                         testing::Values(Eviction::kLru, Eviction::kMultiLru, Eviction::kLineage,
                                         Eviction::kValue),
                         [](const auto& info) { return std::string(to_string(info.param)); });

std::vector<uint64_t> left_in(const HostTier& host, std::initializer_list<uint64_t> numbers) {
  std::vector<uint64_t> out;
  for (const uint64_t number : numbers) {
    if (match(host, {number}) == 1) {
      out.push_back(number);
    }
  }
  return out;
}

TEST(HostTier, EvictsByTheOrderItWasGiven) {
  const auto fill = [](Eviction eviction) {
    HostTier host(3, HostTier::Events::kOff, eviction);
    // 10: often matched and old; 20: never matched, deep; 30: never matched, shallow, new.
    HostTier::DeviceBlock often = on_device(0, 10);
    often.facts = {.hits = 9, .depth = 0, .registered = 1};
    HostTier::DeviceBlock deep = on_device(1, 20);
    deep.facts = {.hits = 0, .depth = 640, .registered = 2};
    HostTier::DeviceBlock shallow = on_device(2, 30);
    shallow.facts = {.hits = 0, .depth = 0, .registered = 3};
    host.store(shallow);
    host.store(deep);
    host.store(often);
    return host;
  };
  HostTier lru = fill(Eviction::kLru);
  lru.store(on_device(0, 40));
  EXPECT_THAT(left_in(lru, {10, 20, 30}), ElementsAre(10, 20));
  HostTier multi = fill(Eviction::kMultiLru);
  for (const uint64_t number : {40, 50}) {
    multi.store(on_device(0, number));
  }
  EXPECT_THAT(left_in(multi, {10, 20, 30}), ElementsAre(10)) << "what was matched often stays";
  HostTier lineage = fill(Eviction::kLineage);
  lineage.store(on_device(0, 40));
  EXPECT_THAT(left_in(lineage, {10, 20, 30}), ElementsAre(20, 30)) << "the oldest registration";
  HostTier value = fill(Eviction::kValue);
  value.store(on_device(0, 40));
  EXPECT_THAT(left_in(value, {10, 20, 30}), ElementsAre(10, 20)) << "the cheapest to compute again";
}

}  // namespace
}  // namespace stator::kv
