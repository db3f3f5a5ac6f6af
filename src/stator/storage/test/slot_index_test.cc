// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/slot_index.h"

#include <gtest/gtest.h>

#include <map>

#include "stator/core/random.h"
#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

void store(SlotIndex& index, const TestSequence& sequence, size_t block) {
  const auto reserved = index.reserve(sequence.names[block], sequence.parent(block));
  ASSERT_TRUE(reserved);
  index.publish(reserved->slot);
}

TEST(SlotIndex, FindsABlockOnlyWhenItIsPublished) {
  const TestSequence sequence(2, 0, test_space());
  SlotIndex index(2);

  const auto reserved = index.reserve(sequence.names[0], {});
  EXPECT_FALSE(index.find(sequence.names[0]));
  EXPECT_TRUE(index.knows(sequence.names[0].lineage));
  index.publish(reserved->slot);

  EXPECT_EQ(index.find(sequence.names[0]), reserved->slot);
  BlockName forged = sequence.names[0];
  forged.check[0] ^= std::byte{1};
  EXPECT_FALSE(index.find(forged));
}

TEST(SlotIndex, EvictsTailsBeforeHeadsAndOldChainsBeforeNewOnes) {
  const TestSequence old(2, 0, test_space());
  const TestSequence used(2, 1000, test_space());
  const TestSequence fresh(4, 2000, test_space());
  SlotIndex index(4);
  for (size_t i = 0; i < 2; ++i) {
    store(index, used, i);
  }
  for (size_t i = 0; i < 2; ++i) {
    store(index, old, i);
  }
  EXPECT_EQ(index.match(used.names), 2U);

  std::vector<BlockName> evicted;
  for (size_t i = 0; i < 4; ++i) {
    const auto reserved = index.reserve(fresh.names[i], fresh.parent(i));
    evicted.push_back(*reserved->evicted);
    index.publish(reserved->slot);
    index.match(std::span(fresh.names).first(i + 1));
  }

  EXPECT_EQ(evicted,
            (std::vector<BlockName>{old.names[1], old.names[0], used.names[1], used.names[0]}));
}

TEST(SlotIndex, PinnedSlotsAreNotGivenToOthers) {
  const TestSequence sequence(3, 0, test_space());
  SlotIndex index(2);
  store(index, sequence, 0);
  store(index, sequence, 1);
  const uint32_t tail = *index.find(sequence.names[1]);
  index.pin(tail);

  const auto reserved = index.reserve(sequence.names[2], sequence.parent(2));
  EXPECT_EQ(reserved->evicted, sequence.names[0]);
  index.erase(tail);
  index.abandon(reserved->slot);
  EXPECT_NE(index.reserve(sequence.names[2], sequence.parent(2))->slot, tail);
  index.unpin(tail);
  index.check_invariants();
}

TEST(SlotIndex, KeepsItsInvariantsUnderRandomUse) {
  Random random(7);
  SCOPED_TRACE("seed 7");
  std::vector<TestSequence> sequences;
  for (TokenId i = 0; i < 20; ++i) {
    sequences.emplace_back(8, i * 10'000, test_space());
  }
  SlotIndex index(40);
  std::vector<uint32_t> filling;
  for (int step = 0; step < 20'000; ++step) {
    const TestSequence& sequence = sequences[random.next() % sequences.size()];
    const size_t block = random.next() % 8;
    switch (random.next() % 4) {
      case 0:
        if (!index.knows(sequence.names[block].lineage)) {
          if (const auto got = index.reserve(sequence.names[block], sequence.parent(block))) {
            filling.push_back(got->slot);
          }
        }
        break;
      case 1:
        if (!filling.empty()) {
          index.publish(filling.back());
          filling.pop_back();
        }
        break;
      case 2:
        EXPECT_LE(index.match(sequence.names), 8U);
        break;
      default:
        if (const auto slot = index.find(sequence.names[block]); slot && random.next() % 8 == 0) {
          index.erase(*slot);
        }
    }
    if (step % 100 == 0) {
      index.check_invariants();
    }
  }
}

}  // namespace
}  // namespace stator::storage
