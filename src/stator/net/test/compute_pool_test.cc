// SPDX-License-Identifier: Apache-2.0
#include "stator/net/compute_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <vector>

namespace stator::net {
namespace {

class ComputePoolTest : public ::testing::Test {
 protected:
  using Priority = ComputePool::Priority;

  /// One thread that is busy until `release()`.
  void start_blocked(ComputePool::Config config = {}) {
    pool_ = std::make_unique<ComputePool>(config, clock_, metrics_);
    // Too long for the thread for short tasks.
    ASSERT_TRUE(pool_->submit({.bytes = config.short_bytes + 1, .run = [this] {
                                 started_.count_down();
                                 released_.wait();
                               }}));
    started_.wait();
  }
  void release() { released_.count_down(); }
  Status note(const std::string& name, Priority priority = Priority::kRequest, size_t bytes = 0) {
    return pool_->submit({.priority = priority, .bytes = bytes, .run = [this, name] {
                            order_.push_back(name);  // one thread: no lock
                          }});
  }
  /// Waits until every request submitted so far has run.
  void drain() {
    std::latch done(1);
    // The youngest of the lowest priority is the last.
    ASSERT_TRUE(
        pool_->submit({.priority = Priority::kBackground, .run = [&done] { done.count_down(); }}));
    done.wait();
  }

  SimClock clock_;
  Metrics metrics_;
  std::latch started_{1};
  std::latch released_{1};
  std::vector<std::string> order_;
  std::unique_ptr<ComputePool> pool_;
};

TEST_F(ComputePoolTest, RunsWhatIsSubmittedInOrder) {
  start_blocked();
  ASSERT_TRUE(note("a"));
  ASSERT_TRUE(note("b"));
  release();
  drain();
  EXPECT_EQ(order_, (std::vector<std::string>{"a", "b"}));
}

TEST_F(ComputePoolTest, RequestsGoBeforeBackgroundWorkWhichDoesNotStarve) {
  start_blocked();
  ASSERT_TRUE(note("background", Priority::kBackground));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(note("request"));
  }
  release();
  drain();
  ASSERT_EQ(order_.size(), 21U);
  EXPECT_EQ(order_[0], "request");
  // The blocking task was the first of eight.
  EXPECT_EQ(order_[6], "background");
}

TEST_F(ComputePoolTest, RefusesTasksBeyondItsQueue) {
  start_blocked({.threads = 1, .tasks_max = 2});
  ASSERT_TRUE(note("a"));
  ASSERT_TRUE(note("b"));
  const Status refused = note("c");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kOverloaded);
  EXPECT_NE(metrics_.render().find("stator_frontend_cpu_pool_refused_total 1"), std::string::npos);
  EXPECT_NE(metrics_.render().find("stator_frontend_cpu_pool_queue_depth 2"), std::string::npos);
  release();
}

TEST_F(ComputePoolTest, RefusesBytesBeyondItsBoundButTakesOneHugeTask) {
  start_blocked({.threads = 1, .bytes_max = 100});
  ASSERT_TRUE(note("huge", Priority::kRequest, 1000));
  EXPECT_FALSE(note("small", Priority::kRequest, 1));
  release();
}

TEST_F(ComputePoolTest, CountsWaitingBytesOnlyWhileTheyWait) {
  start_blocked({.threads = 1, .bytes_max = 100});
  ASSERT_TRUE(note("a", Priority::kRequest, 60));
  EXPECT_FALSE(note("b", Priority::kRequest, 60));
  release();
  drain();
  EXPECT_TRUE(note("b", Priority::kRequest, 60));
  drain();
  EXPECT_EQ(order_, (std::vector<std::string>{"a", "b"}));
}

TEST_F(ComputePoolTest, AClientBeyondItsShareIsRefusedAndCounted) {
  start_blocked({.threads = 1, .tasks_max = 4});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pool_->submit({.client = 7, .run = [] {}}));
  }
  const Status refused = pool_->submit({.client = 7, .run = [] {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kOverloaded);
  EXPECT_NE(refused.error().message().find("this client's"), std::string::npos);
  EXPECT_NE(metrics_.render().find("stator_frontend_cpu_pool_client_refused_total 1"),
            std::string::npos);
  EXPECT_TRUE(pool_->submit({.client = 8, .run = [] {}}));
  release();
}

TEST_F(ComputePoolTest, ShortTasksGoOnWhileALongOneRuns) {
  start_blocked({.threads = 1, .short_bytes = 1000});
  std::latch done(1);
  ASSERT_TRUE(note("long", Priority::kRequest, 1001));
  ASSERT_TRUE(pool_->submit({.bytes = 1000, .run = [&done] { done.count_down(); }}));
  done.wait();
  EXPECT_TRUE(order_.empty());
  EXPECT_EQ(pool_->idle_threads(), 0U);
  release();
  // Not drain(): the thread for short tasks would take its task before the long one has run.
  std::latch last(1);
  ASSERT_TRUE(pool_->submit(
      {.priority = Priority::kBackground, .bytes = 1001, .run = [&last] { last.count_down(); }}));
  last.wait();
  EXPECT_EQ(order_, (std::vector<std::string>{"long"}));
}

TEST_F(ComputePoolTest, StopLetsTheRunningTaskEndAndDestroysTheOthers) {
  start_blocked();
  const auto held = std::make_shared<int>(0);
  bool ran = false;
  ASSERT_TRUE(pool_->submit({.run = [held, &ran] { ran = true; }}));
  EXPECT_EQ(held.use_count(), 2);
  release();
  // Whether the thread took it before the stop is open; what counts is that nothing is left.
  pool_->stop();
  EXPECT_EQ(held.use_count(), 1);
  const Status refused = pool_->submit({.run = [] {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  pool_->stop();
}

TEST_F(ComputePoolTest, PartsRunExactlyOnceAlsoWithoutHelpers) {
  start_blocked();
  EXPECT_EQ(pool_->idle_threads(), 0U);
  std::vector<int> runs(100);
  pool_->run_parts(runs.size(), [&](size_t i) { ++runs[i]; });
  EXPECT_EQ(runs, std::vector<int>(100, 1));
  pool_->run_parts(0, [&](size_t) { FAIL() << "there is no part"; });
  release();
}

TEST_F(ComputePoolTest, PartsRunExactlyOnceWithHelpersAndFromInsideTasks) {
  pool_ = std::make_unique<ComputePool>(ComputePool::Config{.threads = 3}, clock_, metrics_);
  std::latch done(20);
  std::atomic<int> total{0};
  for (int task = 0; task < 20; ++task) {
    ASSERT_TRUE(pool_->submit({.run = [&] {
      pool_->run_parts(50, [&](size_t i) { total += static_cast<int>(i) + 1; });
      done.count_down();
    }}));
  }
  done.wait();
  EXPECT_EQ(total.load(), 20 * 50 * 51 / 2);
}

TEST_F(ComputePoolTest, PartsRunOnTheCallerAfterStop) {
  pool_ = std::make_unique<ComputePool>(ComputePool::Config{.threads = 2}, clock_, metrics_);
  pool_->stop();
  int runs = 0;
  pool_->run_parts(5, [&](size_t) { ++runs; });
  EXPECT_EQ(runs, 5);
}

TEST(UsableCores, FollowTheControlGroupsQuota) {
  EXPECT_EQ(parse_cpu_max("200000 100000"), 2U);
  EXPECT_EQ(parse_cpu_max("150000 100000"), 2U);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 1U);
  EXPECT_EQ(parse_cpu_max("max 100000"), 0U);
  EXPECT_EQ(parse_cpu_max("200000 0"), 0U);
  EXPECT_EQ(parse_cpu_max(""), 0U);
  EXPECT_GE(usable_cores(), 1U);
}

}  // namespace
}  // namespace stator::net
