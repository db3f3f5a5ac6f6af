// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/engine_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "stator/connectors/open_cache.h"
#include "stator/core/random.h"
#include "stator/io/read_file.h"
#include "stator/net/thread.h"
#include "stator/storage/test/blocks_fixture.h"

namespace stator::connectors {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using storage::TestSequence;

constexpr size_t kBlock = 4096;
constexpr size_t kEngineBlocks = 64;

/// Flips one byte of `payload` where `file` holds it: lanes write blocks in any order.
void damage(const fs::path& file, const std::vector<std::byte>& payload) {
  std::string bytes = *io::read_file(file);
  const std::string_view wanted(reinterpret_cast<const char*>(payload.data()), payload.size());
  const size_t at = bytes.find(wanted);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 100] = static_cast<char>(~bytes[at + 100]);
  std::ofstream(file, std::ios::binary) << bytes;
}

/// An engine with one region per block, and a cache in front of a folder and a shared folder.
class EngineCacheTest : public testing::Test {
 protected:
  EngineCacheTest()
      : folder_(fs::temp_directory_path() /
                ("stator-engine-cache-" + std::to_string(std::random_device{}()))),
        engine_(kEngineBlocks * kBlock) {
    const std::vector<Region> regions = {{.address = reinterpret_cast<uintptr_t>(engine_.data()),
                                          .stride = kBlock,
                                          .bytes = kBlock}};
    memory_ =
        std::make_shared<const EngineMemory>(*EngineMemory::create(regions, kEngineBlocks, kBlock));
    options_.facts = {.model = "test", .dtype = "f32", .block_tokens = 16, .block_bytes = kBlock};
    options_.host_bytes = 32 * kBlock;
  }
  ~EngineCacheTest() override {
    cache_.reset();
    fs::remove_all(folder_);
  }

  void open() {
    cache_.reset();
    metrics_ = std::make_unique<Metrics>();
    auto made = open_cache(options_, clock_, *metrics_);
    ASSERT_TRUE(made) << made.error().to_string();
    cache_ = std::move(*made);
  }
  void with_disk() {
    options_.disk = folder_ / "disk";
    options_.disk_bytes = 64 * (kBlock + 4096);
  }
  TestSequence sequence(size_t blocks, TokenId first = 1) const {
    return {blocks, first, storage::namespace_of(options_.facts)};
  }
  EngineCache::Request request(const TestSequence& of, uint64_t first_block) const {
    EngineCache::Request out{.names = of.names, .tokens = of.tokens, .memory = memory_};
    for (size_t i = 0; i < of.names.size(); ++i) {
      out.blocks.push_back(first_block + i);
    }
    return out;
  }
  EngineCache::Outcome done(Result<EngineCache::OperationId> id) {
    EXPECT_TRUE(id);
    const auto outcome = cache_->wait(*id, seconds(60));
    EXPECT_TRUE(outcome && outcome->done);
    EXPECT_TRUE(cache_->release(*id));
    return *outcome;
  }
  void put(const TestSequence& of) {
    for (size_t i = 0; i < of.names.size(); ++i) {
      std::ranges::copy(of.payload(i, kBlock), engine_.begin() + static_cast<int64_t>(i * kBlock));
    }
    EXPECT_EQ(done(cache_->start_put(request(of, 0))).blocks, of.names.size());
    std::ranges::fill(engine_, std::byte{0});
  }
  /// So many first blocks come, and exactly they are in the engine's memory.
  size_t get(const TestSequence& of, Duration limit = {}) {
    std::ranges::fill(engine_, std::byte{0});
    auto wanted = request(of, 20);
    wanted.limit = limit;
    const size_t blocks = done(cache_->start_get(std::move(wanted))).blocks;
    for (size_t i = 0; i < of.names.size(); ++i) {
      const auto at = engine_.begin() + static_cast<int64_t>((20 + i) * kBlock);
      const std::vector<std::byte> there(at, at + kBlock);
      EXPECT_EQ(there, i < blocks ? of.payload(i, kBlock) : std::vector<std::byte>(kBlock));
    }
    return blocks;
  }

  fs::path folder_;
  std::vector<std::byte> engine_;
  std::shared_ptr<const EngineMemory> memory_;
  OpenOptions options_;
  SystemClock clock_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<EngineCache> cache_;
};

TEST_F(EngineCacheTest, WhatWasPutComesBack) {
  open();
  const TestSequence known = sequence(6);
  put(known);

  EXPECT_EQ(get(known), 6U);
  EXPECT_EQ(get(sequence(8)), 6U) << "a longer prompt gets the prefix";
  EXPECT_EQ(get(sequence(6, 500)), 0U) << "another one nothing";
  const auto found = cache_->lookup(sequence(8).names);
  EXPECT_EQ(found.present, 6U);
  EXPECT_EQ(found.host, 6U);
  EXPECT_FALSE(found.ask);
  EXPECT_EQ(cache_->stats().operations, 0U);
  EXPECT_EQ(cache_->stats().host_pinned, 0U);
}

TEST_F(EngineCacheTest, TheDiskServesAfterARestart) {
  with_disk();
  open();
  const TestSequence known = sequence(6);
  put(known);
  ASSERT_TRUE(cache_->flush(seconds(60)));
  open();

  EXPECT_EQ(cache_->lookup(known.names).disk, 6U);
  EXPECT_EQ(get(known), 6U);
  EXPECT_EQ(cache_->lookup(known.names).host, 6U) << "they are in host memory now";
  EXPECT_EQ(cache_->stats().loaded_blocks, 6U);
}

TEST_F(EngineCacheTest, HolesInHostMemoryAreFilledFromBelow) {
  with_disk();
  open();
  const TestSequence known = sequence(10);
  put(known);
  ASSERT_TRUE(cache_->flush(seconds(60)));
  open();
  auto middle = request(known, 20);
  middle.names = {known.names.begin() + 3, known.names.begin() + 6};
  middle.tokens = {known.tokens.begin() + 3 * 16, known.tokens.begin() + 6 * 16};
  middle.blocks.resize(3);
  EXPECT_EQ(done(cache_->start_get(std::move(middle))).blocks, 3U);

  EXPECT_EQ(cache_->lookup(known.names).present, 10U);
  EXPECT_EQ(get(known), 10U);
}

TEST_F(EngineCacheTest, ASharedFolderServesAnotherEngine) {
  options_.object.url = "file://" + (folder_ / "shared").string();
  open();
  const TestSequence known = sequence(5);
  put(known);
  ASSERT_TRUE(cache_->flush(seconds(60)));
  open();

  EXPECT_EQ(cache_->lookup(known.names).present, 0U);
  EXPECT_TRUE(cache_->lookup(known.names).ask);
  EXPECT_EQ(done(cache_->start_probe(request(known, 0))).blocks, 5U);
  EXPECT_EQ(get(known), 5U);
  options_.facts.salt = "other";
  open();
  EXPECT_EQ(get(sequence(5)), 0U) << "another namespace";
}

TEST_F(EngineCacheTest, StagedBlocksStayUntilTheyAreReleased) {
  with_disk();
  open();
  const TestSequence known = sequence(6);
  put(known);
  ASSERT_TRUE(cache_->flush(seconds(60)));
  open();
  const auto staged = cache_->start_stage(request(known, 0));
  EXPECT_EQ(cache_->wait(*staged, seconds(60))->blocks, 6U);

  for (TokenId n = 1; n <= 10; ++n) {
    put(sequence(6, n * 1000));
  }
  EXPECT_EQ(cache_->lookup(known.names).host, 6U);
  EXPECT_TRUE(cache_->release(*staged));
  ASSERT_TRUE(cache_->flush(seconds(60)));
  for (TokenId n = 1; n <= 10; ++n) {
    put(sequence(6, n * 100'000));
  }
  EXPECT_EQ(cache_->lookup(known.names).host, 0U);
}

TEST_F(EngineCacheTest, StagesAndPinsHoldAQuarterAtMost) {
  open();
  put(sequence(12));

  const auto staged = cache_->start_stage(request(sequence(12), 0));
  EXPECT_EQ(cache_->wait(*staged, seconds(60))->blocks, 8U) << "of 32 slots";
  EXPECT_EQ(cache_->pin(sequence(1).names, seconds(60)).error().code(), Code::kOverloaded);
  EXPECT_EQ(cache_->start_stage(request(sequence(1), 0)).error().code(), Code::kOverloaded);
  EXPECT_TRUE(cache_->release(*staged));
  EXPECT_EQ(done(cache_->start_stage(request(sequence(1), 0))).blocks, 1U);
  const auto pinned = cache_->pin(sequence(8).names, seconds(60));
  ASSERT_TRUE(pinned);
  EXPECT_EQ(pinned->blocks, 8U);
  EXPECT_EQ(cache_->stats().host_pinned, 8U);
  EXPECT_TRUE(cache_->unpin(pinned->id));
  EXPECT_FALSE(cache_->unpin(pinned->id));
  ASSERT_TRUE(cache_->pin(sequence(8).names, Duration(1)));
  ASSERT_TRUE(cache_->pin(sequence(8).names, Duration(1))) << "the first one's time is over";
}

TEST_F(EngineCacheTest, ADamagedBlockOnDiskEndsThePrefix) {
  with_disk();
  open();
  const TestSequence known = sequence(6);
  put(known);
  ASSERT_TRUE(cache_->flush(seconds(60)));
  cache_.reset();
  damage(folder_ / "disk" / "g3.data", known.payload(3, kBlock));
  open();

  EXPECT_EQ(get(known), 3U);
  EXPECT_EQ(metrics_->counter("stator_kv_integrity_errors_total", "", {{"tier", "disk"}}).value(),
            1U);
}

TEST_F(EngineCacheTest, NonsenseIsRefused) {
  open();
  const TestSequence known = sequence(2);
  const auto code = [&](auto spoil) {
    auto wanted = request(known, 0);
    spoil(wanted);
    const auto id = cache_->start_get(std::move(wanted));
    return id ? Code::kInternal : id.error().code();
  };

  EXPECT_EQ(code([](auto& r) { r.blocks[1] = kEngineBlocks; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.blocks.pop_back(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.tokens.pop_back(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.names.clear(); }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& r) { r.memory = nullptr; }), Code::kInvalidArgument);
  EXPECT_EQ(cache_->poll(99).error().code(), Code::kNotFound);
  options_.host_bytes = UINT64_MAX / 2;
  EXPECT_EQ(open_cache(options_, clock_, *metrics_).error().code(), Code::kInvalidArgument);
}

TEST_F(EngineCacheTest, ManyEnginesThreadsAgreeOnEveryByte) {
  with_disk();
  options_.host_bytes = 16 * kBlock;
  options_.copy_threads = 2;
  open();
  for (TokenId n = 0; n < 6; ++n) {
    put(sequence(6, n * 10'000));
  }
  ASSERT_TRUE(cache_->flush(seconds(60)));

  std::vector<EngineCache::OperationId> open_ops;
  std::vector<std::vector<std::byte>> places;
  const auto pointers = std::make_shared<const EngineMemory>(EngineMemory::of_pointers(kBlock));
  for (TokenId n = 0; n < 18; ++n) {
    auto wanted = request(sequence(6, n % 6 * 10'000), 0);
    wanted.memory = pointers;
    places.emplace_back(6 * kBlock);
    for (size_t i = 0; i < 6; ++i) {
      wanted.blocks[i] = reinterpret_cast<uintptr_t>(places.back().data()) + i * kBlock;
    }
    open_ops.push_back(*cache_->start_get(std::move(wanted)));
  }
  size_t blocks = 0;
  for (TokenId n = 0; n < 18; ++n) {
    const auto outcome = cache_->wait(open_ops[n], seconds(60));
    blocks += outcome->blocks;
    for (size_t i = 0; i < outcome->blocks; ++i) {
      const auto at = places[n].begin() + static_cast<int64_t>(i * kBlock);
      EXPECT_EQ(std::vector(at, at + kBlock), sequence(6, n % 6 * 10'000).payload(i, kBlock));
    }
    EXPECT_TRUE(cache_->release(open_ops[n]));
  }
  EXPECT_GT(blocks, 0U) << "16 slots do not hold what all of them want at once";
  EXPECT_EQ(cache_->stats().host_pinned, 0U);
}

/// One thread's share of the test below: puts, gets, stages and pins of a few sequences, and looks
/// at each byte that a get brought.
void use_cache(EngineCache& cache, uint64_t seed) {
  Random random(seed);
  const auto memory = std::make_shared<const EngineMemory>(EngineMemory::of_pointers(kBlock));
  const storage::Digest space = cache.options().space;
  std::vector<std::byte> bytes(4 * kBlock);
  for (int round = 0; round < 60; ++round) {
    const TestSequence wanted(4, static_cast<TokenId>(random.below(10) * 1000), space);
    EngineCache::Request request{.names = wanted.names, .tokens = wanted.tokens, .memory = memory};
    for (size_t i = 0; i < 4; ++i) {
      request.blocks.push_back(reinterpret_cast<uintptr_t>(bytes.data()) + i * kBlock);
    }
    const uint64_t choice = random.below(4);
    if (choice == 0) {
      for (size_t i = 0; i < 4; ++i) {
        std::ranges::copy(wanted.payload(i, kBlock),
                          bytes.begin() + static_cast<ptrdiff_t>(i * kBlock));
      }
    }
    const auto op = choice == 0   ? cache.start_put(std::move(request))
                    : choice == 1 ? cache.start_stage(std::move(request))
                                  : cache.start_get(std::move(request));
    if (!op) {
      ASSERT_EQ(op.error().code(), Code::kOverloaded);
      continue;
    }
    const auto outcome = cache.wait(*op, seconds(60));
    ASSERT_TRUE(outcome && outcome->done);
    for (size_t i = 0; choice > 1 && i < outcome->blocks; ++i) {
      const auto at = bytes.begin() + static_cast<ptrdiff_t>(i * kBlock);
      ASSERT_EQ(std::vector(at, at + kBlock), wanted.payload(i, kBlock));
    }
    if (const auto pinned = cache.pin(wanted.names, seconds(60)); pinned && random.below(2) == 0) {
      EXPECT_TRUE(cache.unpin(pinned->id));
    } else if (pinned) {
      cache.release(*op);
      EXPECT_TRUE(cache.unpin(pinned->id));
      continue;
    }
    EXPECT_TRUE(cache.release(*op));
  }
}

TEST_F(EngineCacheTest, EightThreadsGetTheirBytesAndLeaveNoPins) {
  with_disk();
  open();
  std::vector<net::Thread> threads;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    threads.emplace_back("cache-test", [this, seed] { use_cache(*cache_, seed); });
  }
  for (net::Thread& thread : threads) {
    thread.join();
  }
  ASSERT_TRUE(cache_->flush(seconds(60)));
  const EngineCache::Stats stats = cache_->stats();
  EXPECT_EQ(stats.host_pinned, 0U);
  EXPECT_EQ(stats.operations, 0U);
  EXPECT_EQ(stats.integrity_errors, 0U);
  EXPECT_GT(stats.get_blocks, 0U);
}

}  // namespace
}  // namespace stator::connectors
