// SPDX-License-Identifier: Apache-2.0
// `kill -9` at random points: a process writes blocks and says which are done; what the next one
// finds has the right bytes, and nothing that was done is missing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "stator/core/random.h"
#include "stator/storage/aligned_buffer.h"
#include "stator/storage/disk_tier.h"
#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

constexpr size_t kBlock = 4096;
constexpr uint32_t kRoom = 4096;  // blocks: more than are ever written, so nothing is evicted

DiskTierOptions options_for(const std::string& folder) {
  return {.folder = folder,
          .bytes = kRoom * disk_stride(kBlock),
          .block_bytes = kBlock,
          .block_tokens = TestSequence::kBlockTokens,
          .space = test_space(),
          .direct = false};
}

TestSequence sequence_of(uint32_t number) {
  return {1, static_cast<TokenId>(number * 16 + 1), test_space()};
}

/// Writes blocks `first` and later until it is killed; a byte in `done` for each that is written.
void write_until_killed(const std::string& folder, uint32_t first, int done) {
  SystemClock clock;
  Metrics metrics;
  auto tier = DiskTier::open(options_for(folder), clock, metrics);
  for (uint32_t i = first; tier && i < kRoom; ++i) {
    const TestSequence sequence = sequence_of(i);
    const auto payload = sequence.payload(0, kBlock);
    const Status written = (*tier)->write(
        {.name = sequence.names[0], .parent = {}, .tokens = sequence.tokens, .payload = payload});
    if (!written || ::write(done, "x", 1) != 1) {
      break;
    }
  }
  ::pause();
}

// STATOR_KV_KILLS=500 is the long form.
TEST(DiskKill, WhatWasWrittenBeforeAKillIsThereAndRight) {
  const char* const wanted = std::getenv("STATOR_KV_KILLS");
  const int kills = wanted == nullptr ? 8 : std::atoi(wanted);
  Random random = Random::from_entropy();
  std::string folder = testing::TempDir() + "stator_kill_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::vector<uint32_t> done;
  uint32_t next = 0;
  uint64_t served = 0;
  for (int kill = 0; kill < kills; ++kill) {
    if (next + 512 >= kRoom) {  // a new folder before this one is full
      std::filesystem::remove_all(folder);
      std::filesystem::create_directory(folder);
      done.clear();
      next = 0;
    }
    int line[2];
    ASSERT_EQ(::pipe(line), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(line[0]);
      write_until_killed(folder, next, line[1]);
      ::_exit(0);
    }
    ::close(line[1]);
    const auto most = random.next() % 256 + 1;
    uint32_t count = 0;
    char byte = 0;
    while (count < most && ::read(line[0], &byte, 1) == 1) {
      ++count;
    }
    ::usleep(static_cast<useconds_t>(random.next() % 200));  // somewhere within the next write
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ::waitpid(child, nullptr, 0);
    while (::read(line[0], &byte, 1) == 1) {
      ++count;
    }
    ::close(line[0]);
    for (uint32_t i = 0; i < count; ++i) {
      done.push_back(next + i);
    }

    SystemClock clock;
    Metrics metrics;
    const auto tier = DiskTier::open(options_for(folder), clock, metrics);
    ASSERT_TRUE(tier) << tier.error().message();
    const AlignedBuffer payload(kBlock);
    for (const uint32_t number : done) {
      const TestSequence sequence = sequence_of(number);
      ASSERT_TRUE((*tier)->read(sequence.names[0], sequence.tokens, payload.bytes()))
          << "block " << number << " was acknowledged";
      ASSERT_TRUE(std::ranges::equal(payload.bytes(), sequence.payload(0, kBlock)));
      ++served;
    }
    // What was not acknowledged may be there or not, but never with other bytes.
    next += count + 1;
    const TestSequence torn = sequence_of(next - 1);
    if ((*tier)->read(torn.names[0], torn.tokens, payload.bytes())) {
      ASSERT_TRUE(std::ranges::equal(payload.bytes(), torn.payload(0, kBlock)));
    }
  }
  std::filesystem::remove_all(folder);
  RecordProperty("kills", kills);
  RecordProperty("blocks_served", static_cast<int>(served));
}

}  // namespace
}  // namespace stator::storage
