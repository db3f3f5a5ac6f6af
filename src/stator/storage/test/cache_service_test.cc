// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/cache_service.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "stator/storage/block_header.h"
#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

constexpr size_t kBlock = 4096;

std::string record(const TestSequence& sequence, size_t block, const Digest& space) {
  const auto payload = sequence.payload(block, kBlock);
  BlockHeader header = describe_payload(payload, sequence.tokens_of(block));
  header.space = space;
  header.name = sequence.names[block];
  header.parent = sequence.parent(block);
  std::string out(BlockHeader::kBytes, '\0');
  encode(header, std::as_writable_bytes(std::span(out)));
  out.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  return out;
}

class CacheServiceTest : public testing::Test {
 protected:
  Status put(CacheService& cache, const TestSequence& sequence, size_t block) {
    return cache.put(space, sequence.names[block].lineage, record(sequence, block, space));
  }
  bool has(CacheService& cache, const TestSequence& sequence, size_t block) {
    const auto got = cache.get(space, sequence.names[block].lineage);
    if (got) {  // all but the time it was written
      EXPECT_EQ((*got)->substr(BlockHeader::kBytes),
                record(sequence, block, space).substr(BlockHeader::kBytes));
    }
    return got.has_value();
  }

  SystemClock clock;
  Metrics metrics;
  const Digest space = test_space();
};

TEST_F(CacheServiceTest, GivesWhatItTookAndKeepsWithinItsMemory) {
  CacheService cache({.host_bytes = 3 * (BlockHeader::kBytes + kBlock)}, clock, metrics);
  const TestSequence sequence(5, 0, space);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(put(cache, sequence, i));
  }
  EXPECT_TRUE(has(cache, sequence, 0));
  EXPECT_EQ(put(cache, sequence, 0).error().code(), Code::kAlreadyExists);
  ASSERT_TRUE(put(cache, sequence, 3));

  EXPECT_FALSE(has(cache, sequence, 1));
  EXPECT_TRUE(has(cache, sequence, 0));
  std::vector<kv::LineageHash> names;
  for (const BlockName& name : sequence.names) {
    names.push_back(name.lineage);
  }
  EXPECT_EQ(cache.count(space, names), 1U);
  EXPECT_EQ(cache.count(test_space("other"), names), 0U);
  EXPECT_EQ(cache.ranges(names), (std::vector<CacheService::Range>{{0, 1}, {2, 4}}));
  EXPECT_TRUE(cache.ranges({}).empty());
}

TEST_F(CacheServiceTest, TakesOnlyWhatIsWholeAndWhatItIsCalled) {
  CacheService cache({.host_bytes = 1 << 20}, clock, metrics);
  const TestSequence sequence(2, 0, space);
  const std::string good = record(sequence, 0, space);
  std::string flipped = good;
  flipped[BlockHeader::kBytes + 99] ^= 1;

  EXPECT_FALSE(cache.put(space, sequence.names[0].lineage, flipped));
  EXPECT_FALSE(cache.put(space, sequence.names[0].lineage, good.substr(0, good.size() - 1)));
  EXPECT_FALSE(cache.put(space, sequence.names[0].lineage, ""));
  EXPECT_FALSE(cache.put(space, sequence.names[1].lineage, good));
  EXPECT_FALSE(cache.put(test_space("other"), sequence.names[0].lineage, good));
  EXPECT_TRUE(cache.put(space, sequence.names[0].lineage, good));
}

TEST_F(CacheServiceTest, ItsFolderOutlivesIt) {
  const std::string folder = testing::TempDir() + "/stator_cache_service";
  std::filesystem::remove_all(folder);
  const CacheServiceOptions options{
      .host_bytes = 1 << 20, .folder = folder, .folder_bytes = 1 << 20};
  const TestSequence sequence(4, 0, space);
  {
    CacheService cache(options, clock, metrics);
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(put(cache, sequence, i));
    }
  }
  CacheService cache(options, clock, metrics);
  cache.recover();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(has(cache, sequence, i));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace stator::storage
