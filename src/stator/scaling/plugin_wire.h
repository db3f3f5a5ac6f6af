// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/scaling/plugin_host.h"

namespace stator::scaling {

/// Messages of dynamo.planner.plugin.v1, as bytes. Pure.

/// The request of any stage; `proposals` are of reconciliation alone.
std::string encode_stage_request(const PluginContext& context, planner::Stage stage,
                                 std::span<const planner::Opinion> proposals);

struct Prediction {
  planner::Forecast forecast;
  bool final = false;  ///< nobody behind it is asked
};
/// Nothing: no such message.
std::optional<Prediction> decode_prediction(std::string_view bytes);
/// Of the other stages; plugin, stage and priority are left to the caller. A target without
/// replicas, or below 0, is no opinion. Nothing: no such message.
std::optional<planner::Opinion> decode_opinion(std::string_view bytes);

/// /dynamo.planner.plugin.v1.PredictPlugin/Predict and its like.
std::string method_of(planner::Stage stage);

}  // namespace stator::scaling
