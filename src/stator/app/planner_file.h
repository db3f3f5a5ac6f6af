// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/planner/planner_config.h"

namespace stator::app {

/// What a file of the reference's planner says beyond how to decide.
struct PlannerFileFacts {
  bool advisory = false;
  bool from_router = false;  ///< throughput_metrics_source
  std::string prometheus;    ///< metric_pulling_prometheus_endpoint
  std::string prometheus_token, prometheus_token_file, prometheus_ca;
  std::string model;         ///< model_name
  std::string name_space;    ///< namespace
  std::string warmup_trace;  ///< load_predictor_warmup_trace
};

/// The map in `text`: a file (YAML or JSON), or JSON itself, as the reference's --config takes it.
Result<json::Value> read_planner_map(const std::string& text);

/// Keys and values as the reference's planner has them; what it refuses is refused, and so are
/// unknown keys. kInvalidArgument names the key.
Status read_planner_file(const std::string& text, planner::PlannerConfig& config,
                         PlannerFileFacts* facts = nullptr);

}  // namespace stator::app
