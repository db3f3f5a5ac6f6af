// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_meters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;
using telemetry::Step;
using testing::HasSubstr;

class RequestMetersTest : public testing::Test {
 protected:
  Metrics metrics_;
  RequestMeters meters_{metrics_, "p"};
  StagePlace place_;
  const TimePoint start_{10s};
};

TEST_F(RequestMetersTest, ShowWhereARequestIs) {
  meters_.step(place_, Step::kQueued, start_, false);
  EXPECT_THAT(metrics_.render(), HasSubstr("p_stage_requests{stage=\"route\",phase=\"\"} 1\n"));

  meters_.step(place_, Step::kRouted, start_ + 1s, false);
  meters_.step(place_, Step::kSubmitted, start_ + 1s, true);
  const std::string sent = metrics_.render();
  EXPECT_THAT(sent, HasSubstr("p_stage_requests{stage=\"route\",phase=\"\"} 0\n"));
  EXPECT_THAT(sent, HasSubstr("p_stage_requests{stage=\"dispatch\",phase=\"decode\"} 1\n"));
  EXPECT_THAT(sent, HasSubstr("dynamo_request_plane_queue_seconds_sum 1\n"));
  EXPECT_THAT(sent, HasSubstr("dynamo_request_plane_inflight_requests 1\n"));

  meters_.accepted(place_, start_ + 1500ms);
  meters_.step(place_, Step::kFirstToken, start_ + 3s, true);
  const std::string answered = metrics_.render();
  EXPECT_THAT(answered, HasSubstr("p_stage_requests{stage=\"dispatch\",phase=\"decode\"} 0\n"));
  EXPECT_THAT(answered, HasSubstr("dynamo_request_plane_send_seconds_sum 0.5\n"));
  EXPECT_THAT(answered, HasSubstr("dynamo_request_plane_roundtrip_ttft_seconds_sum 2\n"));
  EXPECT_THAT(answered, HasSubstr("dynamo_request_plane_inflight_requests 1\n"));
}

TEST_F(RequestMetersTest, GiveBackEverythingOnce) {
  meters_.step(place_, Step::kRouted, start_, false);
  meters_.step(place_, Step::kSubmitted, start_, false);
  meters_.step(place_, Step::kLost, start_ + 1s, false);
  meters_.step(place_, Step::kSubmitted, start_ + 1s, false);

  meters_.leave(place_);
  meters_.leave(place_);

  const std::string text = metrics_.render();
  EXPECT_THAT(text, HasSubstr("p_stage_requests{stage=\"dispatch\",phase=\"aggregated\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("dynamo_request_plane_inflight_requests 0\n"));
}

TEST_F(RequestMetersTest, CountStallsOfTheLoop) {
  meters_.loop_was_late(1ms);
  meters_.loop_was_late(60ms);

  EXPECT_THAT(metrics_.render(), HasSubstr("p_event_loop_stall_total 1\n"));
  EXPECT_THAT(metrics_.render(), HasSubstr("p_event_loop_delay_seconds_count 2\n"));
}

}  // namespace
}  // namespace stator::frontend
