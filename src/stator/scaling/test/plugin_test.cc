// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "stator/proto/planner/v1/plugin.pb.h"
#include "stator/scaling/plugin_host.h"
#include "stator/scaling/plugin_wire.h"

namespace stator::scaling {
namespace {

namespace pb = ::dynamo::planner::plugin::v1;
using planner::Stage;

TEST(PluginTurn, IsLeftAloneAfterFiveFailuresAndTriedOnceLater) {
  PluginTurn turn(0);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(turn.due(i));
    turn.fail(i);
  }
  EXPECT_FALSE(turn.due(10));
  EXPECT_TRUE(turn.due(35));
  EXPECT_EQ(turn.circuit(), PluginTurn::Circuit::kHalfOpen);
  turn.fail(35);
  EXPECT_FALSE(turn.due(60));
  ASSERT_TRUE(turn.due(66));
  turn.succeed(66);
  EXPECT_TRUE(turn.due(67));
  EXPECT_EQ(turn.circuit(), PluginTurn::Circuit::kClosed);
}

TEST(PluginTurn, WaitsForItsInterval) {
  PluginTurn turn(10);
  EXPECT_TRUE(turn.due(100));
  EXPECT_FALSE(turn.due(109));
  EXPECT_TRUE(turn.due(110));
}

TEST(PluginWire, TellsWhatWasSeenAndProposed) {
  planner::Inputs inputs{.now_s = 1};
  inputs.traffic = planner::Traffic{.duration_s = 10, .requests = 50, .input_tokens = 900};
  inputs.decode = {.ready = 3, .expected = 4};
  planner::Decision decision;
  decision.workers = 5;
  PluginContext context{.inputs = inputs, .tick = 7, .forecast = {.requests = 60}};
  context.proposal = &decision;
  const planner::Opinion other{.plugin = "other", .priority = 3, .rejects = true, .reason = "no"};

  pb::StageRequest request;
  ASSERT_TRUE(request.ParseFromString(
      encode_stage_request(context, Stage::kReconcile, std::span(&other, 1))));

  EXPECT_EQ(request.context().request_id(), "tick-7");
  EXPECT_EQ(request.context().observations().traffic().num_req(), 50);
  EXPECT_EQ(request.context().observations().workers().ready_decode(), 3);
  EXPECT_TRUE(request.context().observations().workers().decode_scaling_in_progress());
  EXPECT_FALSE(request.context().observations().workers().has_ready_prefill());
  EXPECT_EQ(request.context().predictions().predicted_num_req(), 60);
  EXPECT_FALSE(request.context().predictions().has_predicted_isl());
  ASSERT_EQ(request.context().proposal().targets_size(), 1);
  EXPECT_EQ(request.context().proposal().targets(0).replicas(), 5);
  ASSERT_EQ(request.proposals_size(), 1);
  EXPECT_EQ(request.proposals(0).reject().reason(), "no");
}

TEST(PluginWire, ReadsOpinionsAndLeavesOutWhatIsNone) {
  pb::StageResponse response;
  response.set_final(true);
  pb::OverrideResult& override = *response.mutable_override();
  override.set_reason("night");
  pb::ComponentTarget& most = *override.add_targets();
  most.set_sub_component_type("decode");
  most.set_replicas(2);
  most.set_type(pb::AT_MOST);
  override.add_targets()->set_sub_component_type("decode");  // without replicas
  override.add_targets()->set_replicas(-1);

  const auto opinion = decode_opinion(response.SerializeAsString());

  ASSERT_TRUE(opinion);
  EXPECT_TRUE(opinion->final);
  EXPECT_EQ(opinion->reason, "night");
  EXPECT_EQ(opinion->targets,
            std::vector({planner::Target{.kind = planner::TargetKind::kAtMost, .workers = 2}}));
  EXPECT_FALSE(decode_opinion("\xff\xff not a message"));
  EXPECT_FALSE(decode_prediction("\xff\xff not a message"));
}

TEST(PluginWire, ZeroIsAPredictionAndAbsenceIsNone) {
  pb::PredictStageResponse response;
  response.mutable_predictions()->set_predicted_num_req(0);

  const auto prediction = decode_prediction(response.SerializeAsString());

  ASSERT_TRUE(prediction);
  EXPECT_EQ(prediction->forecast, planner::Forecast{.requests = 0});
  EXPECT_EQ(method_of(Stage::kConstrain), "/dynamo.planner.plugin.v1.ConstrainPlugin/Constrain");
}

}  // namespace
}  // namespace stator::scaling
