// SPDX-License-Identifier: Apache-2.0
#include "stator/memory_service/ownership.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::memory_service {
namespace {

using Answer = Ownership::Answer;
using State = Ownership::State;

TEST(Ownership, AWriterThatLeavesWithoutCommitLeavesNothing) {
  Ownership lock;
  EXPECT_EQ(lock.connect(1, Mode::kWrite), Answer::kWriter);
  EXPECT_EQ(lock.state(), State::kWriting);
  EXPECT_TRUE(lock.take_cleared());
  lock.disconnect(1);
  EXPECT_EQ(lock.state(), State::kEmpty);
  EXPECT_TRUE(lock.take_cleared());
}

TEST(Ownership, ReadersComeAfterCommit) {
  Ownership lock;
  EXPECT_EQ(lock.connect(2, Mode::kRead), Answer::kWaits);
  EXPECT_EQ(lock.connect(1, Mode::kWrite), Answer::kWriter) << "the reader waits for just that";
  EXPECT_FALSE(lock.commit(2, true));
  EXPECT_TRUE(lock.commit(1, true));
  ASSERT_EQ(lock.take_granted().size(), 1U);
  EXPECT_TRUE(lock.reads(1));
  EXPECT_TRUE(lock.reads(2));
  EXPECT_EQ(lock.state(), State::kReading);
  lock.disconnect(1);
  lock.disconnect(2);
  EXPECT_EQ(lock.state(), State::kCommitted);
}

TEST(Ownership, AWaitingWriterGoesBeforeNewReaders) {
  Ownership lock;
  lock.connect(1, Mode::kWrite);
  lock.commit(1, true);
  EXPECT_EQ(lock.connect(2, Mode::kRead), Answer::kReader);
  EXPECT_EQ(lock.connect(3, Mode::kWrite), Answer::kWaits);
  EXPECT_EQ(lock.connect(4, Mode::kRead), Answer::kWaits);
  lock.disconnect(1);
  EXPECT_TRUE(lock.take_granted().empty());
  lock.take_cleared();
  lock.disconnect(2);
  const auto granted = lock.take_granted();
  ASSERT_EQ(granted.size(), 1U);
  EXPECT_EQ(granted[0].client, 3U);
  EXPECT_TRUE(lock.take_cleared()) << "the old layout";
  lock.commit(3, false);
  ASSERT_EQ(lock.take_granted().size(), 1U);
  EXPECT_TRUE(lock.reads(4));
}

TEST(Ownership, WhoeverComesFirstWritesAndTheOthersRead) {
  Ownership lock;
  EXPECT_EQ(lock.connect(1, Mode::kWriteOrRead), Answer::kWriter);
  EXPECT_EQ(lock.connect(2, Mode::kWriteOrRead), Answer::kWaits);
  EXPECT_EQ(lock.connect(3, Mode::kWriteOrRead), Answer::kWaits);
  lock.disconnect(1);  // crashed while loading: the next one loads
  auto granted = lock.take_granted();
  ASSERT_EQ(granted.size(), 1U);
  EXPECT_TRUE(granted[0].writes);
  lock.commit(2, true);
  granted = lock.take_granted();
  ASSERT_EQ(granted.size(), 1U);
  EXPECT_FALSE(granted[0].writes);
  EXPECT_EQ(lock.connect(4, Mode::kWriteOrRead), Answer::kReader);
}

TEST(Ownership, RandomUseNeverHasAWriterBesideOthers) {
  Random random(3);
  Ownership lock;
  std::set<ClientId> known;
  for (int i = 0; i < 20'000; ++i) {
    const ClientId client = random.below(12);
    const uint64_t choice = random.below(4);
    if (choice < 2 && known.insert(client).second) {
      lock.connect(client, static_cast<Mode>(random.below(3)));
    } else if (choice == 2) {
      lock.commit(client, random.below(2) == 0);
    } else if (choice == 3 && known.erase(client) > 0) {
      lock.disconnect(client);
    }
    lock.take_granted();
    size_t writers = 0;
    size_t readers = 0;
    for (const ClientId one : known) {
      writers += lock.writes(one) ? 1 : 0;
      readers += lock.reads(one) ? 1 : 0;
    }
    ASSERT_LE(writers, 1U);
    ASSERT_TRUE(writers == 0 || readers == 0);
    ASSERT_EQ(lock.state() == State::kWriting, writers == 1);
    ASSERT_EQ(lock.state() == State::kReading, readers > 0);
  }
}

}  // namespace
}  // namespace stator::memory_service
