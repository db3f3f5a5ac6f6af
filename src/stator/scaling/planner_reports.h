// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/scaling/planner_view.h"

namespace stator::scaling {

struct ReportConfig {
  std::string folder;  ///< empty: no reports
  double interval_hours = 24;
};

/// Writes what a planner did in each interval into a folder: a page `planner_report_TIME.html` at
/// its end, and `planner_ticks_TIME.jsonl`, a line per tick, as they come. TIME is when the
/// interval began, UTC, as 20260131T235959Z. Files of earlier ones stay. Used by one thread.
///
/// Bounds: kPointsMax points and kChangesMax changes of an interval are drawn, kTickBytesMax of its
/// lines are written; a failure is logged once per interval.
class PlannerReports {
 public:
  static constexpr size_t kPointsMax = 1440;
  static constexpr size_t kChangesMax = 500;
  static constexpr uint64_t kTickBytesMax = 1ULL << 30;

  /// kIo if the folder cannot be made.
  static Result<PlannerReports> open(ReportConfig config);
  /// After each tick; the last point of `view.history` is of it, `line` is what is noted of it.
  void add(const PlannerView& view, std::string_view line);
  /// Writes the page of the interval that is under way.
  void close(const PlannerView& view);

 private:
  explicit PlannerReports(ReportConfig config) : config_(std::move(config)) {}
  void begin(const PlannerView& view, double unix_s);
  void keep(const TickPoint& point);
  void complain(std::string_view what);

  ReportConfig config_;
  std::string time_;  // of the interval; empty: none yet
  double begin_s_ = 0, gpu_hours_ = 0;
  uint64_t ticks_ = 0, written_ = 0;
  bool complained_ = false;
  size_t each_ = 1, skipped_ = 0;  // one point of so many is kept
  std::deque<TickPoint> points_;
  std::vector<TickPoint> changes_;
  io::FileDescriptor lines_;
};

}  // namespace stator::scaling
