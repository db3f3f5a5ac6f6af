// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/lab/loadgen/run_service.h"
#include "stator/lab/loadgen/statistics.h"

namespace stator::loadgen {

/// Everything `stator bench` found out: one run, repeated runs, or a sweep over rates.
struct Report {
  bool asked_for_streams = false;
  std::vector<std::pair<std::string, std::string>> settings;  ///< as given, for the reader
  WallTime started{};
  WallTime ended{};
  std::vector<RunResult> runs;
  bool is_sweep = false;        ///< runs are the steps of a sweep over rates, else repetitions
  double saturation_per_s = 0;  ///< of a sweep: the highest rate sustained
  bool allowed_client_bound = false;  ///< printed although the generator was the bottleneck
};

/// Mean of a metric over repeated runs.
struct RepeatedMetric {
  std::string_view tag;
  std::string_view unit;
  Confidence confidence;
};
std::vector<RepeatedMetric> repeat_metrics(const std::vector<RunResult>& runs);

/// A step of a sweep was sustained: it kept up, failed at most 1 % and, if there are goals, at
/// least 99 % of its requests met them counted from the schedule.
bool is_sustained(const RunResult& run);

/// Why these figures must not be published as the server's; empty if they may.
std::vector<std::string> reasons_not_to_publish(const Report& report);

/// What a reader must know about the figures beside them: what was left out, cut off or counted
/// otherwise than asked for.
std::vector<std::string> notes_of(const Report& report);

/// AIPerf's profile export (schema 1.1): one object per metric at the top, more under "stator".
std::string to_json(const Report& report);
/// AIPerf's CSV: distributions, then single values.
std::string to_csv(const Report& report);
/// One page with plots as inline SVG; nothing is loaded from elsewhere.
std::string to_html(const Report& report);
/// What a terminal shows at the end.
std::string to_text(const Report& report);

/// The run whose figures stand for the report: the only one, the last of repetitions, or the
/// highest sustained step of a sweep.
const RunResult& main_run(const Report& report);

}  // namespace stator::loadgen
