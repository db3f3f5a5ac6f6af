// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/block_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/kv/test/colliding_blocks.h"
#include "stator/kv/test/sequence_fixture.h"

namespace stator::kv {
namespace {

using blocks::ExternalHash;

constexpr uint32_t kBlockSize = 4;

TestSequence sequence_of(std::initializer_list<TokenId> one_token_per_block,
                         const std::string& salt = "", uint32_t block_size = kBlockSize) {
  std::vector<TokenId> tokens;
  for (const TokenId token : one_token_per_block) {
    tokens.insert(tokens.end(), block_size, token);
  }
  return TestSequence(block_size, std::move(tokens), salt);
}

StoredBlock stored(const TestSequence& sequence, size_t index) {
  return {.external = ExternalHash(sequence[index].sequence.value()),
          .local = sequence[index].local};
}

ExternalHash external(const TestSequence& sequence, size_t index) {
  return stored(sequence, index).external;
}

/// Takes the missing blocks of the sequence and registers them.
BlockChain compute(BlockPool& pool, const TestSequence& sequence) {
  BlockChain chain = pool.match_prefix(sequence.blocks());
  const size_t hits = chain.size();
  while (chain.size() < sequence.size()) {
    chain.append(pool.allocate());
  }
  for (size_t i = hits; i < chain.size(); ++i) {
    chain.register_block(i, sequence[i]);
  }
  return chain;
}

/// The same, given back at once.
void use(BlockPool& pool, const TestSequence& sequence) {
  const BlockChain used = compute(pool, sequence);
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
  const TestSequence known = sequence_of({1, 2, 3});
  const BlockChain chain = compute(pool, known);

  const BlockChain same = pool.match_prefix(known.blocks());
  const BlockChain fork = pool.match_prefix(sequence_of({1, 2, 9}).blocks());
  const BlockChain none = pool.match_prefix(sequence_of({9, 2, 3}).blocks());

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
  EXPECT_TRUE(pool.match_prefix(sequence_of({1}).blocks()).empty());
}

TEST(BlockPool, AnotherSaltIsAnotherBlock) {
  BlockPool pool(4);
  const BlockChain chain = compute(pool, sequence_of({1, 2}, "a"));
  EXPECT_TRUE(pool.match_prefix(sequence_of({1, 2}, "b").blocks()).empty());
}

TEST(BlockPool, IdleBlocksStayFindable) {
  BlockPool pool(4);
  const TestSequence known = sequence_of({1, 2});
  {
    const BlockChain chain = compute(pool, known);
  }
  EXPECT_EQ(pool.used_blocks(), 0U);
  EXPECT_EQ(pool.cached_blocks(), 2U);
  EXPECT_EQ(pool.peek_prefix(known.blocks()).blocks, 2U);
  EXPECT_EQ(pool.peek_prefix(known.blocks()).idle_blocks, 2U);

  const BlockChain again = pool.match_prefix(known.blocks());

  EXPECT_EQ(again.size(), 2U);
  EXPECT_EQ(pool.cached_blocks(), 0U);
  EXPECT_EQ(pool.peek_prefix(known.blocks()).idle_blocks, 0U);
  pool.check_invariants();
}

TEST(BlockPool, ADuplicateIsDroppedInFavourOfTheRegisteredBlock) {
  BlockPool pool(4);
  const TestSequence known = sequence_of({1});
  BlockChain first(pool);
  first.append(pool.allocate());
  BlockChain second(pool);
  second.append(pool.allocate());
  first.register_block(0, known[0]);
  (void)pool.take_events();

  second.register_block(0, known[0]);

  EXPECT_EQ(second.ids()[0], first.ids()[0]);
  EXPECT_EQ(pool.used_blocks(), 1U);
  EXPECT_TRUE(pool.take_events().empty());
  pool.check_invariants();
}

TEST(BlockPool, ABlockBehindAPrivateOneStaysPrivate) {
  BlockPool pool(4);
  const TestSequence known = sequence_of({1, 2});
  BlockChain chain = compute(pool, sequence_of({1}));
  pool.reset();  // block 0 is private now
  (void)pool.take_events();

  chain.append(pool.allocate());
  chain.register_block(1, known[1]);

  EXPECT_TRUE(pool.take_events().empty());
  EXPECT_TRUE(pool.match_prefix(known.blocks()).empty());
  chain.clear();
  EXPECT_EQ(pool.available_blocks(), 4U);
  EXPECT_EQ(pool.cached_blocks(), 0U);
}

/// Other tokens whose blocks have the names of `victim`'s.
TestSequence forged(const TestSequence& victim, TokenId token, uint32_t block_size = kBlockSize) {
  TestSequence sequence(block_size, std::vector<TokenId>(victim.size() * block_size, token));
  sequence.forge_names(victim);
  return sequence;
}

class ForgedNames : public testing::TestWithParam<uint32_t> {};

TEST_P(ForgedNames, AreNeitherMatchedNorShared) {
  const uint32_t block_size = GetParam();
  BlockPool pool(8);
  const TestSequence victim = sequence_of({1, 2}, "", block_size);
  const TestSequence attack = forged(victim, 7, block_size);

  const BlockChain attacker = compute(pool, attack);
  EXPECT_TRUE(pool.match_prefix(victim.blocks()).empty());
  EXPECT_EQ(pool.peek_prefix(victim.blocks()).blocks, 0U);
  const BlockChain chain = compute(pool, victim);

  EXPECT_NE(chain.ids()[0], attacker.ids()[0]);
  EXPECT_NE(chain.ids()[1], attacker.ids()[1]);
  EXPECT_EQ(pool.match_prefix(victim.blocks()).ids()[1], chain.ids()[1]);
  EXPECT_EQ(pool.match_prefix(attack.blocks()).ids()[1], attacker.ids()[1]);
  EXPECT_EQ(pool.collisions_total(), 2U);
  pool.check_invariants();
}

INSTANTIATE_TEST_SUITE_P(OfAnySize, ForgedNames, testing::Values(1, 2, 8, 16, 32, 64, 1024));

TEST(BlockPool, RealCollisionsAreKeptApart) {
  for (const CollidingBlocks& pair : colliding_blocks()) {
    const auto block_size = static_cast<uint32_t>(pair.victim.size());
    const TestSequence victim(block_size, pair.victim);
    const TestSequence attack(block_size, pair.forged);
    ASSERT_EQ(victim[0].sequence, attack[0].sequence);
    BlockPool pool(4);
    const BlockChain attacker = compute(pool, attack);

    EXPECT_TRUE(pool.match_prefix(victim.blocks()).empty());
    const BlockChain chain = compute(pool, victim);
    EXPECT_NE(chain.ids()[0], attacker.ids()[0]);
  }
}

TEST(BlockPool, OnlyTheLastTokenOfABlockDiffers) {
  BlockPool pool(4);
  const TestSequence victim = sequence_of({1});
  TestSequence attack(kBlockSize, {1, 1, 1, 2});
  attack.forge_names(victim);
  const BlockChain attacker = compute(pool, attack);

  EXPECT_TRUE(pool.match_prefix(victim.blocks()).empty());
}

TEST(BlockPool, ABlockIsFoundOnlyBehindTheOneThatMatched) {
  BlockPool pool(8);
  const TestSequence victim = sequence_of({1, 2});
  TestSequence attack = sequence_of({7, 2});  // the second block is the victim's, behind another
  attack.forge_names(victim);
  const BlockChain attacker = compute(pool, attack);

  EXPECT_TRUE(pool.match_prefix(victim.blocks()).empty());
  const BlockChain chain = compute(pool, victim);
  EXPECT_EQ(pool.match_prefix(victim.blocks()).ids()[1], chain.ids()[1]);
  EXPECT_NE(chain.ids()[1], attacker.ids()[1]);
}

TEST(BlockPool, SaltsAreComparedToo) {
  BlockPool pool(4);
  const TestSequence victim = sequence_of({1}, "a secret salt");
  TestSequence attack = sequence_of({1}, "another whose hash is the same");
  attack.forge_names(victim);
  const BlockChain attacker = compute(pool, attack);

  EXPECT_TRUE(pool.match_prefix(victim.blocks()).empty());
}

TEST(BlockPool, EventsNameContentsOfOneNameOnce) {
  BlockPool pool(3);
  const TestSequence victim = sequence_of({1});
  const TestSequence attack = forged(victim, 7);
  BlockChain attacker = compute(pool, attack);
  BlockChain chain = compute(pool, victim);
  const std::vector<KvEventData> once = {BlocksStored{{}, {stored(victim, 0)}}};
  EXPECT_EQ(pool.take_events(), once);

  attacker.clear();
  chain.clear();
  const BlockHandle first = pool.allocate();
  const BlockHandle second = pool.allocate();  // evicts the attacker's
  EXPECT_TRUE(pool.take_events().empty()) << "the victim's block is still there";
  const BlockHandle third = pool.allocate();

  const std::vector<KvEventData> gone = {BlocksRemoved{{external(victim, 0)}}};
  EXPECT_EQ(pool.take_events(), gone);
  pool.check_invariants();
}

TEST(BlockPool, BlocksWithoutTokensAreComparedByName) {
  BlockPool pool(4);
  const TestSequence known = sequence_of({1, 2});
  SequenceBlocks names = known.blocks();
  names.tokens = {};
  names.unknown = names.size();
  BlockChain chain(pool);
  chain.append(pool.allocate());
  chain.register_block(0, names[0]);

  EXPECT_EQ(pool.match_prefix(names).size(), 1U);
  EXPECT_TRUE(pool.match_prefix(known.blocks()).empty());
}

TEST(BlockPool, EvictsTailsFirstAndTheLeastRecentlyUsedChainFirst) {
  BlockPool pool(4);
  const TestSequence old = sequence_of({1, 2});
  const TestSequence recent = sequence_of({3, 4});
  {
    const BlockChain chain = compute(pool, old);
  }
  {
    const BlockChain chain = compute(pool, recent);
  }
  (void)pool.take_events();

  BlockHandle first = pool.allocate();
  EXPECT_EQ(pool.peek_prefix(old.blocks()).blocks, 1U);
  BlockHandle second = pool.allocate();
  EXPECT_EQ(pool.peek_prefix(old.blocks()).blocks, 0U);
  EXPECT_EQ(pool.peek_prefix(recent.blocks()).blocks, 2U);

  const std::vector<KvEventData> expected = {
      BlocksRemoved{.blocks = {external(old, 1), external(old, 0)}}};
  EXPECT_EQ(pool.take_events(), expected);
  pool.check_invariants();
}

/// Which of the given first tokens' prompts still have a block after one more took its room.
std::string kept_after_one_more(BlockPool& pool, std::initializer_list<TokenId> prompts) {
  use(pool, sequence_of({99}));
  std::string kept;
  for (const TokenId prompt : prompts) {
    const bool there = pool.peek_prefix(sequence_of({prompt}).blocks()).blocks > 0;
    kept += there ? fmt::format("{} ", prompt) : "";
  }
  return kept;
}

TEST(BlockPool, EvictsByTheOrderItWasGiven) {
  for (const auto& [eviction, kept] :
       {std::pair(Eviction::kLru, "2 3 "), std::pair(Eviction::kMultiLru, "1 3 "),
        std::pair(Eviction::kLineage, "2 3 "), std::pair(Eviction::kValue, "1 3 ")}) {
    SCOPED_TRACE(to_string(eviction));
    BlockPool pool(3, BlockPool::Events::kRecord, nullptr, eviction);
    for (int hits = 0; hits < 5; ++hits) {
      use(pool, sequence_of({1}));  // often, and before the others
    }
    use(pool, sequence_of({2}));
    use(pool, sequence_of({3}));

    EXPECT_EQ(kept_after_one_more(pool, {1, 2, 3}), kept);
    pool.check_invariants();
  }
}

TEST(BlockPool, LineageEvictsWhatWasRegisteredFirstHoweverOftenItWasUsed) {
  BlockPool pool(3, BlockPool::Events::kRecord, nullptr, Eviction::kLineage);
  use(pool, sequence_of({1}));
  use(pool, sequence_of({2}));
  use(pool, sequence_of({3}));
  use(pool, sequence_of({1}));

  EXPECT_EQ(kept_after_one_more(pool, {1, 2, 3}), "2 3 ");
}

TEST(BlockPool, AParentWithoutChildrenIsEvictedLater) {
  for (const Eviction eviction : {Eviction::kMultiLru, Eviction::kLineage, Eviction::kValue}) {
    SCOPED_TRACE(to_string(eviction));
    BlockPool pool(3, BlockPool::Events::kRecord, nullptr, eviction);
    use(pool, sequence_of({1, 2, 3}));

    std::vector<BlockHandle> taken;
    for (uint32_t left = 2; left > 0; --left) {
      taken.push_back(pool.allocate());
      EXPECT_EQ(pool.peek_prefix(sequence_of({1, 2, 3}).blocks()).blocks, left);
    }
  }
}

TEST(BlockPool, FreeBlocksAreUsedBeforeAnythingIsEvicted) {
  BlockPool pool(3);
  const TestSequence known = sequence_of({1, 2});
  {
    const BlockChain chain = compute(pool, known);
  }
  const BlockHandle block = pool.allocate();
  EXPECT_EQ(pool.cached_blocks(), 2U);
}

TEST(BlockPool, RecordsConsecutiveBlocksAsOneRun) {
  BlockPool pool(8);
  const TestSequence first = sequence_of({1, 2});
  const TestSequence fork = sequence_of({1, 5});
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
    const BlockChain chain = compute(pool, sequence_of({1, 2}));
  }
  const BlockHandle evicting = pool.allocate();
  pool.reset();
  EXPECT_TRUE(pool.take_events().empty());
}

TEST(BlockPool, ResetForgetsIdleAndUsedBlocks) {
  BlockPool pool(6);
  const TestSequence used = sequence_of({1, 2});
  const TestSequence idle = sequence_of({3});
  const BlockChain chain = compute(pool, used);
  const BlockChain sharer = pool.match_prefix(used.blocks());
  {
    const BlockChain gone = compute(pool, idle);
  }
  (void)pool.take_events();

  pool.reset();

  EXPECT_EQ(pool.take_events(), std::vector<KvEventData>{AllCleared{}});
  EXPECT_EQ(pool.cached_blocks(), 0U);
  EXPECT_EQ(pool.used_blocks(), 2U);
  EXPECT_EQ(pool.peek_prefix(used.blocks()).blocks, 0U);
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
  const TestSequence known = sequence_of({1});
  BlockChain chain = compute(pool, known);
  EXPECT_DEATH(chain.register_block(0, known[0]), "C1");
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
    BlockPool pool(24, BlockPool::Events::kRecord, nullptr,
                   static_cast<Eviction>(seed % kEvictions));
    NaiveModel model;
    std::deque<BlockChain> live;
    for (int step = 0; step < 600; ++step) {
      std::vector<TokenId> tokens;
      const uint64_t length = 1 + random.below(6);
      for (uint64_t i = 0; i < length; ++i) {
        tokens.insert(tokens.end(), kBlockSize, static_cast<TokenId>(random.below(3)));
      }
      TestSequence sequence(kBlockSize, std::move(tokens));
      if (random.below(4) == 0) {  // forged
        std::vector<TokenId> others(length * kBlockSize, static_cast<TokenId>(random.below(2)));
        sequence.forge_names(TestSequence(kBlockSize, std::move(others)));
      }
      const bool blind = random.below(4) == 0;  // computes without looking: makes duplicates
      BlockChain chain = blind ? BlockChain(pool) : pool.match_prefix(sequence.blocks());
      const size_t hits = chain.size();
      while (chain.size() < length && pool.available_blocks() > 0) {
        chain.append(pool.allocate());
      }
      for (size_t i = hits; i < chain.size(); ++i) {
        chain.register_block(i, sequence[i]);
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
      // Names are few, so that contents share them.
      ASSERT_LE(pool.peek_prefix(sequence.blocks()).blocks > 0, model.has(sequence[0].sequence));
      ASSERT_EQ(pool.registered_names(), model.size());
    }
    live.clear();
    EXPECT_EQ(pool.used_blocks(), 0U);
    EXPECT_GE(pool.cached_blocks(), model.size());
    EXPECT_GT(pool.collisions_total(), 10U);
  }
}

}  // namespace
}  // namespace stator::kv
