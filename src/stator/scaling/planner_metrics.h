// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "stator/core/metrics.h"
#include "stator/planner/inputs.h"
#include "stator/planner/planner_config.h"
#include "stator/scaling/observation.h"

namespace stator::scaling {

/// What a planner exports, each under stator_planner_… and under the name that dashboards of the
/// reference read, dynamo_planner_….
class PlannerMetrics {
 public:
  PlannerMetrics(Metrics& metrics, const planner::PlannerConfig& config);
  void update(const planner::Inputs& inputs, const planner::Decision& decision,
              const Observed& observed);
  void set(std::string_view name, std::string_view help, double value);
  void count_tick(double seconds);
  void count_failure();
  void count_change();

 private:
  void choose(std::string_view name, std::string_view reason);
  void update_engines(const planner::PoolState& pool);

  Metrics& metrics_;
  const planner::PlannerConfig config_;
  std::map<std::string, std::pair<Gauge, Gauge>, std::less<>> gauges_;
  std::map<std::string, std::string, std::less<>> chosen_;  // enum → its value now
  std::map<std::string, uint32_t, std::less<>> engines_;    // label → ticks without it
  Counter ticks_, failures_, changes_;
  Histogram seconds_;
};

}  // namespace stator::scaling
