// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/event_lines.h"

#include <algorithm>
#include <utility>

namespace stator::frontend {

std::optional<uint64_t> LineBudget::take(TimePoint now) {
  if (now - window_begin_ >= kWindow) {
    window_begin_ = now;
    written_ = 0;
  }
  if (written_ == kLinesMax) {
    ++held_back_;
    return std::nullopt;
  }
  ++written_;
  return std::exchange(held_back_, 0);
}

void MoveLog::moved(WorkerId from, WorkerId to, std::string_view why, TimePoint now) {
  if (lines_.empty()) {
    first_ = now;
  }
  const auto same = std::ranges::find_if(lines_, [&](const Line& line) {
    return line.from == from && line.to == to && line.why == why;
  });
  if (same != lines_.end()) {
    ++same->streams;
  } else if (lines_.size() < kPairsMax) {
    lines_.push_back({from, to, why, 1});
  } else {
    ++lines_.back().streams;
    lines_.back().to = WorkerId();
  }
}

std::vector<MoveLog::Line> MoveLog::take(TimePoint now) {
  if (lines_.empty() || now - first_ < kDelay) {
    return {};
  }
  std::vector<Line> lines = std::exchange(lines_, {});
  std::ranges::sort(lines, std::ranges::greater(), &Line::streams);
  if (lines.size() > kLinesMax) {
    Line rest{.from = {}, .to = {}, .why = "various", .streams = 0};
    for (size_t i = kLinesMax; i < lines.size(); ++i) {
      rest.streams += lines[i].streams;
    }
    lines.resize(kLinesMax);
    lines.push_back(rest);
  }
  return lines;
}

}  // namespace stator::frontend
