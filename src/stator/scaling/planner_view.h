// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "stator/perf/calibrated_timing.h"
#include "stator/planner/inputs.h"
#include "stator/planner/planner_config.h"
#include "stator/scaling/observation.h"

namespace stator::scaling {

/// One tick, as it is drawn.
struct TickPoint {
  double unix_s = 0;
  double requests_per_s = 0, predicted_per_s = 0;
  uint32_t ready = 0, wanted = 0;
  double ttft_ms = 0, expected_ttft_ms = 0;
  double itl_ms = 0, expected_itl_ms = 0;
  std::string reason;
};

/// What a running planner shows. A value: copied under its owner's lock, rendered without it.
struct PlannerView {
  planner::PlannerConfig config;
  std::string connector;
  bool advisory = false;
  uint64_t ticks = 0, changes = 0, failures = 0, skipped = 0;
  double gpu_hours = 0;
  double tick_seconds = 0;
  planner::Inputs inputs;
  planner::Decision decision;
  double decided_unix_s = 0;
  bool executed = false;
  std::string problem;  ///< of the connector; empty: none
  Observed observed;
  perf::CalibrationError calibration;
  uint64_t passes = 0;
  std::deque<TickPoint> history;  ///< the last kHistoryMax
};
inline constexpr size_t kHistoryMax = 360;

std::string render_json(const PlannerView& view);
/// A page without scripts that loads itself anew every 2 s.
std::string render_html(const PlannerView& view);
/// The same of an interval that is over, with its changes: `reason` of each is a line of text.
std::string render_report(const PlannerView& view, const std::vector<TickPoint>& changes);

}  // namespace stator::scaling
