// SPDX-License-Identifier: Apache-2.0
#include "stator/blocks/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>

#include "stator/core/hash.h"
#include "stator/core/random.h"

namespace stator::blocks {
namespace {

std::vector<TokenId> counting(size_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Values computed by NVIDIA Dynamo's router for tokens 0, 1, 2, …
TEST(BlockHash, MatchesTheReferenceVectors) {
  EXPECT_EQ(xxh3_64("test data", 1337), 13226331709069118873ULL);
  BlockHasher four(4, hash_seed("", ""));
  four.append(counting(12));
  ASSERT_EQ(four.locals().size(), 3U);
  EXPECT_EQ(four.locals()[0].value(), 9143094415614847814ULL);
  EXPECT_EQ(four.locals()[1].value(), 12124091508212882195ULL);
  EXPECT_EQ(four.locals()[2].value(), 1088361764653601668ULL);
  EXPECT_EQ(four.sequences()[0].value(), 9143094415614847814ULL);
  EXPECT_EQ(four.sequences()[1].value(), 9510318385840434533ULL);
  EXPECT_EQ(four.sequences()[2].value(), 16998148715716822651ULL);
  BlockHasher sixteen(16, hash_seed("", ""));
  sixteen.append(counting(32));
  EXPECT_EQ(sixteen.locals()[0].value(), 15310707395893867146ULL);
  EXPECT_EQ(sixteen.locals()[1].value(), 15292316782987903195ULL);
  EXPECT_EQ(sixteen.sequences()[1].value(), 13769157705258532664ULL);
  EXPECT_EQ(hash_block(counting(64), 1337).value(), 3480597578098033343ULL);
  EXPECT_EQ(hash_block(counting(128), 1337).value(), 9509643624113304476ULL);
}

TEST(BlockHash, SaltsSeparateAdaptersAndTenants) {
  EXPECT_EQ(hash_seed("adapter-a", ""), 8842669519798868182ULL);
  EXPECT_EQ(hash_seed("", "tenant-a"), 1948188790972764086ULL);
  EXPECT_EQ(hash_seed("adapter-a", "tenant-a"), 10790858310771630931ULL);
  const auto block = counting(4);
  EXPECT_EQ(hash_block(block, hash_seed("adapter-a", "")).value(), 6665157333201000639ULL);
  EXPECT_EQ(hash_block(block, hash_seed("", "tenant-a")).value(), 17009624042690211646ULL);
  EXPECT_EQ(hash_block(block, hash_seed("adapter-a", "tenant-a")).value(), 8269515957840517240ULL);
}

TEST(BlockHash, MultimodalHashesAreSortedBeforeHashing) {
  const auto block = counting(4);
  const std::vector<uint64_t> descending = {9, 7};
  const std::vector<uint64_t> ascending = {7, 9};
  EXPECT_EQ(hash_block(block, 1337, descending).value(), 2804314152109901951ULL);
  EXPECT_EQ(hash_block(block, 1337, ascending), hash_block(block, 1337, descending));
}

TEST(BlockHash, ApartialBlockHasNoHash) {
  BlockHasher hasher(16, 1337);
  hasher.append(counting(15));
  EXPECT_TRUE(hasher.locals().empty());
  hasher.append(TokenId{15});
  EXPECT_EQ(hasher.locals().size(), 1U);
}

TEST(BlockHash, AnySplitOfTheTokensGivesTheSameHashes) {
  const auto tokens = counting(1000, 77);
  BlockHasher whole(16, 1337);
  whole.append(tokens);
  Random random(11);
  for (int round = 0; round < 50; ++round) {
    BlockHasher split(16, 1337);
    std::span<const TokenId> rest(tokens);
    while (!rest.empty()) {
      const size_t take = std::min<size_t>(rest.size(), random.below(40));
      split.append(rest.first(take));
      rest = rest.subspan(take);
    }
    ASSERT_TRUE(std::ranges::equal(split.locals(), whole.locals()));
    ASSERT_TRUE(std::ranges::equal(split.sequences(), whole.sequences()));
  }
}

TEST(BlockHash, ExtendingAddsTheHashesOfTheNewBlocksOnly) {
  const auto tokens = counting(1000, 77);
  BlockHasher whole(16, 1337);
  whole.append(tokens);
  std::vector<SequenceHash> sequences;
  for (const size_t count : {0UL, 15UL, 16UL, 100UL, 100UL, 1000UL}) {
    extend_sequences(std::span(tokens).first(count), 16, 1337, sequences);
    ASSERT_EQ(sequences.size(), count / 16);
    ASSERT_TRUE(std::ranges::equal(sequences, whole.sequences().first(count / 16)));
  }
}

}  // namespace
}  // namespace stator::blocks
