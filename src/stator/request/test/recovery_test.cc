// SPDX-License-Identifier: Apache-2.0
#include "stator/request/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stator::request {
namespace {

using namespace std::chrono_literals;
using continuity::Journal;
using continuity::Loss;
using testing::HasSubstr;

constexpr TimePoint kStart{100s};
constexpr WorkerKey kWorker{WorkerId(1), 0};

class RecoveryTest : public ::testing::Test {
 protected:
  /// One that was lost so often by a worker's fault.
  static Journal moved(int times) {
    Journal journal({.prompt_tokens = 4, .limits = {.migrations_max = 100}});
    for (int i = 0; i < times; ++i) {
      journal.lose(Loss::kFailed, kWorker);
    }
    return journal;
  }
  Random random_{7};
  Recovery recovery_{{.poison_workers = 2,
                      .migration_wait = 10s,
                      .accept_timeout = 5s,
                      .stream_idle_timeout = 60s,
                      .stall_timeout = 20s},
                     random_};
};

TEST_F(RecoveryTest, ARequestThatKillsWorkersIsNotMovedOn) {
  Journal journal({.prompt_tokens = 4, .limits = {.migrations_max = 100}});

  EXPECT_EQ(recovery_.judge(journal, Loss::kVanished, kWorker), Journal::Step::kResubmit);
  EXPECT_FALSE(recovery_.is_poison(journal));
  EXPECT_EQ(recovery_.judge(journal, Loss::kVanished, kWorker), Journal::Step::kResubmit);
  EXPECT_EQ(recovery_.judge(journal, Loss::kVanished, {WorkerId(2), 0}), Journal::Step::kGiveUp);
  EXPECT_TRUE(recovery_.is_poison(journal));
}

TEST_F(RecoveryTest, FirstMovesAreFreeAndLaterOnesAPartOfWhatRuns) {
  std::vector<RetryPlace> places;
  recovery_.set_running(100);
  const Journal second = moved(2);
  for (int i = 0; i < 20; ++i) {
    auto place = recovery_.take_place(second);
    ASSERT_TRUE(place.has_value());
    EXPECT_FALSE(place->empty());
    places.push_back(std::move(*place));
  }
  EXPECT_FALSE(recovery_.take_place(second).has_value());
  EXPECT_TRUE(recovery_.take_place(moved(1))->empty());
  places.pop_back();
  EXPECT_TRUE(recovery_.take_place(second).has_value());
}

TEST_F(RecoveryTest, ASmallShardMayMoveTenAtOnce) {
  std::vector<RetryPlace> places;
  recovery_.set_running(1);
  for (int i = 0; i < 10; ++i) {
    places.push_back(*recovery_.take_place(moved(2)));
  }
  EXPECT_FALSE(recovery_.take_place(moved(2)).has_value());
  places[0] = RetryPlace();
  EXPECT_TRUE(recovery_.take_place(moved(2)).has_value());
}

TEST_F(RecoveryTest, TheFirstMoveIsAtOnceAndLaterOnesWaitABit) {
  EXPECT_EQ(recovery_.backoff(moved(1), Loss::kFailed, true), Duration::zero());
  Duration longest{};
  for (int i = 0; i < 200; ++i) {
    const Duration wait = recovery_.backoff(moved(3), Loss::kFailed, true);
    longest = std::max(longest, wait);
    EXPECT_LE(wait, 200ms);
  }
  EXPECT_GT(longest, Duration::zero());
}

TEST_F(RecoveryTest, PatienceEndsWithTheTimeSinceTheLoss) {
  const LostWorker lost{.at = kStart};
  EXPECT_TRUE(recovery_.has_patience(lost, kStart + 9s));
  EXPECT_FALSE(recovery_.has_patience(lost, kStart + 10s));
  EXPECT_FALSE(recovery_.has_patience(std::nullopt, kStart));
}

TEST_F(RecoveryTest, SilenceIsMeasuredByWhatIsKnown) {
  const Recovery::Signs taken{.worker = WorkerId(3), .submitted = kStart, .accepted = true};
  Recovery::Signs signs = taken;
  signs.accepted = false;
  EXPECT_EQ(recovery_.stalled(signs, kStart + 4s), std::nullopt);
  EXPECT_THAT(*recovery_.stalled(signs, kStart + 5s), HasSubstr("frontend.accept_timeout"));

  signs = taken;  // a long prompt takes its time
  EXPECT_EQ(recovery_.stalled(signs, kStart + 59s), std::nullopt);
  EXPECT_THAT(*recovery_.stalled(signs, kStart + 60s), HasSubstr("stream_idle_timeout"));

  signs = taken;
  signs.fresh = false;
  signs.last_token = kStart + 1s;
  EXPECT_EQ(recovery_.stalled(signs, kStart + 20s), std::nullopt);
  EXPECT_THAT(*recovery_.stalled(signs, kStart + 21s), HasSubstr("worker 3 went silent"));
  signs.heard = kStart + 10s;
  EXPECT_EQ(recovery_.stalled(signs, kStart + 29s), std::nullopt);
  EXPECT_THAT(*recovery_.stalled(signs, kStart + 30s), HasSubstr("stall_timeout"));
}

TEST_F(RecoveryTest, WithoutLimitsNothingStalls) {
  Recovery patient({}, random_);
  const Recovery::Signs signs{.worker = WorkerId(3), .submitted = kStart};
  EXPECT_EQ(patient.stalled(signs, kStart + 1000h), std::nullopt);
  EXPECT_FALSE(patient.prompt_stalled(kStart, std::nullopt, kStart + 1000h));
}

TEST_F(RecoveryTest, APromptsWorkerHasFourTimesAsLong) {
  EXPECT_FALSE(recovery_.prompt_stalled(kStart, std::nullopt, kStart + 79s));
  EXPECT_TRUE(recovery_.prompt_stalled(kStart, std::nullopt, kStart + 80s));
  EXPECT_FALSE(recovery_.prompt_stalled(kStart, kStart + 10s, kStart + 80s));
}

}  // namespace
}  // namespace stator::request
