// SPDX-License-Identifier: Apache-2.0
#include "stator/net/virtual_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace stator::net {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

class VirtualTimeTest : public ::testing::Test {
 protected:
  VirtualTimeTest() { time_.attach(shard_); }
  ~VirtualTimeTest() override { time_.detach(shard_); }
  Task note(std::string text) {
    return [this, text = std::move(text)] { seen_.push_back(text); };
  }

  VirtualTime time_;
  Metrics metrics_;
  Shard shard_{0, time_.clock(), metrics_};
  std::vector<std::string> seen_;
};

TEST_F(VirtualTimeTest, EventsAndTimersRunInTheOrderOfTheirTimes) {
  time_.after(30ms, note("event 30"));
  const Timer timer = shard_.after(20ms, note("timer 20"));
  time_.after(10ms, note("event 10"));
  time_.after(10ms, note("event 10, made later"));

  time_.run_until(TimePoint{} + 25ms);

  EXPECT_THAT(seen_, ElementsAre("event 10", "event 10, made later", "timer 20"));
  EXPECT_EQ(time_.now(), TimePoint{} + 25ms);
  time_.run_until(TimePoint{} + 30ms);
  EXPECT_EQ(seen_.back(), "event 30");
}

TEST_F(VirtualTimeTest, MessagesToALoopAreHandledBeforeTimeGetsOn) {
  time_.after(10ms, [this] {
    ASSERT_TRUE(shard_.post([this] {
      EXPECT_TRUE(shard_.on_loop());
      EXPECT_EQ(shard_.now(), TimePoint{} + 10ms);
      seen_.push_back("posted");
    }));
  });
  time_.after(10ms + 1ns, note("next"));
  time_.run_until(TimePoint{} + 1s);
  EXPECT_THAT(seen_, ElementsAre("posted", "next"));
}

TEST_F(VirtualTimeTest, OnLoopIsTheLoopForThatLong) {
  EXPECT_FALSE(shard_.on_loop());
  time_.on_loop(shard_, [this] { EXPECT_TRUE(shard_.on_loop()); });
  EXPECT_FALSE(shard_.on_loop());
}

TEST_F(VirtualTimeTest, AnHourPassesInNoTime) {
  int beats = 0;
  Timer timer;
  std::function<void()> beat = [&] {
    ++beats;
    timer = shard_.after(1s, [&] { beat(); });
  };
  time_.on_loop(shard_, [&] { beat(); });
  time_.run_until(TimePoint{} + 1h);
  EXPECT_EQ(beats, 3601);
}

}  // namespace
}  // namespace stator::net
