// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/plugin_wire.h"

#include <fmt/format.h>

#include "stator/proto/planner/v1/plugin.pb.h"

namespace stator::scaling {
namespace {

namespace pb = ::dynamo::planner::plugin::v1;
using planner::Stage;
using planner::TargetKind;

void write(const planner::Inputs& inputs, pb::ObservationData& out) {
  if (inputs.traffic) {
    const planner::Traffic& t = *inputs.traffic;
    pb::TrafficMetrics& traffic = *out.mutable_traffic();
    traffic.set_duration_s(t.duration_s);
    traffic.set_num_req(t.requests);
    traffic.set_isl(t.input_tokens);
    traffic.set_osl(t.output_tokens);
    traffic.set_kv_hit_rate(t.kv_hit_rate);
    traffic.set_accept_length(t.accept_length);
  }
  pb::WorkerState& workers = *out.mutable_workers();
  workers.set_ready_decode(static_cast<int32_t>(inputs.decode.ready));
  workers.set_expected_decode(static_cast<int32_t>(inputs.decode.expected));
  workers.set_decode_scaling_in_progress(inputs.decode.ready != inputs.decode.expected);
  if (inputs.prefill.ready > 0 || inputs.prefill.expected > 0) {
    workers.set_ready_prefill(static_cast<int32_t>(inputs.prefill.ready));
    workers.set_expected_prefill(static_cast<int32_t>(inputs.prefill.expected));
    workers.set_prefill_scaling_in_progress(inputs.prefill.ready != inputs.prefill.expected);
  }
}

void write(const planner::Forecast& forecast, pb::PredictionData& out) {
  if (forecast.requests) {
    out.set_predicted_num_req(*forecast.requests);
  }
  if (forecast.input_tokens) {
    out.set_predicted_isl(*forecast.input_tokens);
  }
  if (forecast.output_tokens) {
    out.set_predicted_osl(*forecast.output_tokens);
  }
  if (forecast.kv_hit_rate) {
    out.set_predicted_kv_hit_rate(*forecast.kv_hit_rate);
  }
  if (forecast.accept_length) {
    out.set_predicted_accept_length(*forecast.accept_length);
  }
}

void add_target(bool prefill, TargetKind kind, uint32_t workers, pb::ComponentTarget& out) {
  out.set_sub_component_type(prefill ? "prefill" : "decode");
  out.set_replicas(static_cast<int32_t>(workers));
  out.set_type(kind == TargetKind::kSet       ? pb::SET
               : kind == TargetKind::kAtLeast ? pb::AT_LEAST
                                              : pb::AT_MOST);
}

void write(const planner::Opinion& opinion, pb::ProposeResult& out) {
  out.set_plugin_id(opinion.plugin);
  out.set_priority(opinion.priority);
  if (opinion.rejects) {
    out.mutable_reject()->set_reason(opinion.reason);
  } else if (opinion.targets.empty()) {
    out.mutable_accept();
  } else {
    out.mutable_override()->set_reason(opinion.reason);
    for (const planner::Target& target : opinion.targets) {
      add_target(target.prefill, target.kind, target.workers,
                 *out.mutable_override()->add_targets());
    }
  }
}

template <typename Message>
bool parse(std::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

std::string method_of(Stage stage) {
  const char* const name = stage == Stage::kPredict     ? "Predict"
                           : stage == Stage::kPropose   ? "Propose"
                           : stage == Stage::kReconcile ? "Reconcile"
                                                        : "Constrain";
  return fmt::format("/dynamo.planner.plugin.v1.{}Plugin/{}", name, name);
}

std::string encode_stage_request(const PluginContext& context, Stage stage,
                                 std::span<const planner::Opinion> proposals) {
  pb::StageRequest request;  // of all stages: those without proposals have the same bytes
  pb::PipelineContext& out = *request.mutable_context();
  out.set_request_id(fmt::format("tick-{}", context.tick));
  write(context.inputs, *out.mutable_observations());
  if (stage != Stage::kPredict) {
    write(context.forecast, *out.mutable_predictions());
  }
  if (context.proposal != nullptr) {
    out.set_decision_id(fmt::format("decision-{}", context.tick));
    pb::ScalingProposal& proposal = *out.mutable_proposal();
    proposal.set_source("policy");
    proposal.set_reason(context.proposal->text);
    if (context.proposal->workers) {
      add_target(false, TargetKind::kSet, *context.proposal->workers, *proposal.add_targets());
    }
    if (context.proposal->prefill_workers) {
      add_target(true, TargetKind::kSet, *context.proposal->prefill_workers,
                 *proposal.add_targets());
    }
  }
  for (const planner::Opinion& opinion : proposals) {
    write(opinion, *request.add_proposals());
  }
  return request.SerializeAsString();
}

std::optional<Prediction> decode_prediction(std::string_view bytes) {
  pb::PredictStageResponse response;
  if (!parse(bytes, response)) {
    return std::nullopt;
  }
  Prediction out{.forecast = {}, .final = response.final()};
  if (response.has_predictions()) {
    const pb::PredictionData& said = response.predictions();
    const auto take = [](bool has, double value) {
      return has ? std::optional(value) : std::nullopt;
    };
    out.forecast = {
        .requests = take(said.has_predicted_num_req(), said.predicted_num_req()),
        .input_tokens = take(said.has_predicted_isl(), said.predicted_isl()),
        .output_tokens = take(said.has_predicted_osl(), said.predicted_osl()),
        .kv_hit_rate = take(said.has_predicted_kv_hit_rate(), said.predicted_kv_hit_rate()),
        .accept_length = take(said.has_predicted_accept_length(), said.predicted_accept_length())};
  }
  return out;
}

std::optional<planner::Opinion> decode_opinion(std::string_view bytes) {
  pb::StageResponse response;
  if (!parse(bytes, response)) {
    return std::nullopt;
  }
  planner::Opinion out;
  out.final = response.final();
  out.rejects = response.has_reject();
  out.reason = out.rejects ? response.reject().reason() : response.override().reason();
  for (const pb::ComponentTarget& target : response.override().targets()) {
    const bool prefill = target.sub_component_type() == "prefill";
    if (!target.has_replicas() || target.replicas() < 0 ||
        (!prefill && target.sub_component_type() != "decode" &&
         target.sub_component_type() != "agg")) {
      continue;
    }
    out.targets.push_back({.prefill = prefill,
                           .kind = target.type() == pb::AT_LEAST  ? TargetKind::kAtLeast
                                   : target.type() == pb::AT_MOST ? TargetKind::kAtMost
                                                                  : TargetKind::kSet,
                           .workers = static_cast<uint32_t>(target.replicas())});
  }
  return out;
}

}  // namespace stator::scaling
