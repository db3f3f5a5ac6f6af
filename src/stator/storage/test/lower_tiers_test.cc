// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/lower_tiers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <map>

#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 4096;

/// A store in memory whose answers a test can spoil.
class MemoryStore final : public BlockStore {
 public:
  std::string_view tier() const override { return "store"; }
  Result<size_t> count(std::span<const BlockName> names) override {
    const MutexLock lock(mutex);
    if (fails) {
      return Error(Code::kUnavailable, "no answer");
    }
    size_t found = 0;
    while (found < names.size() && records.contains(names[found].lineage)) {
      ++found;
    }
    return found;
  }
  Status get(const BlockName& name, std::span<std::byte> record) override {
    const MutexLock lock(mutex);
    const auto found = records.find(name.lineage);
    if (found == records.end()) {
      return Error(Code::kNotFound, "none");
    }
    std::ranges::copy(found->second, record.begin());
    return {};
  }
  Status put(const BlockName& name, std::span<const std::byte> record) override {
    const MutexLock lock(mutex);
    ++puts;
    if (fails) {
      return Error(Code::kUnavailable, "no answer");
    }
    records[name.lineage].assign(record.begin(), record.end());
    return {};
  }

  Mutex mutex;
  bool fails = false;
  int puts = 0;
  std::map<kv::LineageHash, std::vector<std::byte>> records;
};

class LowerTiersTest : public testing::Test {
 protected:
  void make(std::unique_ptr<DiskTier> disk) {
    auto store = std::make_unique<MemoryStore>();
    store_ = store.get();
    std::vector<std::unique_ptr<BlockStore>> stores;
    stores.push_back(std::move(store));
    tiers_ =
        std::make_unique<LowerTiers>(LowerTiersOptions{.space = space_,
                                                       .block_bytes = kBlock,
                                                       .block_tokens = TestSequence::kBlockTokens,
                                                       .bounce_bytes = 1 << 20},
                                     std::move(disk), std::move(stores), clock_, metrics_);
  }
  bool save(const TestSequence& sequence, size_t block) {
    return tiers_->save({.name = sequence.names[block],
                         .parent = sequence.parent(block),
                         .tokens = sequence.tokens_of(block),
                         .payload = sequence.payload(block, kBlock)});
  }
  /// How many of the first blocks came, all of them right.
  size_t load(const TestSequence& sequence) {
    std::vector<std::vector<std::byte>> places(sequence.names.size(),
                                               std::vector<std::byte>(kBlock));
    std::promise<size_t> loaded;
    tiers_->load({.names = sequence.names,
                  .tokens = sequence.tokens,
                  .places = {places.begin(), places.end()},
                  .done = [&](size_t count) { loaded.set_value(count); }});
    const size_t count = loaded.get_future().get();
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(places[i], sequence.payload(i, kBlock));
    }
    return count;
  }
  size_t probe(const TestSequence& sequence) {
    std::promise<size_t> found;
    tiers_->probe(sequence.names, [&](size_t count) { found.set_value(count); });
    return found.get_future().get();
  }

  const Digest space_ = test_space();
  SystemClock clock_;
  Metrics metrics_;
  MemoryStore* store_ = nullptr;
  std::unique_ptr<LowerTiers> tiers_;
};

TEST_F(LowerTiersTest, WhatWasSavedIsLoaded) {
  make(nullptr);
  const TestSequence sequence(6, 0, space_);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(tiers_->wants(sequence.names[i]));
    EXPECT_TRUE(save(sequence, i));
  }
  tiers_->settle();

  EXPECT_FALSE(tiers_->wants(sequence.names[0]));
  EXPECT_EQ(probe(sequence), 6U);
  EXPECT_EQ(load(sequence), 6U);
}

TEST_F(LowerTiersTest, ADamagedOrForeignRecordEndsThePrefix) {
  make(nullptr);
  const TestSequence sequence(6, 0, space_);
  const TestSequence other(6, 700, space_);
  for (size_t i = 0; i < 6; ++i) {
    save(sequence, i);
    save(other, i);
  }
  tiers_->settle();
  store_->records[sequence.names[4].lineage][5000] ^= std::byte{1};
  EXPECT_EQ(load(sequence), 4U);
  store_->records[sequence.names[2].lineage] = store_->records[other.names[2].lineage];
  EXPECT_EQ(load(sequence), 2U);
  store_->records[sequence.names[0].lineage].assign(BlockHeader::kBytes + kBlock, std::byte{0});
  EXPECT_EQ(load(sequence), 0U);
  EXPECT_EQ(load(other), 6U);
}

TEST_F(LowerTiersTest, AStoreThatFailsIsLeftAlone) {
  make(nullptr);
  const TestSequence sequence(20, 0, space_);
  store_->fails = true;
  for (size_t i = 0; i < 20; ++i) {
    save(sequence, i);
    tiers_->settle();
  }

  EXPECT_LE(store_->puts, 5);
  EXPECT_FALSE(tiers_->known(sequence.names).ask);
  EXPECT_NE(metrics_.render().find("stator_kv_tier_enabled{tier=\"store\"} 0"), std::string::npos);
}

TEST_F(LowerTiersTest, TheDiskIsAskedBeforeTheStore) {
  const std::string folder = testing::TempDir() + "/stator_lower_tiers";
  fs::remove_all(folder);
  auto disk = DiskTier::open({.folder = folder,
                              .bytes = 3 * disk_stride(kBlock),
                              .block_bytes = kBlock,
                              .block_tokens = 16,
                              .space = space_},
                             clock_, metrics_);
  ASSERT_TRUE(disk);
  make(std::move(*disk));
  const TestSequence sequence(3, 0, space_);
  for (size_t i = 0; i < 3; ++i) {
    save(sequence, i);
  }
  tiers_->settle();
  store_->records.clear();

  EXPECT_EQ(tiers_->known(sequence.names).blocks, 3U);
  EXPECT_EQ(load(sequence), 3U);
  tiers_.reset();
  fs::remove_all(folder);
}

}  // namespace
}  // namespace stator::storage
