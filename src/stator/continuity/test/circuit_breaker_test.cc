// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/circuit_breaker.h"

#include <gtest/gtest.h>

namespace stator::continuity {
namespace {

using namespace std::chrono_literals;
using State = CircuitBreaker::State;

class CircuitBreakerTest : public ::testing::Test {
 protected:
  void fail(int count) {
    for (int i = 0; i < count; ++i) {
      breaker_.failed(now_, random_);
    }
  }
  void succeed(int count) {
    for (int i = 0; i < count; ++i) {
      breaker_.succeeded(now_);
    }
  }
  /// Waits until it is time, then reports two probes.
  void recover() {
    now_ = breaker_.open_until();
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(breaker_.take_probe(now_));
      breaker_.probed(true, now_, random_);
    }
    EXPECT_EQ(breaker_.state(), State::kClosed);
  }

  TimePoint now_{};
  Random random_{1};
  CircuitBreaker breaker_{CircuitBreaker::Options{}};
};

TEST_F(CircuitBreakerTest, OpensAfterFailuresInARow) {
  fail(4);
  succeed(1);
  fail(4);
  EXPECT_EQ(breaker_.state(), State::kClosed);
  EXPECT_TRUE(breaker_.failed(now_, random_));
  EXPECT_EQ(breaker_.state(), State::kOpen);
}

TEST_F(CircuitBreakerTest, OpensWhenHalfOfManyFail) {
  for (int i = 0; i < 9; ++i) {
    fail(1);
    succeed(1);
  }
  EXPECT_EQ(breaker_.state(), State::kClosed) << "18 outcomes are too few";
  succeed(1);
  fail(1);
  EXPECT_EQ(breaker_.state(), State::kOpen);
}

TEST_F(CircuitBreakerTest, OldOutcomesDoNotCount) {
  for (int i = 0; i < 100; ++i) {
    fail(2);
    succeed(1);
    now_ += 3s;  // at most 12 outcomes in any ten seconds
  }
  EXPECT_EQ(breaker_.state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, AHungInstanceIsOutAtOnce) {
  breaker_.hung(now_, random_);
  EXPECT_EQ(breaker_.state(), State::kOpen);
  EXPECT_FALSE(breaker_.take_probe(now_ + 3900ms));
}

TEST_F(CircuitBreakerTest, HalfOpenHasOneProbeAtATime) {
  fail(5);
  now_ = breaker_.open_until();
  EXPECT_TRUE(breaker_.take_probe(now_));
  EXPECT_FALSE(breaker_.take_probe(now_));
  EXPECT_EQ(breaker_.state(), State::kHalfOpen);
  EXPECT_FALSE(breaker_.probed(true, now_, random_)) << "one is not enough";
  EXPECT_TRUE(breaker_.take_probe(now_));
  EXPECT_TRUE(breaker_.probed(true, now_, random_));
  EXPECT_EQ(breaker_.state(), State::kClosed);
  EXPECT_FALSE(breaker_.take_probe(now_));
}

TEST_F(CircuitBreakerTest, AFailedProbeOpensItForLonger) {
  Duration before{};
  fail(5);
  for (int i = 0; i < 10; ++i) {
    const Duration open = breaker_.open_until() - now_;
    EXPECT_GE(open, 4s);
    EXPECT_LE(open, 72s);
    if (i < 3) {
      EXPECT_GT(open, before);
    }
    before = open;
    now_ = breaker_.open_until();
    ASSERT_TRUE(breaker_.take_probe(now_));
    breaker_.probed(false, now_, random_);
    EXPECT_EQ(breaker_.state(), State::kOpen);
  }
  EXPECT_GE(before, 48s);
}

TEST_F(CircuitBreakerTest, HealthTakesTheDoublingsBack) {
  for (int i = 0; i < 3; ++i) {
    breaker_.hung(now_, random_);
    recover();
  }
  EXPECT_EQ(breaker_.openings(), 3U);
  now_ += 1min;
  succeed(1);
  EXPECT_EQ(breaker_.openings(), 2U);
  now_ += 5min;
  succeed(1);
  EXPECT_EQ(breaker_.openings(), 0U);
}

TEST_F(CircuitBreakerTest, LateProbesSayNothing) {
  EXPECT_FALSE(breaker_.probed(true, now_, random_));
  fail(5);
  now_ = breaker_.open_until();
  breaker_.take_probe(now_);
  breaker_.probed(false, now_, random_);
  breaker_.probed(true, now_, random_);
  EXPECT_EQ(breaker_.state(), State::kOpen);
}

}  // namespace
}  // namespace stator::continuity
