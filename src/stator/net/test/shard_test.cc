// SPDX-License-Identifier: Apache-2.0
#include "stator/net/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace stator::net {
namespace {

using std::chrono::milliseconds;

struct ShardTest : testing::Test {
  SystemClock clock;
  Metrics metrics;
  ShardSet shards{2, clock, metrics};
  Shard& shard = shards.shard(0);
};

struct RecordingHook : TurnHook {
  RecordingHook(std::string& log_in, char name_in) : log(log_in), name(name_in) {}
  void on_turn_end() override { log += name; }
  std::string& log;
  char name;
};

TEST_F(ShardTest, RunsPostedTasksInOrderOnItsOwnThread) {
  std::vector<int> ran;
  bool on_loop = true;
  std::latch done(1);
  shards.start();

  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(shard.post([&ran, i] { ran.push_back(i); }));
  }
  ASSERT_TRUE(shard.post([&] {
    on_loop = shard.on_loop() && !shards.shard(1).on_loop();
    done.count_down();
  }));
  done.wait();

  EXPECT_TRUE(on_loop);
  EXPECT_FALSE(shard.on_loop());
  ASSERT_EQ(ran.size(), 1000U);
  EXPECT_TRUE(std::ranges::is_sorted(ran));
}

TEST_F(ShardTest, LosesNoTaskWhenManyThreadsPost) {
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  int ran = 0;  // loop only
  shards.start();
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("poster", [&] {
        for (int i = 0; i < kEach; ++i) {
          ASSERT_TRUE(shard.post([&ran] { ++ran; }));
        }
      });
    }
  }

  shards.stop();

  EXPECT_EQ(ran, kThreads * kEach);
}

TEST_F(ShardTest, RefusesTasksBeyondTheBoundAndCountsThem) {
  int ran = 0;
  for (size_t i = 0; i < Shard::kInboxMax; ++i) {
    ASSERT_TRUE(shard.post([&ran] { ++ran; }));
  }

  EXPECT_FALSE(shard.post([&ran] { ++ran; }));

  EXPECT_NE(metrics.render().find("stator_shard_inbox_full_total 1\n"), std::string::npos);
  shards.start();
  shards.stop();
  EXPECT_EQ(ran, static_cast<int>(Shard::kInboxMax));
}

TEST_F(ShardTest, LeavesMessagesBeyondAThousandForTheNextTurn) {
  constexpr size_t kTasks = 5000;
  std::vector<size_t> order;
  struct Hook : TurnHook {
    explicit Hook(const std::vector<size_t>& order_in) : order(order_in) {}
    void on_turn_end() override { turns.push_back(order.size()); }
    const std::vector<size_t>& order;
    std::vector<size_t> turns;
  };
  Hook hook(order);
  shard.add_turn_hook(TurnPhase::kFlush, hook);
  for (size_t i = 0; i < kTasks; ++i) {
    ASSERT_TRUE(shard.post([&order, i] { order.push_back(i); }));
  }
  shards.start();
  ASSERT_TRUE(shard.run_and_wait([] {}));  // behind all of them
  shards.stop();

  ASSERT_EQ(order.size(), kTasks);
  EXPECT_TRUE(std::ranges::is_sorted(order));
  size_t before = 0;
  for (const size_t after : hook.turns) {
    EXPECT_LE(after - before, 1024U);
    before = after;
  }
  EXPECT_NE(metrics.render().find("stator_shard_long_turns_total 4\n"), std::string::npos)
      << metrics.render();
}

TEST_F(ShardTest, StopRunsWhatIsQueuedAndRefusesTheRest) {
  std::atomic<int> ran = 0;
  shards.start();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(shard.post([&] { ++ran; }));
  }

  shards.stop();

  EXPECT_EQ(ran, 100);
  EXPECT_FALSE(shard.post([] {}));
  shards.stop();
}

TEST_F(ShardTest, ATaskMayPostToItsOwnShard) {
  std::latch done(1);
  shards.start();

  ASSERT_TRUE(shard.post([&] { EXPECT_TRUE(shard.post([&] { done.count_down(); })); }));

  done.wait();
}

TEST_F(ShardTest, RunAndWaitRunsInlineWithoutALoop) {
  bool ran = false;
  EXPECT_TRUE(shard.run_and_wait([&] { ran = true; }));
  EXPECT_TRUE(ran);
}

TEST_F(ShardTest, RunAndWaitReturnsAfterTheTaskRanOnTheLoop) {
  shards.start();
  bool on_loop = false;

  EXPECT_TRUE(shard.run_and_wait([&] {
    on_loop = shard.on_loop();
    EXPECT_TRUE(shard.run_and_wait([] {})) << "from the loop itself it runs inline";
  }));

  EXPECT_TRUE(on_loop);
}

TEST_F(ShardTest, TimersRunOnTheLoopInOrderAndCancelledOnesDoNot) {
  std::vector<int> ran;
  std::latch done(1);
  std::vector<Timer> timers;
  shards.start();

  ASSERT_TRUE(shard.run_and_wait([&] {
    timers.push_back(shard.after(milliseconds(250), [&] {
      ran.push_back(2);
      done.count_down();
    }));
    timers.push_back(shard.after(milliseconds(2), [&] { ran.push_back(1); }));
    const Timer dropped = shard.after(milliseconds(1), [&] { ran.push_back(0); });
  }));
  done.wait();
  ASSERT_TRUE(shard.run_and_wait([&] { timers.clear(); }));

  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST_F(ShardTest, ATimerThatIsAlwaysDueDoesNotStarveMessages) {
  shards.start();
  Timer timer;
  std::function<void()> rearm = [&] { timer = shard.after(Duration::zero(), [&] { rearm(); }); };

  ASSERT_TRUE(shard.run_and_wait([&] { rearm(); }));
  ASSERT_TRUE(shard.run_and_wait([&] { timer.cancel(); }));
}

TEST_F(ShardTest, HooksRunProducersBeforeFlushersWhateverTheOrderOfAdding) {
  std::string log;
  RecordingHook flush(log, 'f');
  RecordingHook produce(log, 'p');
  shard.add_turn_hook(TurnPhase::kFlush, flush);
  shard.add_turn_hook(TurnPhase::kProduce, produce);
  shards.start();

  shards.stop();

  ASSERT_GE(log.size(), 2U);
  EXPECT_EQ(log.substr(0, 2), "pf");
}

TEST_F(ShardTest, ARemovedHookIsNotCalledAgain) {
  std::string log;
  RecordingHook hook(log, 'x');
  shard.add_turn_hook(TurnPhase::kProduce, hook);
  shard.remove_turn_hook(hook);
  shards.start();

  shards.stop();

  EXPECT_EQ(log, "");
}

TEST_F(ShardTest, MeasuresItsOwnPunctuality) {
  shards.start();
  shards.stop();

  EXPECT_NE(metrics.render().find("stator_event_loop_delay_seconds_count 2\n"), std::string::npos);
}

}  // namespace
}  // namespace stator::net
