// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/ids.h"

namespace stator::frontend {

/// Lets at most kLinesMax lines of the log through in kWindow: a fleet of thousands that comes or
/// goes is told in a few lines, of which each says how many there was no room for. Pure.
class LineBudget {
 public:
  static constexpr uint32_t kLinesMax = 20;
  static constexpr Duration kWindow = std::chrono::seconds(10);

  /// Whether a line may be written; if so, how many were held back since the last one.
  std::optional<uint64_t> take(TimePoint now);

 private:
  TimePoint window_begin_{};
  uint32_t written_ = 0;  // in this window
  uint64_t held_back_ = 0;
};

/// Sums up which streams moved from which worker to which, so that the loss of a worker with a
/// thousand streams is a line or two, a second later. Pure.
class MoveLog {
 public:
  static constexpr size_t kLinesMax = 16;  ///< of one take(); the rest is summed up in one more
  static constexpr Duration kDelay = std::chrono::seconds(1);

  struct Line {
    WorkerId from;
    WorkerId to;           ///< zero: more than could be listed, to several
    std::string_view why;  ///< static text
    uint64_t streams = 0;
  };
  void moved(WorkerId from, WorkerId to, std::string_view why, TimePoint now);
  /// Nothing until kDelay after the first move; then all of them, most streams first.
  std::vector<Line> take(TimePoint now);

 private:
  static constexpr size_t kPairsMax = 1024;

  std::vector<Line> lines_;  // few: pairs of workers within a second
  TimePoint first_{};
};

}  // namespace stator::frontend
