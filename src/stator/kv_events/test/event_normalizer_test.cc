// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace stator::kv_events {
namespace {

using blocks::BlockHasher;
using blocks::ExternalHash;
using blocks::hash_seed;
using kv::StorageTier;

constexpr uint32_t kBlock = 4;

std::vector<TokenId> tokens_from(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// `hashes` after `parent`, with tokens counting from `first_token`.
EngineStored store(std::vector<uint64_t> hashes, std::optional<uint64_t> parent = {},
                   TokenId first_token = 0) {
  EngineStored stored;
  stored.tokens = tokens_from(first_token, hashes.size() * kBlock);
  stored.hashes = std::move(hashes);
  stored.parent = parent;
  stored.block_size = kBlock;
  return stored;
}

EngineRemoved removal(std::vector<uint64_t> hashes) {
  return {.hashes = std::move(hashes), .scope = {}};
}

std::vector<ExternalHash> own_ids(size_t token_count, uint64_t seed = hash_seed("", ""),
                                  uint32_t block_size = kBlock) {
  BlockHasher hasher(block_size, seed);
  hasher.append(tokens_from(0, token_count));
  std::vector<ExternalHash> ids;
  for (const auto sequence : hasher.sequences()) {
    ids.emplace_back(sequence.value());
  }
  return ids;
}

class NormalizerTest : public ::testing::Test {
 protected:
  template <typename... Events>
  std::vector<kv::KvEvent> feed(Events... events) {
    EngineEventBatch batch;
    (batch.events.emplace_back(std::move(events)), ...);
    return normalizer_.normalize(0, batch);
  }
  /// What is stored by `events`, and nothing else is in them.
  static std::vector<ExternalHash> stored_in(const std::vector<kv::KvEvent>& events) {
    std::vector<ExternalHash> ids;
    for (const kv::KvEvent& event : events) {
      const auto* stored = std::get_if<kv::BlocksStored>(&event.data);
      EXPECT_NE(stored, nullptr);
      for (size_t i = 0; stored != nullptr && i < stored->blocks.size(); ++i) {
        ids.push_back(stored->blocks[i].external);
      }
    }
    return ids;
  }
  static std::vector<ExternalHash> removed_in(const std::vector<kv::KvEvent>& events) {
    std::vector<ExternalHash> ids;
    for (const kv::KvEvent& event : events) {
      const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data);
      EXPECT_NE(removed, nullptr);
      if (removed != nullptr) {
        ids.insert(ids.end(), removed->blocks.begin(), removed->blocks.end());
      }
    }
    return ids;
  }

  EventNormalizer normalizer_{{.block_size = kBlock, .dp_ranks = 2, .blocks_max = 8}};
};

TEST_F(NormalizerTest, BlocksLeaveUnderTheHashesOfTheirTokens) {
  const auto events = feed(store({70, 71}), store({72}, 71, 8));

  BlockHasher hasher(kBlock, hash_seed("", ""));
  hasher.append(tokens_from(0, 12));
  ASSERT_EQ(events.size(), 1U);  // the second store goes on where the first ended
  const auto& stored = std::get<kv::BlocksStored>(events[0].data);
  EXPECT_EQ(stored.parent, std::nullopt);
  ASSERT_EQ(stored.blocks.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stored.blocks[i].external.value(), hasher.sequences()[i].value());
    EXPECT_EQ(stored.blocks[i].local, hasher.locals()[i]);
  }
}

TEST_F(NormalizerTest, AChildIsAttachedToItsParentOfAnEarlierBatch) {
  feed(store({70, 71}));

  const auto events = feed(store({72}, 71, 8));

  const auto& stored = std::get<kv::BlocksStored>(events.at(0).data);
  EXPECT_EQ(stored.parent, own_ids(8)[1]);
  EXPECT_EQ(stored.blocks.at(0).external, own_ids(12)[2]);
}

TEST_F(NormalizerTest, RemovalsNameWhatWasStored) {
  feed(store({70, 71}));

  EXPECT_EQ(removed_in(feed(removal({71, 99}), removal({70}))),
            (std::vector{own_ids(8)[1], own_ids(8)[0]}));
  EXPECT_EQ(normalizer_.drops(Drop::kBlockNotFound), 1U);
  EXPECT_EQ(normalizer_.stats().held_blocks, 0U);
}

TEST_F(NormalizerTest, ABlockStoredAgainIsSaidOnceAndGoneAtTheFirstRemoval) {
  EXPECT_EQ(feed(store({70, 71}), store({70, 71}), store({71}, 70, 4)).size(), 1U);
  EXPECT_EQ(normalizer_.stats().repeated_blocks, 3U);

  EXPECT_EQ(removed_in(feed(removal({71}))).size(), 1U);
  EXPECT_TRUE(feed(removal({71})).empty());
  EXPECT_EQ(stored_in(feed(store({71}, 70, 4))), std::vector{own_ids(8)[1]});
}

TEST_F(NormalizerTest, AChildOfAnUnknownParentIsLeftOut) {
  EXPECT_TRUE(feed(store({72}, 71, 8)).empty());
  EXPECT_EQ(normalizer_.drops(Drop::kParentBlockNotFound), 1U);
}

TEST_F(NormalizerTest, ACircleIsLeftOut) {
  EXPECT_TRUE(feed(store({70, 70})).empty());
  feed(store({70}));
  EXPECT_TRUE(feed(store({71, 70}, 70)).empty());
  EXPECT_EQ(normalizer_.drops(Drop::kInvalidBlock), 2U);
}

TEST_F(NormalizerTest, AdapterAndSaltSeedTheWholeChain) {
  EngineStored first = store({70, 71});
  first.lora_name = "ad1";
  first.has_lora_id = true;
  first.extras = {{.texts = {"ad1", "stator-salt:t1"}}, {.texts = {"ad1"}}};
  EngineStored next = store({72}, 71, 8);  // names the adapter, not the salt
  next.lora_name = "ad1";
  next.extras = {{.texts = {"ad1"}}};

  EXPECT_EQ(stored_in(feed(first, next)), own_ids(12, hash_seed("ad1", "t1")));
}

TEST_F(NormalizerTest, ASaltOfItsOwnFieldCountsTheSame) {
  EngineStored stored = store({70});
  stored.cache_salt = "dynamo-cache-salt:t1";

  EXPECT_EQ(stored_in(feed(stored)), own_ids(4, hash_seed("", "t1")));
}

TEST_F(NormalizerTest, DoubtsAboutAdapterOrSaltLeaveTheBlockOut) {
  EngineStored unnamed_adapter = store({70});
  unnamed_adapter.has_lora_id = true;
  EngineStored raw_salt = store({71});
  raw_salt.extras = {{.texts = {"someone's salt"}}};
  EngineStored salted = store({72});
  salted.cache_salt = "t1";
  EngineStored other_salt = store({73}, 72, 4);
  other_salt.cache_salt = "t2";

  EXPECT_EQ(stored_in(feed(unnamed_adapter, raw_salt, salted, other_salt)),
            own_ids(4, hash_seed("", "t1")));
  EXPECT_EQ(normalizer_.drops(Drop::kAmbiguousCacheNamespace), 3U);
}

TEST_F(NormalizerTest, OneNameForTwoContentsIsBelievedInNeither) {
  feed(store({70}));

  EXPECT_EQ(removed_in(feed(store({70}, {}, 100))), own_ids(4));
  EXPECT_EQ(normalizer_.stats().held_blocks, 0U);
}

TEST_F(NormalizerTest, MediaAreHashedWithTheirBlockAndOpaqueContentEndsTheChain) {
  EngineStored stored = store({70, 71, 72});
  stored.extras = {{.mm_hashes = {9, 7, 9}}, {.opaque = true}};

  const auto events = feed(stored);

  const uint64_t media[] = {7, 9};
  const auto& blocks = std::get<kv::BlocksStored>(events.at(0).data).blocks;
  ASSERT_EQ(blocks.size(), 1U);
  EXPECT_EQ(blocks[0].local, blocks::hash_block(tokens_from(0, 4), hash_seed("", ""), media));
  EXPECT_EQ(normalizer_.drops(Drop::kOpaqueContent), 1U);
}

TEST_F(NormalizerTest, ALargerEngineBlockIsSplit) {
  EngineStored stored = store({70, 71});
  stored.block_size = 2 * kBlock;
  stored.tokens = tokens_from(0, 16);

  EXPECT_EQ(stored_in(feed(stored)), own_ids(16));
  EXPECT_EQ(removed_in(feed(removal({71}))), (std::vector{own_ids(16)[3], own_ids(16)[2]}));
}

TEST_F(NormalizerTest, ABlockSizeThatIsNoMultipleIsReportedAndDropped) {
  EngineStored stored = store({70});
  stored.block_size = 6;

  EXPECT_TRUE(feed(stored).empty());
  EXPECT_EQ(normalizer_.drops(Drop::kBlockSizeMismatch), 1U);
  EXPECT_EQ(normalizer_.mismatched_block_size(), 6U);
}

TEST_F(NormalizerTest, TooFewTokensEndTheEvent) {
  EngineStored stored = store({70, 71});
  stored.tokens.pop_back();

  EXPECT_EQ(stored_in(feed(stored)), own_ids(4));
  EXPECT_EQ(normalizer_.drops(Drop::kBlockSizeMismatch), 1U);
}

TEST_F(NormalizerTest, AnUnsetBlockSizeIsThatOfTheFirstStore) {
  EventNormalizer learning({});
  EngineEventBatch batch;
  batch.events.emplace_back(store({70}));

  EXPECT_EQ(learning.block_size(), 0U);
  EXPECT_EQ(learning.normalize(0, batch).size(), 1U);
  EXPECT_EQ(learning.block_size(), kBlock);
}

TEST_F(NormalizerTest, PairsOfTokensSpanOneTokenMore) {
  EngineStored stored = store({70, 71});
  stored.bigram = true;
  stored.tokens = tokens_from(0, 9);

  const auto events = feed(stored);

  // Known values of the scheme for windows 0..4 and 4..8.
  const auto& blocks = std::get<kv::BlocksStored>(events.at(0).data).blocks;
  EXPECT_EQ(blocks.at(0).local.value(), 14562210786876287112U);
  EXPECT_EQ(blocks.at(1).local.value(), 15916330181359808192U);
}

TEST_F(NormalizerTest, TiersAreKeptApart) {
  EngineStored offloaded;
  offloaded.hashes = {70, 71, 99};  // no tokens: it is known by name
  offloaded.scope.medium = "CPU";
  feed(store({70, 71}));

  const auto stored = feed(offloaded);
  ASSERT_FALSE(stored.empty());
  EXPECT_EQ(stored[0].tier, StorageTier::kHostPinned);
  EXPECT_EQ(stored_in(stored), own_ids(8));

  const auto removed = feed(removal({70, 71}));
  EXPECT_EQ(removed.at(0).tier, StorageTier::kDevice);
  EXPECT_EQ(normalizer_.stats().held_blocks, 2U);  // the copies in host memory
  EXPECT_EQ(normalizer_.drops(Drop::kBlockNotFound), 1U);
}

TEST_F(NormalizerTest, EventsOutsideTheMainCacheAreFiltered) {
  const std::pair<EngineEventScope, Drop> cases[] = {
      {{.locality = "REMOTE"}, Drop::kNonLocalLocality},
      {{.medium = "TAPE"}, Drop::kUnknownMedium},
      {{.ownership = "kvcr"}, Drop::kUnsupportedOwnership},
      {{.ownership = "me"}, Drop::kUnknownOwnership},
      {{.kind = "sliding_window", .group = 1}, Drop::kNonMainAttentionKind},
      {{.kind = "quantum", .group = 2}, Drop::kUnknownKind},
      {{.group = 1}, Drop::kNonMainAttentionGroup},  // learned two lines above
      {{.group = 7}, Drop::kUnlearnedGroupIdx}};
  for (const auto& [scope, reason] : cases) {
    EngineStored stored = store({70});
    stored.scope = scope;

    EXPECT_TRUE(feed(stored).empty()) << drop_name(reason);
    EXPECT_EQ(normalizer_.drops(reason), 1U) << drop_name(reason);
  }
  EngineStored main = store({70});
  main.scope = {.medium = "GPU",
                .kind = "mla_attention",
                .locality = "LOCAL",
                .ownership = "framework",
                .group = 3};
  EXPECT_EQ(feed(main).size(), 1U);
  EngineRemoved other = removal({70});
  other.scope.group = 1;  // the windowed group lost its copy, not ours
  EXPECT_TRUE(feed(other).empty());
  other.scope.group = 3;
  EXPECT_EQ(feed(other).size(), 1U);
}

TEST_F(NormalizerTest, RanksAreSeparateAndOnlyDeclaredOnesCount) {
  EngineEventBatch batch;
  batch.events.emplace_back(store({70}));
  batch.dp_rank = 1;
  EXPECT_EQ(normalizer_.normalize(0, batch).at(0).dp_rank, 1U);
  batch.dp_rank.reset();
  EXPECT_EQ(normalizer_.normalize(0, batch).at(0).dp_rank, 0U);
  batch.dp_rank = 2;
  EXPECT_TRUE(normalizer_.normalize(0, batch).empty());
  EXPECT_EQ(normalizer_.drops(Drop::kUndeclaredRank), 1U);

  EngineEventBatch clear;
  clear.events.emplace_back(EngineCleared{});
  const auto events = normalizer_.normalize(1, clear);

  EXPECT_EQ(events.at(0), (kv::KvEvent{0, 1, StorageTier::kDevice, kv::AllCleared{}}));
  EXPECT_EQ(normalizer_.stats().held_blocks, 1U);  // rank 0's
}

TEST_F(NormalizerTest, ResetForgetsOneRank) {
  feed(store({70}));

  EXPECT_EQ(normalizer_.reset(0).size(), 1U);
  EXPECT_TRUE(normalizer_.reset(2).empty());
  EXPECT_TRUE(feed(store({71}, 70, 4)).empty());
}

TEST_F(NormalizerTest, BeyondItsBoundNothingIsRemembered) {
  EXPECT_EQ(stored_in(feed(store({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}))), own_ids(32));
  EXPECT_EQ(normalizer_.stats().held_blocks, 8U);
  EXPECT_EQ(normalizer_.drops(Drop::kCapacityExhausted), 1U);
}

TEST_F(NormalizerTest, RunsAreMergedUpToABound) {
  EventNormalizer normalizer({.block_size = kBlock});
  std::vector<uint64_t> hashes(300);
  std::iota(hashes.begin(), hashes.end(), 1);
  EngineEventBatch batch;
  batch.events.emplace_back(store(hashes));
  batch.events.emplace_back(removal(hashes));

  const auto events = normalizer.normalize(0, batch);

  ASSERT_EQ(events.size(), 6U);
  for (const kv::KvEvent& event : events) {
    const auto* stored = std::get_if<kv::BlocksStored>(&event.data);
    const size_t blocks = stored != nullptr ? stored->blocks.size()
                                            : std::get<kv::BlocksRemoved>(event.data).blocks.size();
    EXPECT_LE(blocks, EventNormalizer::kMergedBlocksMax);
  }
}

}  // namespace
}  // namespace stator::kv_events
