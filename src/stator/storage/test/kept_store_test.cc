// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/kept_store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <filesystem>

#include "stator/net/thread.h"
#include "stator/storage/aligned_buffer.h"
#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

constexpr size_t kBlock = 4096;
constexpr uint64_t kBytes = 8 * (BlockHeader::kBytes + kBlock);

class KeptStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = testing::TempDir() + "stator_kept_XXXXXX";
    folder_ = ::mkdtemp(made.data());
    keeper_ = net::Thread("keeper", [this] {
      serve_kept_memory(
          {.socket = socket(), .bytes_max = 4 * kBytes}, [this] { return stop_.load(); }, clock_)
          .ignore("a test's keeper");
    });
    while (!KeptMemory::take(socket(), "probe", 1)) {
    }
  }
  void TearDown() override {
    stop_ = true;
    keeper_.join();
    std::filesystem::remove_all(folder_);
  }

  std::string socket() const { return folder_ + "/keeper"; }
  /// As an engine does it at its start; what used the name before must be gone.
  std::unique_ptr<KeptStore> open(const Digest& space = test_space(), uint64_t bytes = kBytes) {
    while (true) {  // the keeper hears of a closed line a moment later
      auto memory = KeptMemory::take(socket(), "engine", bytes);
      if (memory) {
        return std::move(*KeptStore::open(std::move(*memory), space, kBlock));
      }
      EXPECT_EQ(memory.error().code(), Code::kAlreadyExists);
    }
  }
  static std::vector<std::byte> record(const TestSequence& sequence, size_t block,
                                       uint64_t when = 1) {
    const auto payload = sequence.payload(block, kBlock);
    BlockHeader header = describe_payload(payload, sequence.tokens_of(block));
    header.space = test_space();
    header.name = sequence.names[block];
    header.parent = sequence.parent(block);
    header.unix_ms = when;
    std::vector<std::byte> out(BlockHeader::kBytes + kBlock);
    encode(header, std::span(out).first(BlockHeader::kBytes));
    std::ranges::copy(payload, out.begin() + BlockHeader::kBytes);
    return out;
  }

  std::string folder_;
  SystemClock clock_;
  std::atomic<bool> stop_{false};
  net::Thread keeper_;
};

TEST_F(KeptStoreTest, WhatWasPutIsThereForTheNextProcess) {
  const TestSequence sequence(3, 100, test_space());
  {
    const auto store = open();
    EXPECT_EQ(store->recovered(), 0);
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(store->put(sequence.names[i], record(sequence, i)));
    }
    EXPECT_EQ(store->put(sequence.names[0], record(sequence, 0)).error().code(),
              Code::kAlreadyExists);
  }
  const auto store = open();

  EXPECT_EQ(store->recovered(), 3);
  EXPECT_EQ(*store->count(sequence.names), 3);
  std::vector<std::byte> got(BlockHeader::kBytes + kBlock);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(store->get(sequence.names[i], got));
    EXPECT_EQ(got, record(sequence, i));
  }
}

TEST_F(KeptStoreTest, OneProcessAtATimeUsesAName) {
  const auto store = open();

  const auto second = KeptMemory::take(socket(), "engine", kBytes);

  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_TRUE(KeptMemory::take(socket(), "other", kBytes));
}

TEST_F(KeptStoreTest, ASlotWhoseWritingBrokeOffHoldsNothing) {
  const TestSequence sequence(2, 100, test_space());
  {
    const auto store = open();
    ASSERT_TRUE(store->put(sequence.names[0], record(sequence, 0)));
    ASSERT_TRUE(store->put(sequence.names[1], record(sequence, 1)));
  }
  {
    auto memory = KeptMemory::take(socket(), "engine", kBytes);
    while (!memory) {
      memory = KeptMemory::take(socket(), "engine", kBytes);
    }
    std::memset(memory->bytes().data() + BlockHeader::kBytes + kBlock, 0, 64);  // of the second one
  }
  const auto store = open();

  EXPECT_EQ(store->recovered(), 1);
  EXPECT_EQ(*store->count(sequence.names), 1);
}

TEST_F(KeptStoreTest, BlocksOfAnotherModelAreNotFoundAndMakeRoom) {
  const TestSequence sequence(4, 100, test_space());
  {
    const auto store = open();
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(store->put(sequence.names[i], record(sequence, i)));
    }
  }
  const auto store = open(test_space("other"));

  EXPECT_EQ(store->recovered(), 0);
  EXPECT_EQ(*store->count(sequence.names), 0);
}

TEST_F(KeptStoreTest, WhenItIsFullTheOldestChainsGo) {
  const auto store = open();
  for (TokenId first = 0; first < 12; ++first) {
    const TestSequence sequence(1, first * 100 + 1, test_space());
    ASSERT_TRUE(store->put(sequence.names[0], record(sequence, 0)));
  }

  EXPECT_EQ(store->stored(), store->slots());
  EXPECT_EQ(*store->count(TestSequence(1, 1, test_space()).names), 0);
  EXPECT_EQ(*store->count(TestSequence(1, 1101, test_space()).names), 1);
}

TEST_F(KeptStoreTest, NonsenseEndsALineAndNothingElse) {
  const auto store = open();
  const std::string head("STKEEP1\0\x01\0\0\0\0\0\0\0", 16);
  for (const std::string& nonsense :
       {std::string("x"), head, std::string(4096, 'y'), "STKEEP2" + head.substr(7) + "name",
        head + std::string(201, 'n')}) {
    const io::FileDescriptor line(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::ranges::copy(socket(), address.sun_path);
    ASSERT_EQ(::connect(line.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    ASSERT_EQ(::send(line.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(nonsense.size()));
    char byte = 0;
    EXPECT_EQ(::recv(line.get(), &byte, 1, 0), 0) << "the keeper hangs up";
  }
  EXPECT_TRUE(KeptMemory::take(socket(), "other", kBytes));
}

TEST_F(KeptStoreTest, ThereIsALimitOfBytes) {
  const auto big = KeptMemory::take(socket(), "big", 5 * kBytes);

  ASSERT_FALSE(big);
  EXPECT_EQ(big.error().code(), Code::kOverloaded);
  EXPECT_EQ(KeptMemory::take(folder_ + "/nobody", "x", 1).error().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace stator::storage
