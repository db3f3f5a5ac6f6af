// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/block_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "stator/core/random.h"

namespace stator::kv {
namespace {

using blocks::BlockHasher;
using blocks::ExternalHash;

constexpr uint32_t kBlockSize = 4;

BlockHasher hashes_of(std::initializer_list<TokenId> one_token_per_block, uint64_t seed = 1) {
  BlockHasher hasher(kBlockSize, seed);
  for (const TokenId token : one_token_per_block) {
    hasher.append(std::vector<TokenId>(kBlockSize, token));
  }
  return hasher;
}

BlockIdentity identity(const BlockHasher& hasher, size_t index) {
  return {.sequence = hasher.sequences()[index], .local = hasher.locals()[index]};
}

StoredBlock stored(const BlockHasher& hasher, size_t index) {
  return {.external = ExternalHash(hasher.sequences()[index].value()),
          .local = hasher.locals()[index]};
}

ExternalHash external(const BlockHasher& hasher, size_t index) {
  return stored(hasher, index).external;
}

/// Takes the missing blocks of `hasher`'s sequence and registers them.
BlockChain compute(BlockPool& pool, const BlockHasher& hasher) {
  BlockChain chain = pool.match_prefix(hasher.sequences());
  const size_t hits = chain.size();
  while (chain.size() < hasher.sequences().size()) {
    chain.append(pool.allocate());
  }
  for (size_t i = hits; i < chain.size(); ++i) {
    chain.register_block(i, identity(hasher, i));
  }
  return chain;
}

TEST(BlockPool, StartsFreeAndHandsOutEveryBlockOnce) {
  BlockPool pool(3);
  EXPECT_EQ(pool.available_blocks(), 3U);
  std::vector<BlockHandle> held;
  for (uint32_t i = 0; i < 3; ++i) {
    held.push_back(pool.allocate());
    EXPECT_EQ(held.back().id(), BlockId(i));
  }
  EXPECT_FALSE(pool.allocate());
  EXPECT_EQ(pool.used_blocks(), 3U);
  pool.check_invariants();
}

TEST(BlockPool, MatchesTheLongestKnownChain) {
  BlockPool pool(8);
  const BlockHasher known = hashes_of({1, 2, 3});
  const BlockChain chain = compute(pool, known);

  const BlockChain same = pool.match_prefix(known.sequences());
  const BlockChain fork = pool.match_prefix(hashes_of({1, 2, 9}).sequences());
  const BlockChain none = pool.match_prefix(hashes_of({9, 2, 3}).sequences());

  EXPECT_EQ(same.size(), 3U);
  EXPECT_EQ(same.ids()[2], chain.ids()[2]);
  EXPECT_EQ(fork.size(), 2U);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(pool.used_blocks(), 3U);
  pool.check_invariants();
}

TEST(BlockPool, PrivateBlocksAreNeverMatched) {
  BlockPool pool(4);
  BlockChain chain(pool);
  chain.append(pool.allocate());
  EXPECT_TRUE(pool.match_prefix(hashes_of({1}).sequences()).empty());
}

TEST(BlockPool, AnotherSaltIsAnotherBlock) {
  BlockPool pool(4);
  const BlockChain chain = compute(pool, hashes_of({1, 2}, blocks::hash_seed("", "a")));
  EXPECT_TRUE(pool.match_prefix(hashes_of({1, 2}, blocks::hash_seed("", "b")).sequences()).empty());
}

TEST(BlockPool, IdleBlocksStayFindable) {
  BlockPool pool(4);
  const BlockHasher known = hashes_of({1, 2});
  {
    const BlockChain chain = compute(pool, known);
  }
  EXPECT_EQ(pool.used_blocks(), 0U);
  EXPECT_EQ(pool.cached_blocks(), 2U);
  EXPECT_EQ(pool.peek_prefix(known.sequences()).blocks, 2U);
  EXPECT_EQ(pool.peek_prefix(known.sequences()).idle_blocks, 2U);

  const BlockChain again = pool.match_prefix(known.sequences());

  EXPECT_EQ(again.size(), 2U);
  EXPECT_EQ(pool.cached_blocks(), 0U);
  EXPECT_EQ(pool.peek_prefix(known.sequences()).idle_blocks, 0U);
  pool.check_invariants();
}

TEST(BlockPool, ADuplicateIsDroppedInFavourOfTheRegisteredBlock) {
  BlockPool pool(4);
  const BlockHasher known = hashes_of({1});
  BlockChain first(pool);
  first.append(pool.allocate());
  BlockChain second(pool);
  second.append(pool.allocate());
  first.register_block(0, identity(known, 0));
  (void)pool.take_events();

  second.register_block(0, identity(known, 0));

  EXPECT_EQ(second.ids()[0], first.ids()[0]);
  EXPECT_EQ(pool.used_blocks(), 1U);
  EXPECT_TRUE(pool.take_events().empty());
  pool.check_invariants();
}

TEST(BlockPool, ABlockBehindAPrivateOneStaysPrivate) {
  BlockPool pool(4);
  const BlockHasher known = hashes_of({1, 2});
  BlockChain chain = compute(pool, hashes_of({1}));
  pool.reset();  // block 0 is private now
  (void)pool.take_events();

  chain.append(pool.allocate());
  chain.register_block(1, identity(known, 1));

  EXPECT_TRUE(pool.take_events().empty());
  EXPECT_TRUE(pool.match_prefix(known.sequences()).empty());
  chain.clear();
  EXPECT_EQ(pool.available_blocks(), 4U);
  EXPECT_EQ(pool.cached_blocks(), 0U);
}

TEST(BlockPool, AHashCollisionIsNeitherSharedNorMatched) {
  BlockPool pool(8);
  const BlockHasher known = hashes_of({1, 2});
  const BlockHasher other = hashes_of({7});
  const BlockChain chain = compute(pool, known);
  BlockChain colliding = compute(pool, other);
  colliding.append(pool.allocate());

  colliding.register_block(1, identity(known, 1));  // block 1's hash behind another parent

  EXPECT_NE(colliding.ids()[1], chain.ids()[1]);
  const std::vector<blocks::SequenceHash> mixed = {other.sequences()[0], known.sequences()[1]};
  EXPECT_EQ(pool.match_prefix(mixed).size(), 1U);
  EXPECT_EQ(pool.peek_prefix(mixed).blocks, 1U);
  pool.check_invariants();
}

TEST(BlockPool, EvictsTailsFirstAndTheLeastRecentlyUsedChainFirst) {
  BlockPool pool(4);
  const BlockHasher old = hashes_of({1, 2});
  const BlockHasher recent = hashes_of({3, 4});
  {
    const BlockChain chain = compute(pool, old);
  }
  {
    const BlockChain chain = compute(pool, recent);
  }
  (void)pool.take_events();

  BlockHandle first = pool.allocate();
  EXPECT_EQ(pool.peek_prefix(old.sequences()).blocks, 1U);
  BlockHandle second = pool.allocate();
  EXPECT_EQ(pool.peek_prefix(old.sequences()).blocks, 0U);
  EXPECT_EQ(pool.peek_prefix(recent.sequences()).blocks, 2U);

  const std::vector<KvEventData> expected = {
      BlocksRemoved{.blocks = {external(old, 1), external(old, 0)}}};
  EXPECT_EQ(pool.take_events(), expected);
  pool.check_invariants();
}

TEST(BlockPool, FreeBlocksAreUsedBeforeAnythingIsEvicted) {
  BlockPool pool(3);
  const BlockHasher known = hashes_of({1, 2});
  {
    const BlockChain chain = compute(pool, known);
  }
  const BlockHandle block = pool.allocate();
  EXPECT_EQ(pool.cached_blocks(), 2U);
}

TEST(BlockPool, RecordsConsecutiveBlocksAsOneRun) {
  BlockPool pool(8);
  const BlockHasher first = hashes_of({1, 2});
  const BlockHasher fork = hashes_of({1, 5});
  const BlockChain a = compute(pool, first);
  const BlockChain b = compute(pool, fork);

  const std::vector<KvEventData> expected = {
      BlocksStored{.parent = std::nullopt, .blocks = {stored(first, 0), stored(first, 1)}},
      BlocksStored{.parent = external(first, 0), .blocks = {stored(fork, 1)}}};
  EXPECT_EQ(pool.take_events(), expected);
  EXPECT_TRUE(pool.take_events().empty());
}

TEST(BlockPool, RecordsNothingWhenNobodyListens) {
  BlockPool pool(2, BlockPool::Events::kOff);
  {
    const BlockChain chain = compute(pool, hashes_of({1, 2}));
  }
  const BlockHandle evicting = pool.allocate();
  pool.reset();
  EXPECT_TRUE(pool.take_events().empty());
}

TEST(BlockPool, ResetForgetsIdleAndUsedBlocks) {
  BlockPool pool(6);
  const BlockHasher used = hashes_of({1, 2});
  const BlockHasher idle = hashes_of({3});
  const BlockChain chain = compute(pool, used);
  const BlockChain sharer = pool.match_prefix(used.sequences());
  {
    const BlockChain gone = compute(pool, idle);
  }
  (void)pool.take_events();

  pool.reset();

  EXPECT_EQ(pool.take_events(), std::vector<KvEventData>{AllCleared{}});
  EXPECT_EQ(pool.cached_blocks(), 0U);
  EXPECT_EQ(pool.used_blocks(), 2U);
  EXPECT_EQ(pool.peek_prefix(used.sequences()).blocks, 0U);
  pool.check_invariants();
}

TEST(BlockPoolDeathTest, AHandleMustNotOutliveItsPool) {
  EXPECT_DEATH(
      {
        auto pool = std::make_unique<BlockPool>(1);
        const BlockHandle block = pool->allocate();
        pool.reset();
      },
      "P2");
}

TEST(BlockPoolDeathTest, ABlockIsRegisteredOnce) {
  BlockPool pool(1);
  const BlockHasher known = hashes_of({1});
  BlockChain chain = compute(pool, known);
  EXPECT_DEATH(chain.register_block(0, identity(known, 0)), "C1");
}

/// What a router would know after these events.
class NaiveModel {
 public:
  void apply(const std::vector<KvEventData>& events) {
    for (const KvEventData& event : events) {
      std::visit([this](const auto& data) { apply(data); }, event);
    }
  }
  bool has(blocks::SequenceHash hash) const { return stored_.contains(ExternalHash(hash.value())); }
  size_t size() const { return stored_.size(); }

 private:
  void apply(const BlocksStored& data) {
    std::optional<ExternalHash> parent = data.parent;
    for (const StoredBlock& block : data.blocks) {
      EXPECT_TRUE(!parent || stored_.contains(*parent))
          << "a child was announced before its parent";
      EXPECT_TRUE(stored_.emplace(block.external, parent).second) << "stored twice";
      parent = block.external;
    }
  }
  void apply(const BlocksRemoved& data) {
    for (const ExternalHash block : data.blocks) {
      EXPECT_EQ(stored_.erase(block), 1U) << "an unknown block was removed";
    }
  }
  void apply(const AllCleared&) { stored_.clear(); }

  std::map<ExternalHash, std::optional<ExternalHash>> stored_;
};

// Random sequences over a small alphabet share, fork, duplicate and evict one another's prefixes.
TEST(BlockPool, EventsReplayToTheRegistryWhateverHappens) {
  const char* given = std::getenv("STATOR_TEST_SEED");
  const uint64_t first = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
  for (uint64_t seed = first; seed < first + 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "STATOR_TEST_SEED=" << seed);
    Random random(seed);
    BlockPool pool(24);
    NaiveModel model;
    std::deque<BlockChain> live;
    for (int step = 0; step < 600; ++step) {
      BlockHasher hasher(kBlockSize, 1);
      const uint64_t length = 1 + random.below(6);
      for (uint64_t i = 0; i < length; ++i) {
        hasher.append(std::vector<TokenId>(kBlockSize, static_cast<TokenId>(random.below(3))));
      }
      const bool blind = random.below(4) == 0;  // computes without looking: makes duplicates
      BlockChain chain = blind ? BlockChain(pool) : pool.match_prefix(hasher.sequences());
      const size_t hits = chain.size();
      while (chain.size() < length && pool.available_blocks() > 0) {
        chain.append(pool.allocate());
      }
      for (size_t i = hits; i < chain.size(); ++i) {
        chain.register_block(i, identity(hasher, i));
      }
      live.push_back(std::move(chain));
      while (live.size() > 4 || (!live.empty() && random.below(3) == 0)) {
        live.erase(live.begin() + static_cast<ptrdiff_t>(random.below(live.size())));
      }
      if (random.below(100) == 0) {
        pool.reset();
      }
      model.apply(pool.take_events());
      pool.check_invariants();
      ASSERT_EQ(pool.peek_prefix(hasher.sequences()).blocks > 0, model.has(hasher.sequences()[0]));
    }
    live.clear();
    EXPECT_EQ(pool.used_blocks(), 0U);
    EXPECT_EQ(pool.cached_blocks(), model.size());
  }
}

}  // namespace
}  // namespace stator::kv
