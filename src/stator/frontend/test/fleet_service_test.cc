// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/fleet_service.h"

#include <gtest/gtest.h>

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;
using Change = FleetService::Change;

class FleetServiceTest : public ::testing::Test {
 protected:
  FleetServiceTest() {
    for (const uint64_t worker : {1, 2, 3}) {
      fleet_.joined(WorkerId(worker), "demo");
    }
    fleet_.joined(WorkerId(9), "other");
  }
  Change hang(uint64_t worker) { return fleet_.report(WorkerId(worker), WorkOutcome::kHung, now_); }
  /// Probes until the breaker closes; the last change.
  Change recover(uint64_t worker) {
    now_ += 10s;
    Change change = Change::kNone;
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(fleet_.take_probe(WorkerId(worker), now_));
      EXPECT_FALSE(fleet_.take_probe(WorkerId(worker), now_)) << "one probe at a time";
      change = fleet_.probed(WorkerId(worker), true, now_);
    }
    return change;
  }

  TimePoint now_ = TimePoint{} + 1h;
  Metrics metrics_;
  FleetService fleet_{metrics_, Random(1)};
};

TEST_F(FleetServiceTest, AFailingWorkerIsSuspendedAndProbedBack) {
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(fleet_.report(WorkerId(1), WorkOutcome::kFailed, now_), Change::kNone);
  }
  EXPECT_EQ(fleet_.report(WorkerId(1), WorkOutcome::kFailed, now_), Change::kSuspend);
  EXPECT_TRUE(fleet_.probes_due(now_).empty());
  now_ += 10s;
  EXPECT_EQ(fleet_.probes_due(now_), std::vector{WorkerId(1)});
  EXPECT_EQ(recover(1), Change::kResume);
  EXPECT_TRUE(fleet_.probes_due(now_).empty());
}

TEST_F(FleetServiceTest, AtMostHalfOfAModelsWorkersAreSuspended) {
  EXPECT_EQ(hang(1), Change::kSuspend);
  EXPECT_EQ(hang(2), Change::kNone) << "one of three may be, not two";
  EXPECT_EQ(hang(9), Change::kNone) << "the only one of its model";
  fleet_.joined(WorkerId(4), "demo");
  EXPECT_EQ(hang(3), Change::kSuspend);
}

TEST_F(FleetServiceTest, ADrainingWorkerIsNotResumed) {
  EXPECT_EQ(hang(1), Change::kSuspend);
  fleet_.draining(WorkerId(1));
  EXPECT_EQ(recover(1), Change::kNone);
}

TEST_F(FleetServiceTest, WhoHasLeftIsForgotten) {
  EXPECT_EQ(hang(1), Change::kSuspend);
  fleet_.left(WorkerId(1));
  now_ += 1min;
  EXPECT_TRUE(fleet_.probes_due(now_).empty());
  EXPECT_EQ(hang(1), Change::kNone);
  fleet_.joined(WorkerId(1), "demo");
  EXPECT_EQ(hang(2), Change::kSuspend) << "a fresh start for everybody";
}

TEST_F(FleetServiceTest, TwoFailedCanariesSuspend) {
  EXPECT_FALSE(fleet_.take_canary(WorkerId(7), 5s, now_)) << "unknown";
  EXPECT_TRUE(fleet_.take_canary(WorkerId(1), 5s, now_));
  EXPECT_FALSE(fleet_.take_canary(WorkerId(1), 5s, now_)) << "asked just now";
  EXPECT_EQ(fleet_.probed(WorkerId(1), false, now_), Change::kNone);
  now_ += 5s;
  fleet_.report(WorkerId(2), WorkOutcome::kServed, now_);
  EXPECT_FALSE(fleet_.take_canary(WorkerId(2), 5s, now_)) << "it served just now";
  EXPECT_TRUE(fleet_.take_canary(WorkerId(1), 5s, now_));
  EXPECT_EQ(fleet_.probed(WorkerId(1), false, now_), Change::kSuspend);
  EXPECT_EQ(recover(1), Change::kResume);
}

TEST_F(FleetServiceTest, AServedRequestClearsAFailedCanary) {
  fleet_.probed(WorkerId(1), false, now_);
  fleet_.report(WorkerId(1), WorkOutcome::kServed, now_);
  EXPECT_EQ(fleet_.probed(WorkerId(1), false, now_), Change::kNone);
}

TEST_F(FleetServiceTest, QuarantineEnds) {
  EXPECT_EQ(fleet_.quarantined(5, now_), 0s);
  fleet_.quarantine(5, now_);
  EXPECT_EQ(fleet_.quarantined(5, now_ + 20s), 40s);
  EXPECT_EQ(fleet_.quarantined(6, now_), 0s);
  EXPECT_EQ(fleet_.quarantined(5, now_ + 61s), 0s);
}

}  // namespace
}  // namespace stator::frontend
