// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/dispatcher.h"

#include <gmock/gmock.h>

#include <set>

namespace stator::loadgen {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

/// Sessions with the same number of turns, 100 ms apart, started every 10 ms.
class FakeWorkload final : public Workload {
 public:
  explicit FakeWorkload(uint64_t sessions, uint32_t turns = 1)
      : sessions_(sessions), turns_(turns) {}
  uint64_t sessions() const override { return sessions_; }
  uint32_t turns(uint64_t) const override { return turns_; }
  Turn turn(uint64_t, uint32_t turn) const override {
    return {.delay = turn == 0 ? Duration{} : milliseconds(100)};
  }
  Duration start(uint64_t session) const override { return milliseconds(10) * session; }
  void append_text(uint64_t, uint32_t, std::string&) const override {}

 private:
  uint64_t sessions_;
  uint32_t turns_;
};

constexpr auto kOk = Dispatcher::Outcome::kAnswered;
constexpr auto kFailed = Dispatcher::Outcome::kFailed;

DispatchOptions open_loop(double rate) {
  DispatchOptions options{.mode = LoadMode::kOpen};
  options.arrivals = {.pattern = ArrivalPattern::kConstant, .rate_per_s = rate};
  return options;
}

/// Takes all that is due.
std::vector<Launch> take_all(Dispatcher& dispatcher, Duration now) {
  std::vector<Launch> out;
  while (const auto next = dispatcher.take(now)) {
    out.push_back(*next);
  }
  return out;
}

TEST(Dispatcher, OfAClosedLoopKeepsEveryUserBusy) {
  const FakeWorkload workload(0);
  Dispatcher dispatcher(workload, {.mode = LoadMode::kClosed, .concurrency = 3, .requests_max = 5});

  EXPECT_EQ(take_all(dispatcher, Duration{}).size(), 3U);
  EXPECT_FALSE(dispatcher.next_due().has_value());
  dispatcher.finished(0, 0, kOk, milliseconds(7));
  EXPECT_EQ(dispatcher.next_due(), milliseconds(7));
  const auto fourth = take_all(dispatcher, milliseconds(8));
  ASSERT_EQ(fourth.size(), 1U);
  EXPECT_EQ(fourth[0].session, 3U);
  EXPECT_EQ(fourth[0].due, milliseconds(7));
}

TEST(Dispatcher, SendsNoMoreThanTheNumberAskedFor) {
  const FakeWorkload workload(0);
  Dispatcher dispatcher(workload, {.mode = LoadMode::kClosed, .concurrency = 2, .requests_max = 5});
  uint64_t launched = 0;
  for (int i = 0; i < 100 && !dispatcher.done(); ++i) {
    for (const Launch& launch : take_all(dispatcher, milliseconds(i))) {
      ++launched;
      dispatcher.finished(launch.session, launch.turn, kOk, milliseconds(i));
    }
  }

  EXPECT_EQ(launched, 5U);
  EXPECT_TRUE(dispatcher.done());
}

TEST(Dispatcher, RampsUsersUpEvenly) {
  const FakeWorkload workload(0);
  Dispatcher dispatcher(workload,
                        {.mode = LoadMode::kClosed, .concurrency = 4, .ramp = milliseconds(400)});

  EXPECT_EQ(take_all(dispatcher, milliseconds(99)).size(), 1U);
  EXPECT_EQ(dispatcher.next_due(), milliseconds(100));
  EXPECT_EQ(take_all(dispatcher, milliseconds(250)).size(), 2U);
  EXPECT_EQ(take_all(dispatcher, milliseconds(400)).size(), 1U);
}

TEST(Dispatcher, OfAnOpenLoopDoesNotWaitForAnswers) {
  const FakeWorkload workload(0);
  Dispatcher dispatcher(workload, open_loop(10));

  EXPECT_EQ(take_all(dispatcher, seconds(1)).size(), 11U);
  EXPECT_EQ(dispatcher.in_flight(), 11U);
}

TEST(Dispatcher, KeepsTheDueTimeOfWhatTheLimitHeldBack) {
  const FakeWorkload workload(0);
  DispatchOptions options = open_loop(10);
  options.in_flight_max = 1;
  Dispatcher dispatcher(workload, options);

  EXPECT_EQ(take_all(dispatcher, milliseconds(350)).size(), 1U);
  EXPECT_EQ(dispatcher.backlog(), 3U);
  EXPECT_FALSE(dispatcher.next_due().has_value());
  dispatcher.finished(0, 0, kOk, milliseconds(390));
  const auto late = dispatcher.take(milliseconds(391));
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->due, milliseconds(100));
  EXPECT_EQ(late->sendable, milliseconds(390));
  EXPECT_EQ(dispatcher.held_back(), 1U);
}

TEST(Dispatcher, DropsWhatDoesNotFitTheBacklogAndTellsEach) {
  const FakeWorkload workload(0);
  DispatchOptions options = open_loop(1000);
  options.in_flight_max = 2;
  options.backlog_max = 5;
  options.requests_max = 20;
  Dispatcher dispatcher(workload, options);

  int dropped = 0;
  int sent = 0;
  for (const Launch& launch : take_all(dispatcher, seconds(1))) {
    (launch.dropped ? dropped : sent) += 1;
    EXPECT_LE(dispatcher.backlog(), 5U);
  }

  EXPECT_EQ(sent, 2);
  EXPECT_EQ(dropped, 13);
  EXPECT_EQ(dispatcher.backlog(), 5U);
}

TEST(Dispatcher, StartsATurnWhenTheOneBeforeWasAnswered) {
  const FakeWorkload workload(1, 3);
  Dispatcher dispatcher(workload, {.mode = LoadMode::kTrace});

  ASSERT_EQ(take_all(dispatcher, Duration{}).size(), 1U);
  dispatcher.finished(0, 0, kOk, milliseconds(40));
  EXPECT_EQ(dispatcher.next_due(), milliseconds(140));
  EXPECT_FALSE(dispatcher.take(milliseconds(139)).has_value());
  const auto second = dispatcher.take(milliseconds(140));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->turn, 1U);
  dispatcher.finished(0, 1, kFailed, milliseconds(150));
  EXPECT_TRUE(dispatcher.done()) << "a failed turn ends its session";
}

TEST(Dispatcher, OfATraceKeepsItsTimes) {
  const FakeWorkload workload(4);
  Dispatcher dispatcher(workload, {.mode = LoadMode::kTrace});
  std::vector<Duration> dues;
  for (const Launch& launch : take_all(dispatcher, seconds(1))) {
    dues.push_back(launch.due);
    dispatcher.finished(launch.session, 0, kOk, seconds(1));
  }

  EXPECT_THAT(dues,
              ElementsAre(milliseconds(0), milliseconds(10), milliseconds(20), milliseconds(30)));
  EXPECT_TRUE(dispatcher.done());
}

TEST(Dispatcher, EndsAClosedLoopWhenNoSessionIsLeft) {
  const FakeWorkload workload(5);
  Dispatcher dispatcher(workload, {.mode = LoadMode::kClosed, .concurrency = 3});
  uint64_t launched = 0;
  for (int i = 0; i < 20; ++i) {
    for (const Launch& launch : take_all(dispatcher, milliseconds(i))) {
      ++launched;
      dispatcher.finished(launch.session, launch.turn, kOk, milliseconds(i));
    }
  }

  EXPECT_EQ(launched, 5U);
  EXPECT_TRUE(dispatcher.done());
}

TEST(Dispatcher, SendsNothingDueAfterTheDuration) {
  const FakeWorkload workload(0);
  DispatchOptions options = open_loop(10);
  options.duration = seconds(1);
  Dispatcher dispatcher(workload, options);

  EXPECT_EQ(take_all(dispatcher, seconds(60)).size(), 10U);
  EXPECT_FALSE(dispatcher.done());
  for (uint64_t session = 0; session < 10; ++session) {
    dispatcher.finished(session, 0, kOk, seconds(61));
  }
  EXPECT_TRUE(dispatcher.done());
}

TEST(Dispatcher, SharesOfThreadsMakeTheWholeSchedule) {
  const FakeWorkload workload(0);
  std::set<Duration> dues;
  std::set<uint64_t> sessions;
  for (uint32_t share = 0; share < 3; ++share) {
    DispatchOptions options = open_loop(10);
    options.arrivals.pattern = ArrivalPattern::kPoisson;
    options.requests_max = 10;
    options.share = share;
    options.shares = 3;
    Dispatcher dispatcher(workload, options);
    for (const Launch& launch : take_all(dispatcher, seconds(100))) {
      dues.insert(launch.due);
      sessions.insert(launch.session);
    }
  }
  DispatchOptions options = open_loop(10);
  options.arrivals.pattern = ArrivalPattern::kPoisson;
  options.requests_max = 10;
  Dispatcher whole(workload, options);
  std::set<Duration> expected;
  for (const Launch& launch : take_all(whole, seconds(100))) {
    expected.insert(launch.due);
  }

  EXPECT_EQ(dues, expected);
  EXPECT_EQ(sessions.size(), 10U);
}

TEST(Dispatcher, HandsOutTheBacklogAsDroppedWhenStopped) {
  const FakeWorkload workload(0);
  DispatchOptions options = open_loop(10);
  options.in_flight_max = 1;
  Dispatcher dispatcher(workload, options);
  ASSERT_EQ(take_all(dispatcher, milliseconds(350)).size(), 1U);

  dispatcher.stop();

  const auto rest = take_all(dispatcher, milliseconds(400));
  EXPECT_EQ(rest.size(), 3U);
  EXPECT_TRUE(std::ranges::all_of(rest, &Launch::dropped));
}

}  // namespace
}  // namespace stator::loadgen
