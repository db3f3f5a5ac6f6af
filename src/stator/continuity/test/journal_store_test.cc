// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/journal_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::continuity {
namespace {

using namespace std::chrono_literals;
using Place = JournalStore::Place;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr StreamId kA{.high = 1, .low = 1};
constexpr StreamId kB{.high = 1, .low = 2};
constexpr TimePoint kNow{};

TEST(JournalStore, KeepsPartsInOrder) {
  JournalStore store({});
  EXPECT_TRUE(store.append(kA, Place::kBegin, "a0", kNow));
  EXPECT_TRUE(store.append(kB, Place::kBegin, "b0", kNow));
  EXPECT_TRUE(store.append(kA, Place::kEnd, "a1", kNow));
  EXPECT_THAT(store.read(kA), ElementsAre("a0", "a1"));
  EXPECT_THAT(store.read(kB), ElementsAre("b0"));
  EXPECT_EQ(store.streams(), 2U);
}

TEST(JournalStore, ACopyHasItsBeginningOrIsNotHere) {
  JournalStore store({});
  EXPECT_EQ(store.append(kA, Place::kEnd, "a1", kNow).error().code(), Code::kNotFound);
  EXPECT_THAT(store.read(kA), IsEmpty());
  EXPECT_TRUE(store.append(kA, Place::kBegin, "a0", kNow));
  EXPECT_EQ(store.append(kA, Place::kBegin, "x", kNow).error().code(), Code::kAlreadyExists);
  EXPECT_THAT(store.read(kA), ElementsAre("a0"));
}

TEST(JournalStore, WithoutRoomTheStreamThatAsksIsForgottenAndNoOther) {
  JournalStore store({.bytes_max = 1000});
  EXPECT_TRUE(store.append(kA, Place::kBegin, std::string(300, 'a'), kNow));
  EXPECT_TRUE(store.append(kB, Place::kBegin, std::string(300, 'b'), kNow));
  EXPECT_EQ(store.append(kA, Place::kEnd, std::string(300, 'a'), kNow).error().code(),
            Code::kOverloaded);
  EXPECT_THAT(store.read(kA), IsEmpty());
  EXPECT_EQ(store.read(kB).size(), 1U);
  EXPECT_TRUE(store.append(kB, Place::kEnd, std::string(300, 'b'), kNow)) << "there is room again";
  EXPECT_LE(store.bytes(), 1000U);
}

TEST(JournalStore, ForgetsWhatGotNothingForTooLong) {
  JournalStore store({.keep = 60s});
  EXPECT_TRUE(store.append(kA, Place::kBegin, "a0", kNow));
  EXPECT_TRUE(store.append(kB, Place::kBegin, "b0", kNow));
  EXPECT_TRUE(store.append(kB, Place::kEnd, "b1", kNow + 30s));
  store.expire(kNow + 60s);
  EXPECT_EQ(store.streams(), 2U);
  store.expire(kNow + 61s);
  EXPECT_THAT(store.read(kA), IsEmpty());
  EXPECT_EQ(store.read(kB).size(), 2U);
  store.expire(kNow + 91s);
  EXPECT_EQ(store.bytes(), 0U);
}

}  // namespace
}  // namespace stator::continuity
