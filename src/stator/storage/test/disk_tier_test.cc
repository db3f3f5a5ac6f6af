// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/disk_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "stator/storage/aligned_buffer.h"
#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class DiskTierTest : public testing::Test {
 protected:
  static constexpr size_t kBlock = 8192;

  void SetUp() override {
    folder_ = testing::TempDir() + "/stator_disk_tier_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  DiskTierOptions options(uint64_t slots = 8) const {
    return {.folder = folder_,
            .bytes = slots * disk_stride(kBlock),
            .block_bytes = kBlock,
            .block_tokens = 16,
            .space = space_};
  }
  std::unique_ptr<DiskTier> open(const DiskTierOptions& options) {
    auto tier = DiskTier::open(options, clock_, metrics_);
    EXPECT_TRUE(tier) << tier.error().message();
    return std::move(*tier);
  }
  Status write(DiskTier& tier, const TestSequence& sequence, size_t block) {
    const auto payload = sequence.payload(block, kBlock);
    AlignedBuffer aligned(kBlock);
    std::ranges::copy(payload, aligned.bytes().begin());
    return tier.write({.name = sequence.names[block],
                       .parent = sequence.parent(block),
                       .tokens = sequence.tokens_of(block),
                       .payload = aligned.bytes()});
  }
  /// kInternal: the right bytes.
  Code read(DiskTier& tier, const TestSequence& sequence, size_t block) {
    const AlignedBuffer got(kBlock);
    const Status done = tier.read(sequence.names[block], sequence.tokens_of(block), got.bytes());
    if (!done) {
      return done.error().code();
    }
    EXPECT_TRUE(std::ranges::equal(got.bytes(), sequence.payload(block, kBlock)));
    return Code::kInternal;
  }
  void flip(const std::string& file, uint64_t at) {
    std::fstream stream(folder_ + "/" + file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }

  const Digest space_ = test_space();
  SystemClock clock_;
  Metrics metrics_;
  std::string folder_;
};

TEST_F(DiskTierTest, KeepsBlocksOverARestart) {
  const TestSequence sequence(4, 0, space_);
  {
    const auto tier = open(options());
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(write(*tier, sequence, i));
    }
    EXPECT_EQ(write(*tier, sequence, 0).error().code(), Code::kAlreadyExists);
  }
  const auto tier = open(options());
  EXPECT_EQ(tier->recovered(), 4U);
  EXPECT_EQ(tier->match(sequence.names), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read(*tier, sequence, i), Code::kInternal);
  }
}

TEST_F(DiskTierTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_) << "a file";
  DiskTierOptions below = options();
  below.folder += "/kv";
  const auto tier = DiskTier::open(below, clock_, metrics_);
  ASSERT_FALSE(tier);
  EXPECT_THAT(tier.error().message(),
              testing::HasSubstr("cannot make the KV folder " + below.folder));
}

TEST_F(DiskTierTest, ReadsManyAtOnce) {
  for (const bool uring : {true, false}) {
    SCOPED_TRACE(uring);
    TearDown();
    const TestSequence sequence(40, 0, space_);
    DiskTierOptions wanted = options(64);
    wanted.uring = uring;
    const auto tier = open(wanted);
    for (size_t i = 0; i < 39; ++i) {
      ASSERT_TRUE(write(*tier, sequence, i));
    }
    flip("g3.data", 3 * tier->block_stride() + BlockHeader::kBytes + 7);
    const AlignedBuffer got(40 * kBlock + 1);
    std::vector<DiskTier::Read> reads;
    for (size_t i = 0; i < 40; ++i) {
      reads.push_back({.name = sequence.names[i],
                       .tokens = sequence.tokens_of(i),
                       .payload = got.bytes().subspan(i * kBlock + (i == 39 ? 1 : 0), kBlock)});
    }

    tier->read_all(reads);

    for (size_t i = 0; i < 39; ++i) {
      if (i == 3) {
        EXPECT_EQ(reads[i].outcome.error().code(), Code::kCorrupt);
      } else {
        ASSERT_TRUE(reads[i].outcome) << i << reads[i].outcome.error().message();
        EXPECT_TRUE(std::ranges::equal(reads[i].payload, sequence.payload(i, kBlock)));
      }
    }
    EXPECT_EQ(reads[39].outcome.error().code(), Code::kNotFound);
    EXPECT_FALSE(tier->contains(sequence.names[3])) << "what is damaged is forgotten";
    EXPECT_TRUE(!tier->batches() || uring);
  }
}

TEST_F(DiskTierTest, SurvivesBeingCopiedAtAnyMoment) {
  // What a kill leaves is what the files hold: copies of them, taken between any two writes.
  const TestSequence sequence(12, 0, space_);
  const std::string copy = folder_ + "_copy";
  const auto tier = open(options(4));
  for (size_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(write(*tier, sequence, i));
    tier->match(std::span(sequence.names).first(i + 1));
    fs::remove_all(copy);
    fs::copy(folder_, copy);
    DiskTierOptions other = options(4);
    other.folder = copy;
    const auto recovered = open(other);
    EXPECT_EQ(recovered->stored(), std::min<size_t>(i + 1, 4));
    for (size_t block = 0; block <= i; ++block) {
      EXPECT_THAT(read(*recovered, sequence, block),
                  testing::AnyOf(Code::kInternal, Code::kNotFound));
    }
  }
  fs::remove_all(copy);
}

TEST_F(DiskTierTest, DamageIsFoundCountedAndForgotten) {
  const TestSequence sequence(3, 0, space_);
  const auto tier = open(options());
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(write(*tier, sequence, i));
  }
  flip("g3.data", disk_stride(kBlock) * 0 + BlockHeader::kBytes + 5000);  // payload of block 0
  flip("g3.data", disk_stride(kBlock) * 1 + 40);                          // header of block 1

  EXPECT_EQ(read(*tier, sequence, 0), Code::kCorrupt);
  EXPECT_EQ(read(*tier, sequence, 1), Code::kCorrupt);
  EXPECT_EQ(read(*tier, sequence, 2), Code::kInternal);
  EXPECT_EQ(read(*tier, sequence, 0), Code::kNotFound);
  EXPECT_EQ(tier->stored(), 1U);
  EXPECT_THAT(metrics_.render(), HasSubstr("stator_kv_integrity_errors_total{tier=\"disk\"} 2"));
  ASSERT_TRUE(write(*tier, sequence, 0));
  EXPECT_EQ(read(*tier, sequence, 0), Code::kInternal);
}

TEST_F(DiskTierTest, AReplacedFileIsNotBelieved) {
  const TestSequence sequence(2, 0, space_);
  const TestSequence other(2, 500, space_);
  {
    const auto tier = open(options());
    ASSERT_TRUE(write(*tier, sequence, 0));
    ASSERT_TRUE(write(*tier, sequence, 1));
  }
  fs::copy(folder_ + "/g3.log", folder_ + "/kept.log");
  fs::copy(folder_ + "/g3.ckpt", folder_ + "/kept.ckpt");
  {
    DiskTierOptions fresh = options();
    fresh.space = test_space("other");
    fresh.wipe_foreign = true;
    const auto tier = open(fresh);
    const TestSequence foreign(2, 500, fresh.space);
    ASSERT_TRUE(write(*tier, foreign, 0));
    ASSERT_TRUE(write(*tier, foreign, 1));
  }
  DiskTierOptions back = options();
  back.wipe_foreign = true;
  open(back);  // super and data of the first namespace again
  fs::copy(folder_ + "/kept.ckpt", folder_ + "/g3.ckpt", fs::copy_options::overwrite_existing);
  const auto tier = open(options());
  EXPECT_EQ(tier->match(sequence.names), 2U);  // the index says so
  EXPECT_NE(read(*tier, sequence, 0), Code::kInternal);
  EXPECT_NE(read(*tier, sequence, 1), Code::kInternal);
}

TEST_F(DiskTierTest, RefusesAFolderOfAnotherNamespaceOrProcess) {
  const auto tier = open(options());
  EXPECT_EQ(DiskTier::open(options(), clock_, metrics_).error().code(), Code::kAlreadyExists);
  DiskTierOptions elsewhere = options();
  elsewhere.folder = folder_ + "_two";
  fs::remove_all(elsewhere.folder);
  open(elsewhere);
  elsewhere.space = test_space("other");
  const auto refused = DiskTier::open(elsewhere, clock_, metrics_);
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("kv.disk_on_mismatch wipe"));
  elsewhere.wipe_foreign = true;
  EXPECT_TRUE(DiskTier::open(elsewhere, clock_, metrics_));
  fs::remove_all(elsewhere.folder);

  DiskTierOptions nowhere = options();
  nowhere.folder = "/proc/stator";
  EXPECT_FALSE(DiskTier::open(nowhere, clock_, metrics_));
  DiskTierOptions tiny = options();
  tiny.folder = folder_ + "_tiny";
  tiny.bytes = 100;
  EXPECT_EQ(DiskTier::open(tiny, clock_, metrics_).error().code(), Code::kInvalidArgument);
  fs::remove_all(tiny.folder);
}

/// Files may not grow: what a full disk says to a journal, too.
TEST_F(DiskTierTest, AFullDiskTakesNothingMoreAndServesWhatItHas) {
  const TestSequence sequence(4, 0, space_);
  const auto tier = open(options());
  ASSERT_TRUE(write(*tier, sequence, 0));
  ASSERT_TRUE(write(*tier, sequence, 1));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_action = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const Status third = write(*tier, sequence, 2);
  const Status fourth = write(*tier, sequence, 3);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old_action);

  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kIo);
  ASSERT_FALSE(fourth);
  EXPECT_EQ(fourth.error().code(), Code::kUnavailable) << "nobody tries again and again";
  EXPECT_FALSE(tier->enabled());
  EXPECT_EQ(metrics_.gauge("stator_kv_tier_enabled", "", {{"tier", "disk"}}).value(), 0);
  EXPECT_EQ(tier->match(sequence.names), 2U);
  EXPECT_EQ(read(*tier, sequence, 0), Code::kInternal);
  EXPECT_EQ(read(*tier, sequence, 1), Code::kInternal);
}

TEST_F(DiskTierTest, ADiskWithoutRoomIsRefusedAtTheStart) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_action = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 3 * disk_stride(kBlock), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const auto tier = DiskTier::open(options(), clock_, metrics_);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old_action);
  ASSERT_FALSE(tier);
  EXPECT_EQ(tier.error().code(), Code::kIo);
  EXPECT_THAT(tier.error().message(), testing::HasSubstr(folder_));
}

TEST_F(DiskTierTest, StaysWithinItsDailyWrites) {
  SimClock clock;
  const TestSequence sequence(4, 0, space_);
  DiskTierOptions limited = options();
  limited.write_bytes_per_day = disk_stride(kBlock) * 24;  // one an hour
  auto tier = DiskTier::open(limited, clock, metrics_);
  ASSERT_TRUE(tier);

  EXPECT_EQ(write(**tier, sequence, 0).error().code(), Code::kRateLimited);
  clock.advance(std::chrono::minutes(61));
  EXPECT_TRUE(write(**tier, sequence, 0));
  EXPECT_EQ(write(**tier, sequence, 1).error().code(), Code::kRateLimited);
  clock.advance(std::chrono::hours(30));
  EXPECT_TRUE(write(**tier, sequence, 1));
  EXPECT_EQ(write(**tier, sequence, 2).error().code(), Code::kRateLimited);
}

}  // namespace
}  // namespace stator::storage
