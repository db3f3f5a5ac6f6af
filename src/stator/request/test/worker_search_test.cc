// SPDX-License-Identifier: Apache-2.0
#include "stator/request/worker_search.h"

#include "stator/request/test/run_fixture.h"

namespace stator::request {
namespace {

using namespace std::chrono_literals;
using continuity::Loss;
using testing::ElementsAre;
using testing::IsEmpty;

class WorkerSearchTest : public RunFixture {
 protected:
  static Error unavailable(std::string text) { return {Code::kUnavailable, std::move(text)}; }
  /// What the request is to fail with.
  std::string failure() {
    std::string text;
    for (const Action& action : out_) {
      text = action.kind == Kind::kFail ? action.error->message() : text;
    }
    return text;
  }
  void lose(TimePoint at) {
    search_.note({.at = at, .worker = WorkerId(1), .why = "it went silent"}, {WorkerId(1), 0},
                 out_);
  }

  WorkerSearch search_;
  continuity::Journal journal_{journal(&stop_)};
};

TEST_F(WorkerSearchTest, ANewRequestFailsWithWhatTheRouterSays) {
  search_.look(std::nullopt, out_);
  EXPECT_TRUE(search_.active());

  search_.on_nobody(unavailable("no worker"), journal_, recovery_, now_, out_);

  EXPECT_EQ(failure(), "no worker");
  EXPECT_FALSE(search_.parked());
}

TEST_F(WorkerSearchTest, WhatLostAWorkerWaitsAndThenFailsWithItsLoss) {
  lose(now_);
  search_.look(unavailable("worker 1 was lost"), out_);
  asked();

  search_.on_nobody(unavailable("no worker"), journal_, recovery_, now_ + 9s, out_);
  EXPECT_TRUE(search_.parked());
  EXPECT_TRUE(search_.waits());
  EXPECT_THAT(asked(), ElementsAre(Kind::kPark));
  auto cause = search_.take_parked();
  ASSERT_TRUE(cause.has_value());
  search_.look_after_loss(std::move(*cause), journal_, recovery_, now_ + 9s, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute));
  search_.on_nobody(unavailable("no worker"), journal_, recovery_, now_ + 10s, out_);

  EXPECT_EQ(failure(), "worker 1 was lost");
}

TEST_F(WorkerSearchTest, WhatNoWorkerWouldTakeDoesNotWait) {
  lose(now_);
  search_.look(std::nullopt, out_);

  search_.on_nobody(Error(Code::kInvalidArgument, "too long"), journal_, recovery_, now_, out_);

  EXPECT_EQ(failure(), "too long");
}

TEST_F(WorkerSearchTest, TheCauseIsForgottenWhenAWorkerIsFoundAndKeptWhileAPromptIsComputed) {
  search_.look(unavailable("lost"), out_);
  search_.rest();
  EXPECT_FALSE(search_.active());
  search_.look(std::nullopt, out_);
  search_.on_nobody(unavailable("no worker"), journal_, recovery_, now_, out_);
  EXPECT_EQ(failure(), "lost");

  out_.clear();
  search_.look(unavailable("lost"), out_);
  search_.found();
  search_.look(std::nullopt, out_);
  search_.on_nobody(unavailable("no worker"), journal_, recovery_, now_, out_);
  EXPECT_EQ(failure(), "no worker");
}

TEST_F(WorkerSearchTest, TheFirstLossCountsUntilTheMoveEnds) {
  lose(now_);
  lose(now_ + 1s);
  EXPECT_EQ(search_.lost()->at, now_);
  asked();

  search_.end_move(MigrationOutcome::kSuccess, {WorkerId(2), 0}, out_);
  search_.end_move(MigrationOutcome::kSuccess, {WorkerId(2), 0}, out_);

  EXPECT_THAT(asked(), ElementsAre(Kind::kRecovered));
  EXPECT_FALSE(search_.lost().has_value());
}

TEST_F(WorkerSearchTest, WithoutAPlaceForALaterMoveItWaits) {
  Recovery crowded({.migration_wait = 10s}, random_);
  std::vector<WorkerSearch> others(10);
  const auto lost_twice = [this](continuity::Journal& journal) {
    for (int i = 0; i < 2; ++i) {
      recovery_.judge(journal, Loss::kHandedOff, {});
      recovery_.judge(journal, Loss::kFailed, {WorkerId(1), 0});
    }
  };
  for (WorkerSearch& other : others) {
    continuity::Journal journal(RunFixture::journal(&stop_));
    lost_twice(journal);
    other.look_after_loss(unavailable("lost"), journal, crowded, now_, out_);
  }
  lost_twice(journal_);
  lose(now_);
  asked();

  search_.look_after_loss(unavailable("lost"), journal_, crowded, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kCount, Kind::kPark));
  others.clear();  // their places with them
  search_.look_after_loss(*search_.take_parked(), journal_, crowded, now_, out_);
  EXPECT_THAT(asked(), ElementsAre(Kind::kRoute));
  search_ = WorkerSearch();  // gives its place back while who gave it is there
}

TEST_F(WorkerSearchTest, AfterItsEndNothingIsHeld) {
  search_.look(unavailable("lost"), out_);
  search_.park(unavailable("lost"), 1s, out_);

  search_.end();

  EXPECT_FALSE(search_.active());
  EXPECT_FALSE(search_.waits());
  EXPECT_FALSE(search_.take_parked().has_value());
}

}  // namespace
}  // namespace stator::request
