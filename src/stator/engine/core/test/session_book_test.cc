// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/session_book.h"

#include <gtest/gtest.h>

namespace stator::engine {
namespace {

inference::RequestKey key(uint64_t request) {
  return {.request = RequestId(request), .attempt = Attempt(0)};
}

struct CountingSink : EngineSink {
  void on_step(inference::StepOutput output) noexcept override {
    failures += output.failures.size();
  }
  size_t failures = 0;
};

TEST(LiveRequests, CountsAKeyOnceForEachSession) {
  LiveRequests live;
  const SessionId one = live.open();
  const SessionId other = live.open();

  EXPECT_TRUE(live.add(one, key(1)));
  EXPECT_TRUE(live.add(other, key(1)));
  EXPECT_EQ(live.add(one, key(1)).error().code(), Code::kAlreadyExists);
  EXPECT_EQ(live.size(), 2);
  EXPECT_TRUE(live.remove(one, key(1)));
  EXPECT_FALSE(live.remove(one, key(1)));
  EXPECT_EQ(live.size(), 1);
}

TEST(LiveRequests, AClosedSessionTakesItsRequestsWithIt) {
  LiveRequests live;
  const SessionId session = live.open();
  ASSERT_TRUE(live.add(session, key(1)));
  ASSERT_TRUE(live.add(session, key(2)));

  EXPECT_TRUE(live.close(session));
  EXPECT_FALSE(live.close(session));
  EXPECT_EQ(live.size(), 0);
  EXPECT_EQ(live.add(session, key(3)).error().code(), Code::kNotFound);
  EXPECT_NE(live.open(), session);
}

TEST(LiveRequests, ALastWordEndsAKeyAndTokensDoNot) {
  LiveRequests live;
  const SessionId session = live.open();
  for (uint64_t request = 1; request <= 3; ++request) {
    ASSERT_TRUE(live.add(session, key(request)));
  }
  inference::StepOutput step;
  step.deltas.push_back({.key = key(1), .finish = inference::FinishReason::kStop});
  step.deltas.push_back({.key = key(2)});
  step.failures.push_back({.key = key(3), .error = Error(Code::kUnavailable, "gone")});

  live.remove_ended(session, step);

  EXPECT_EQ(live.size(), 1);
  EXPECT_TRUE(live.remove(session, key(2)));
}

TEST(Sinks, StepsOfASessionThatIsGoneGoNowhere) {
  Sinks sinks;
  CountingSink sink;
  const SessionId session(7);
  const auto step = [] {
    inference::StepOutput out;
    out.failures.push_back({.key = key(1), .error = Error(Code::kUnavailable, "gone")});
    return out;
  };
  sinks.add(session, sink);
  sinks.deliver(session, step());
  sinks.deliver(SessionId(8), step());
  sinks.remove(session);
  sinks.deliver(session, step());

  EXPECT_EQ(sink.failures, 1);
}

}  // namespace
}  // namespace stator::engine
