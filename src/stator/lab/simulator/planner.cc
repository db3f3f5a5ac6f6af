// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "stator/core/config.h"

namespace stator::simulator {
namespace {

class ScriptedPlanner final : public Planner {
 public:
  ScriptedPlanner(std::vector<ScalingStep> prefill_workers, std::vector<ScalingStep> workers)
      : prefill_workers_(std::move(prefill_workers)), workers_(std::move(workers)) {}

  std::optional<TimePoint> first() const override { return next_after(TimePoint(Duration(-1))); }

  ScalingDecision decide(const FleetView& fleet) override {
    return {.prefill_workers = number_at(prefill_workers_, fleet.now),
            .workers = number_at(workers_, fleet.now),
            .next = next_after(fleet.now)};
  }

 private:
  static std::optional<uint32_t> number_at(const std::vector<ScalingStep>& steps, TimePoint now) {
    const auto after = std::ranges::upper_bound(steps, now, {}, &ScalingStep::time);
    return after == steps.begin() ? std::nullopt : std::optional(std::prev(after)->number);
  }

  std::optional<TimePoint> next_after(TimePoint now) const {
    std::optional<TimePoint> next;
    for (const auto* steps : {&prefill_workers_, &workers_}) {
      const auto after = std::ranges::upper_bound(*steps, now, {}, &ScalingStep::time);
      if (after != steps->end()) {
        next = next ? std::min(*next, after->time) : after->time;
      }
    }
    return next;
  }

  const std::vector<ScalingStep> prefill_workers_;
  const std::vector<ScalingStep> workers_;
};

}  // namespace

Result<std::vector<ScalingStep>> parse_steps(std::string_view text, uint32_t high) {
  std::vector<ScalingStep> steps;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const size_t equals = item.find('=');
    const auto time = parse_duration(item.substr(0, equals));
    uint32_t number = 0;
    const std::string_view digits =
        equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1);
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (!time || *time < Duration::zero() || end.ec != std::errc() ||
        end.ptr != digits.data() + digits.size() || number > high) {
      return Error(Code::kInvalidArgument,
                   fmt::format("'{}' in '{}' must be a time and a number up to {}: 60s=4", item,
                               text, high));
    }
    steps.push_back({TimePoint(*time), number});
    if (steps.size() > 1 && steps.back().time < steps[steps.size() - 2].time) {
      return Error(Code::kInvalidArgument, fmt::format("the times of '{}' must grow", text));
    }
  }
  return steps;
}

std::unique_ptr<Planner> make_scripted_planner(std::vector<ScalingStep> prefill_workers,
                                               std::vector<ScalingStep> workers) {
  return std::make_unique<ScriptedPlanner>(std::move(prefill_workers), std::move(workers));
}

}  // namespace stator::simulator
