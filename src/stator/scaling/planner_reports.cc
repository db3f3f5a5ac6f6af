// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/planner_reports.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "stator/core/log.h"
#include "stator/io/replace_file.h"

namespace stator::scaling {
namespace {

std::string utc(double unix_s) {
  const auto whole = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

Result<PlannerReports> PlannerReports::open(ReportConfig config) {
  std::error_code failed;
  std::filesystem::create_directories(config.folder, failed);
  if (failed) {
    return Error(Code::kIo, fmt::format("cannot make the folder '{}' for reports: {}",
                                        config.folder, failed.message()));
  }
  return PlannerReports(std::move(config));
}

void PlannerReports::complain(std::string_view what) {
  if (!std::exchange(complained_, true)) {
    log::warn("planner", "a report cannot be written",
              {{"file", what}, {"error", std::strerror(errno)}});
  }
}

void PlannerReports::begin(const PlannerView& view, double unix_s) {
  begin_s_ = unix_s;
  time_ = utc(unix_s);
  gpu_hours_ = view.gpu_hours;
  ticks_ = written_ = 0;
  complained_ = false;
  each_ = 1;
  skipped_ = 0;
  points_.clear();
  changes_.clear();
  const std::string file = fmt::format("{}/planner_ticks_{}.jsonl", config_.folder, time_);
  lines_ =
      io::FileDescriptor(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!lines_.open()) {
    complain(file);
  }
}

/// Every point at first; each second one goes when there are too many.
void PlannerReports::keep(const TickPoint& point) {
  if (++skipped_ < each_) {
    return;
  }
  skipped_ = 0;
  points_.push_back(point);
  if (points_.size() > kPointsMax) {
    for (size_t i = 0; i < points_.size() / 2; ++i) {
      points_[i] = std::move(points_[2 * i]);
    }
    points_.resize(points_.size() / 2);
    each_ *= 2;
  }
}

void PlannerReports::add(const PlannerView& view, std::string_view line) {
  if (view.history.empty()) {
    return;
  }
  const TickPoint& point = view.history.back();
  if (!time_.empty() && point.unix_s - begin_s_ >= config_.interval_hours * 3600) {
    close(view);
  }
  if (time_.empty()) {
    begin(view, point.unix_s);
  }
  ++ticks_;
  keep(point);
  if (view.executed && changes_.size() < kChangesMax) {
    changes_.push_back(point);
    changes_.back().reason = view.decision.text;
  }
  if (lines_.open() && written_ + line.size() <= kTickBytesMax) {
    written_ += line.size();
    if (::write(lines_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      complain("planner_ticks");
    }
  }
}

void PlannerReports::close(const PlannerView& view) {
  if (time_.empty()) {
    return;
  }
  PlannerView of = view;
  of.history = points_;
  of.gpu_hours = view.gpu_hours - gpu_hours_;
  of.ticks = ticks_;
  of.changes = changes_.size();
  const std::string file = fmt::format("{}/planner_report_{}.html", config_.folder, time_);
  if (const Status done = io::replace_file(file, render_report(of, changes_)); !done) {
    complain(file);
  }
  lines_.reset();
  time_.clear();
}

}  // namespace stator::scaling
