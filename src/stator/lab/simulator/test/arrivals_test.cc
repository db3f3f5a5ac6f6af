// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/arrivals.h"

#include <gtest/gtest.h>

namespace stator::simulator {
namespace {

using std::chrono::milliseconds;

TimePoint at(int64_t ms) {
  return TimePoint(milliseconds(ms));
}

class ListTrace final : public TraceSource {
 public:
  explicit ListTrace(std::vector<TraceRequest> requests) : requests_(std::move(requests)) {}
  Result<bool> next(TraceRequest& request) override {
    if (read == requests_.size()) {
      return false;
    }
    request = requests_[read++];
    return true;
  }
  uint32_t block_tokens() const override { return 64; }
  size_t read = 0;

 private:
  std::vector<TraceRequest> requests_;
};

TraceRequest request_at(uint64_t line, int64_t ms) {
  return {.line = line, .arrival = milliseconds(ms)};
}

TraceRequest turn(uint64_t line, std::string session, int64_t ms,
                  std::optional<Duration> delay = {}) {
  return {.line = line, .arrival = milliseconds(ms), .session = std::move(session), .delay = delay};
}

uint64_t take_line(Arrivals& arrivals, TimePoint now) {
  TraceRequest request;
  EXPECT_TRUE(arrivals.take(now, request).has_value());
  return request.line;
}

TEST(Arrivals, ComeAtTheirTimesAndOneIsReadAhead) {
  ListTrace trace({request_at(1, 5), request_at(2, 8), request_at(3, 20)});
  Arrivals arrivals(trace, {.speedup = 2});
  ASSERT_TRUE(arrivals.start().has_value());

  EXPECT_EQ(trace.read, 1);
  EXPECT_EQ(arrivals.next_time(at(0), 0), TimePoint(std::chrono::microseconds(2500)));
  EXPECT_FALSE(arrivals.is_due(at(2), 0));
  ASSERT_TRUE(arrivals.is_due(at(3), 100));
  EXPECT_EQ(take_line(arrivals, at(3)), 1);
  EXPECT_EQ(arrivals.next_time(at(3), 0), at(4));
}

TEST(Arrivals, ClosedLoopWaitsForRoomOnly) {
  ListTrace trace({request_at(1, 500), request_at(2, 800)});
  Arrivals arrivals(trace, {.concurrency = 1});
  ASSERT_TRUE(arrivals.start().has_value());

  ASSERT_TRUE(arrivals.is_due(at(0), 0));
  EXPECT_EQ(take_line(arrivals, at(0)), 1);
  EXPECT_FALSE(arrivals.next_time(at(1), 1).has_value());
  EXPECT_TRUE(arrivals.is_due(at(7), 0));
}

TEST(Arrivals, TurnsFollowTheEndOfTheOneBefore) {
  ListTrace trace({turn(1, "a", 10), turn(2, "a", 0, milliseconds(7)), turn(3, "a", 25),
                   request_at(4, 12), turn(5, "b", 11)});
  Arrivals arrivals(trace, {});
  ASSERT_TRUE(arrivals.start().has_value());

  EXPECT_EQ(take_line(arrivals, at(10)), 1);
  EXPECT_EQ(take_line(arrivals, at(11)), 5);
  EXPECT_EQ(take_line(arrivals, at(12)), 4);
  EXPECT_FALSE(arrivals.next_time(at(13), 1).has_value());
  arrivals.on_end("", "b", at(14));
  arrivals.on_end("", "", at(14));
  EXPECT_FALSE(arrivals.next_time(at(14), 1).has_value());
  arrivals.on_end("", "a", at(40));
  EXPECT_EQ(arrivals.next_time(at(40), 0), at(47));
  TraceRequest second;
  ASSERT_TRUE(arrivals.take(at(47), second).has_value());
  EXPECT_EQ(second.line, 2);
  EXPECT_EQ(second.turn, 1);
  arrivals.on_end("", "a", at(60));  // 25 ms after the turn before, which had no time
  EXPECT_EQ(arrivals.next_time(at(60), 0), at(85));
}

TraceRequest node(uint64_t line, std::string id, std::vector<std::string> wait_for,
                  std::optional<Duration> delay = {}) {
  return {.line = line,
          .request_id = std::move(id),
          .session = "agent",
          .delay = delay,
          .wait_for = std::move(wait_for)};
}

TEST(Arrivals, WhatWaitsForOthersComesAfterTheLastOfThem) {
  ListTrace trace({node(1, "a", {}), node(2, "b", {}), node(3, "c", {"a", "b"}, milliseconds(7)),
                   node(4, "d", {"c"})});
  Arrivals arrivals(trace, {});
  ASSERT_TRUE(arrivals.start().has_value());
  EXPECT_EQ(take_line(arrivals, at(0)), 1);
  EXPECT_EQ(take_line(arrivals, at(0)), 2);

  arrivals.on_end("a", "agent", at(10));
  EXPECT_FALSE(arrivals.next_time(at(10), 0));
  arrivals.on_end("b", "agent", at(30));

  EXPECT_EQ(arrivals.next_time(at(30), 0), at(37));
  EXPECT_EQ(take_line(arrivals, at(37)), 3);
  EXPECT_FALSE(arrivals.next_time(at(37), 0));
  arrivals.on_end("c", "agent", at(50));
  EXPECT_EQ(arrivals.next_time(at(50), 0), at(50));
}

TEST(Arrivals, RefusesGraphsThatNeverEnd) {
  const auto start = [](std::vector<TraceRequest> requests) {
    ListTrace trace(std::move(requests));
    return std::string(Arrivals(trace, {}).start().error().message());
  };

  EXPECT_EQ(start({node(1, "a", {}), node(2, "b", {"x"})}),
            "line 2: wait_for: there is no request 'x'");
  EXPECT_EQ(start({node(1, "a", {}), node(2, "b", {"c"}), node(3, "c", {"b"})}),
            "line 2: wait_for: requests wait for each other in a circle");
  EXPECT_EQ(start({node(1, "a", {}), node(2, "a", {})}), "line 2: request_id: 'a' is there twice");
}

}  // namespace
}  // namespace stator::simulator
