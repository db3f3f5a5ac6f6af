// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/detail/replay_cursor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace stator::kv_events::detail {
namespace {

/// Steps as text: payloads as they are, "!" for a reset, "?n" for a replay from n.
std::string show(const ReplayCursor::Steps& steps) {
  std::string text;
  for (const auto& step : steps) {
    text += text.empty() ? "" : " ";
    if (const auto* deliver = std::get_if<ReplayCursor::Deliver>(&step)) {
      text += deliver->payload;
    } else if (const auto* ask = std::get_if<ReplayCursor::AskReplay>(&step)) {
      text += "?" + std::to_string(ask->from);
    } else {
      text += "!";
    }
  }
  return text;
}

/// A cursor that knows "a" to the given number, live.
ReplayCursor live_cursor(uint64_t last) {
  ReplayCursor cursor(true);
  EXPECT_EQ(show(cursor.on_connected()), "?0");
  for (uint64_t i = 0; i <= last; ++i) {
    EXPECT_EQ(show(cursor.on_replay(i, "a" + std::to_string(i))), "a" + std::to_string(i));
  }
  EXPECT_EQ(show(cursor.on_replay_end()), "");
  return cursor;
}

TEST(ReplayCursor, HistoryComesFirstThenWhatWaited) {
  ReplayCursor cursor(true);

  EXPECT_EQ(show(cursor.on_connected()), "?0");
  EXPECT_EQ(show(cursor.on_live(1, "b")), "");
  EXPECT_EQ(show(cursor.on_live(2, "c")), "");
  EXPECT_EQ(show(cursor.on_replay(0, "a")), "a");
  EXPECT_EQ(show(cursor.on_replay(1, "b")), "b");
  EXPECT_EQ(show(cursor.on_replay_end()), "c");
  EXPECT_EQ(show(cursor.on_live(3, "d")), "d");
  EXPECT_EQ(cursor.stats().resets, 0U);
}

TEST(ReplayCursor, AGapIsRepairedFromTheLastDeliveredMessage) {
  ReplayCursor cursor = live_cursor(1);

  EXPECT_EQ(show(cursor.on_live(4, "a4")), "?1");
  EXPECT_EQ(show(cursor.on_replay(1, "a1")), "");
  EXPECT_EQ(show(cursor.on_replay(2, "a2")), "a2");
  EXPECT_EQ(show(cursor.on_replay(3, "a3")), "a3");
  EXPECT_EQ(show(cursor.on_replay_end()), "a4");
  EXPECT_EQ(cursor.stats().gaps, 1U);
  EXPECT_EQ(cursor.stats().resets, 0U);
}

TEST(ReplayCursor, ANumberThatGoesBackIsARestart) {
  ReplayCursor cursor = live_cursor(1);
  EXPECT_EQ(show(cursor.on_live(2, "a2")), "a2");

  EXPECT_EQ(show(cursor.on_live(0, "b0")), "! ?0");
  EXPECT_EQ(show(cursor.on_replay(0, "b0")), "b0");
  EXPECT_EQ(show(cursor.on_replay_end()), "");
  EXPECT_EQ(cursor.stats().restarts, 1U);
}

TEST(ReplayCursor, AnotherLifeThatGotFurtherIsSeenByItsContent) {
  ReplayCursor cursor = live_cursor(1);

  EXPECT_EQ(show(cursor.on_connected()), "?1");
  EXPECT_EQ(show(cursor.on_replay(1, "b1")), "! ?0");
  EXPECT_EQ(show(cursor.on_replay(0, "b0")), "b0");
  EXPECT_EQ(show(cursor.on_replay(1, "b1")), "b1");
  EXPECT_EQ(show(cursor.on_replay_end()), "");
  EXPECT_EQ(cursor.stats().restarts, 1U);
}

TEST(ReplayCursor, AnotherLifeThatIsNotThatFarIsSeenByItsSilence) {
  ReplayCursor cursor = live_cursor(5);

  EXPECT_EQ(show(cursor.on_connected()), "?5");
  EXPECT_EQ(show(cursor.on_replay_end()), "! ?0");
  EXPECT_EQ(show(cursor.on_replay(0, "b0")), "b0");
}

TEST(ReplayCursor, TheSameLifeGoesOnAfterANewConnection) {
  ReplayCursor cursor = live_cursor(1);

  EXPECT_EQ(show(cursor.on_connected()), "?1");
  EXPECT_EQ(show(cursor.on_replay(1, "a1")), "");
  EXPECT_EQ(show(cursor.on_replay(2, "a2")), "a2");
  EXPECT_EQ(show(cursor.on_replay_end()), "");
  EXPECT_EQ(cursor.stats().resets, 0U);
}

TEST(ReplayCursor, AReplayThatForgotWhereWeWereVoidsHistory) {
  ReplayCursor cursor = live_cursor(1);

  EXPECT_EQ(show(cursor.on_live(9, "a9")), "?1");
  EXPECT_EQ(show(cursor.on_replay(7, "a7")), "! ?0");
  EXPECT_EQ(show(cursor.on_replay(7, "a7")), "a7");
  EXPECT_EQ(show(cursor.on_replay(8, "a8")), "a8");
  EXPECT_EQ(show(cursor.on_replay_end()), "a9");
  EXPECT_EQ(cursor.stats().restarts, 0U);
}

TEST(ReplayCursor, WithoutReplayAGapAndANewConnectionVoidHistory) {
  ReplayCursor cursor(false);
  EXPECT_EQ(show(cursor.on_connected()), "");
  EXPECT_EQ(show(cursor.on_live(4, "a4")), "a4");

  EXPECT_EQ(show(cursor.on_live(6, "a6")), "! a6");
  EXPECT_EQ(show(cursor.on_connected()), "!");
  EXPECT_EQ(show(cursor.on_live(7, "b7")), "b7");
  EXPECT_EQ(show(cursor.on_live(3, "c3")), "! c3");
}

TEST(ReplayCursor, AnEndpointThatDoesNotAnswerVoidsHistoryOnce) {
  ReplayCursor fresh(true);
  fresh.on_connected();
  fresh.on_live(3, "a3");
  EXPECT_EQ(show(fresh.on_replay_failed()), "a3");

  ReplayCursor cursor = live_cursor(1);
  cursor.on_live(5, "a5");
  EXPECT_EQ(show(cursor.on_replay_failed()), "! a5");
  EXPECT_EQ(show(cursor.on_live(6, "a6")), "a6");
}

TEST(ReplayCursor, ReplaysThatBringNothingEndInAnAcceptedGap) {
  ReplayCursor cursor = live_cursor(1);
  EXPECT_EQ(show(cursor.on_live(5, "a5")), "?1");

  for (uint32_t i = 1; i < ReplayCursor::kFruitlessMax; ++i) {
    cursor.on_replay(1, "a1");
    EXPECT_EQ(show(cursor.on_replay_end()), "?1");
  }
  cursor.on_replay(1, "a1");

  EXPECT_EQ(show(cursor.on_replay_end()), "! a5");
}

TEST(ReplayCursor, InQuietTheNewestMessageIsAskedForAndSilenceVoidsNothing) {
  ReplayCursor cursor = live_cursor(1);

  EXPECT_EQ(show(cursor.on_quiet()), "?1");
  EXPECT_EQ(show(cursor.on_replay(1, "a1")), "");
  EXPECT_EQ(show(cursor.on_replay(2, "a2")), "a2");
  EXPECT_EQ(show(cursor.on_replay_end()), "");

  EXPECT_EQ(show(cursor.on_quiet()), "?2");
  EXPECT_EQ(show(cursor.on_replay_failed()), "");
  EXPECT_EQ(show(cursor.on_live(3, "a3")), "a3");
  EXPECT_EQ(show(ReplayCursor(false).on_quiet()), "");
}

TEST(ReplayCursor, WhatWaitsIsBoundedAndAskedForAgain) {
  ReplayCursor cursor = live_cursor(0);
  const uint64_t last = ReplayCursor::kWaitingMax + 100;
  for (uint64_t i = 2; i <= last; ++i) {
    cursor.on_live(i, "a" + std::to_string(i));
  }
  EXPECT_EQ(cursor.waiting(), ReplayCursor::kWaitingMax);

  cursor.on_replay(0, "a0");
  cursor.on_replay(1, "a1");
  EXPECT_EQ(cursor.on_replay_end().size(), ReplayCursor::kWaitingMax);
  const uint64_t next = last + 1;
  const std::string repair = show(cursor.on_live(next, "a" + std::to_string(next)));

  EXPECT_EQ(repair, "?" + std::to_string(ReplayCursor::kWaitingMax + 1));
}

/// A publisher that restarts, whose messages get lost, whose memory is short; checked against what
/// it really said: what was delivered since the last reset is a contiguous piece of one life.
TEST(ReplayCursor, NeverMixesLivesNorSkipsWhateverHappens) {
  const char* given = ::getenv("STATOR_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : 20'261'122;
  SCOPED_TRACE("STATOR_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto chance = [&](uint64_t percent) { return random() % 100 < percent; };
  ReplayCursor cursor(true);
  uint64_t life = 0;
  std::vector<std::string> said;
  std::vector<std::string> known;
  std::optional<uint64_t> asked;
  const auto take = [&](const ReplayCursor::Steps& steps) {
    for (const auto& step : steps) {
      if (const auto* deliver = std::get_if<ReplayCursor::Deliver>(&step)) {
        known.push_back(deliver->payload);
      } else if (const auto* ask = std::get_if<ReplayCursor::AskReplay>(&step)) {
        asked = ask->from;
      } else {
        known.clear();
      }
    }
  };
  const auto replay = [&] {
    const uint64_t from = std::max<uint64_t>(*asked, said.size() > 50 ? said.size() - 50 : 0);
    asked.reset();
    for (uint64_t i = from; i < said.size() && !asked; ++i) {
      take(cursor.on_replay(i, said[i]));
    }
    if (!asked) {
      take(cursor.on_replay_end());
    }
  };
  take(cursor.on_connected());
  for (int round = 0; round < 200'000; ++round) {
    if (chance(1)) {
      ++life;
      said.clear();
    }
    if (said.empty() || chance(5)) {
      take(cursor.on_connected());
    }
    said.push_back(std::to_string(life) + ":" + std::to_string(said.size()));
    if (!chance(10)) {
      take(cursor.on_live(said.size() - 1, said.back()));
    }
    if (asked && chance(50)) {
      replay();
    }
    if (round % 1000 == 999) {  // quiet: the newest message has been seen
      take(cursor.on_connected());
      for (int i = 0; i < 5 && asked; ++i) {
        replay();
      }
      ASSERT_FALSE(known.empty());
      ASSERT_EQ(known.back(), said.back());
      const size_t first = said.size() - known.size();
      for (size_t i = 0; i < known.size(); ++i) {
        ASSERT_EQ(known[i], said[first + i]) << "round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace stator::kv_events::detail
