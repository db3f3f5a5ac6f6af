// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/tier_changes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stator/core/random.h"

namespace stator::storage {
namespace {

using blocks::LocalHash;
using kv::LineageHash;
using kv::StorageTier;

/// A chain of blocks whose contents are `seed`, `seed` + 1, ….
struct Chain {
  Chain(uint64_t seed, size_t length) {
    for (size_t i = 0; i < length; ++i) {
      locals.emplace_back(seed + i);
      lineages.push_back(i == 0 ? LineageHash::root(locals[0])
                                : *lineages[i - 1].extend(locals[i]));
    }
  }
  void store(TierChanges& changes, size_t block, StorageTier tier = StorageTier::kDisk) const {
    changes.stored(tier, lineages[block], block == 0 ? LineageHash() : lineages[block - 1],
                   locals[block]);
  }
  std::vector<LocalHash> locals;
  std::vector<LineageHash> lineages;
};

/// Holds what a router would: fails at a block whose parent was never told.
struct Listener {
  std::map<StorageTier, std::set<uint64_t>> held;
  bool orphan = false;
  size_t changes = 0;
  TierChanges::Listener function() {
    return [this](std::span<const TierChange> told) {
      for (const TierChange& change : told) {
        ++changes;
        std::set<uint64_t>& tier = held[change.tier];
        if (!change.stored) {
          orphan = tier.erase(change.sequence.value()) == 0 || orphan;
          continue;
        }
        orphan = orphan || (change.parent && !tier.contains(change.parent->value()));
        tier.insert(change.sequence.value());
      }
    };
  }
};

TEST(TierChanges, TellsWhatComesAndGoes) {
  TierChanges changes;
  Listener router;
  changes.subscribe(&router, router.function());
  const Chain chain(100, 3);
  chain.store(changes, 0);
  chain.store(changes, 1);
  chain.store(changes, 1);  // again: nothing new
  EXPECT_EQ(router.changes, 2U);
  EXPECT_EQ(changes.held(StorageTier::kDisk), 2U);
  changes.removed(StorageTier::kDisk, chain.lineages[1]);
  changes.removed(StorageTier::kDisk, chain.lineages[2]);  // was never there
  EXPECT_EQ(router.changes, 3U);
  EXPECT_EQ(router.held[StorageTier::kDisk].size(), 1U);
}

TEST(TierChanges, ABlockWaitsForItsParent) {
  TierChanges changes;
  Listener router;
  changes.subscribe(&router, router.function());
  const Chain chain(100, 4);
  chain.store(changes, 2);
  chain.store(changes, 1);
  chain.store(changes, 3);
  EXPECT_EQ(router.changes, 0U);
  changes.removed(StorageTier::kDisk, chain.lineages[3]);
  chain.store(changes, 0);
  EXPECT_FALSE(router.orphan);
  EXPECT_EQ(router.held[StorageTier::kDisk].size(), 3U);
  changes.stored(StorageTier::kDisk, Chain(900, 1).lineages[0], LineageHash(),
                 LocalHash(9));  // no such chain
  EXPECT_EQ(changes.held(StorageTier::kDisk), 3U);
}

TEST(TierChanges, NoMoreThanItsBoundWaits) {
  TierChanges changes;
  Listener router;
  changes.subscribe(&router, router.function());
  const Chain chain(100, TierChanges::kOrphansMax + 10);
  for (size_t i = chain.locals.size() - 1; i > 0; --i) {
    chain.store(changes, i);
  }
  chain.store(changes, 0);
  EXPECT_EQ(router.held[StorageTier::kDisk].size(), 1U) << "the one behind it came too late";
}

TEST(TierChanges, ALateListenerHearsOfAllParentsFirst) {
  TierChanges changes;
  const Chain one(100, 20);
  const Chain two(500, 20);
  for (size_t i = 0; i < 20; ++i) {
    one.store(changes, i);
    two.store(changes, i, StorageTier::kExternal);
  }
  Listener router;
  changes.subscribe(&router, router.function());
  EXPECT_FALSE(router.orphan);
  EXPECT_EQ(router.held[StorageTier::kDisk].size(), 20U);
  EXPECT_EQ(router.held[StorageTier::kExternal].size(), 20U);
  changes.unsubscribe(&router);
  changes.removed(StorageTier::kDisk, one.lineages[19]);
  EXPECT_EQ(router.held[StorageTier::kDisk].size(), 20U);
}

TEST(TierChanges, WhatStandsBehindABlockThatLeavesLeavesWithIt) {
  TierChanges changes;
  Listener router;
  changes.subscribe(&router, router.function());
  const Chain chain(100, 8);
  for (size_t i = 0; i < 8; ++i) {
    chain.store(changes, i);
  }
  changes.removed(StorageTier::kDisk, chain.lineages[3]);
  EXPECT_EQ(changes.held(StorageTier::kDisk), 3U);
  EXPECT_FALSE(router.orphan);
  EXPECT_EQ(router.held[StorageTier::kDisk].size(), 3U);
}

TEST(TierChanges, HoldsNoMoreThanItsBound) {
  TierChanges changes(4);
  Listener router;
  changes.subscribe(&router, router.function());
  const Chain chain(100, 8);
  for (size_t i = 0; i < 8; ++i) {
    chain.store(changes, i);
  }
  EXPECT_EQ(changes.held(StorageTier::kDisk), 4U);
  EXPECT_EQ(router.changes, 4U);
}

TEST(TierChanges, AnyOrderLeavesRouterAndTierEqual) {
  Random random(7);
  TierChanges changes(40);
  Listener router;
  changes.subscribe(&router, router.function());
  std::vector<Chain> chains;
  for (uint64_t i = 0; i < 6; ++i) {
    chains.emplace_back(1000 * (i + 1), 12);
  }
  for (int round = 0; round < 5000; ++round) {
    const Chain& chain = chains[random.next() % chains.size()];
    const size_t block = random.next() % 12;
    if (random.next() % 4 == 0) {
      changes.removed(StorageTier::kDisk, chain.lineages[block]);
    } else {
      chain.store(changes, block);
    }
    ASSERT_FALSE(router.orphan);
    ASSERT_EQ(router.held[StorageTier::kDisk].size(), changes.held(StorageTier::kDisk));
  }
  Listener late;
  changes.subscribe(&late, late.function());
  EXPECT_EQ(late.held, router.held);
  EXPECT_FALSE(late.orphan);
}

}  // namespace
}  // namespace stator::storage
