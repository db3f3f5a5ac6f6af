// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/reasoning_mode.h"

#include <algorithm>
#include <vector>

#include "stator/parsers/detail/window.h"

namespace stator::parsers {
namespace {

constexpr std::string_view kThinking = "thinking=true";
constexpr std::string_view kNotThinking = "thinking=false";
constexpr std::string_view kMode = "thinking_mode=";
constexpr std::string_view kEffort = "reasoning_effort";

bool holds(std::string_view condition, const ReasoningRequest& request) {
  if (condition == kThinking || condition == kNotThinking) {
    return request.thinking == (condition == kThinking);
  }
  if (condition.starts_with(kMode)) {
    return request.thinking_mode == condition.substr(kMode.size());
  }
  return condition == kEffort && !request.reasoning_effort.empty() &&
         request.reasoning_effort != "none";
}

bool any_holds(const std::vector<std::string>& conditions, const ReasoningRequest& request) {
  return std::ranges::any_of(conditions,
                             [&](const std::string& one) { return holds(one, request); });
}

/// White space around a marker is the template's, not the marker's.
bool ends_with_any(std::string_view prompt, const Markers& markers) {
  return std::ranges::any_of(
      markers, [&](const Marker& marker) { return trim(prompt).ends_with(trim(marker.text)); });
}

}  // namespace

ReasoningMode choose_reasoning_mode(const ReasoningSpec& spec, std::string_view prompt,
                                    const ReasoningRequest& request) {
  if (ends_with_any(prompt, spec.open)) {
    return ReasoningMode::kStartsInside;
  }
  const auto& needed = spec.find_words("off_unless");
  if (any_holds(spec.find_words("off_when"), request) ||
      (!needed.empty() && !any_holds(needed, request))) {
    return ReasoningMode::kOff;
  }
  const bool inside = spec.starts_inside && !ends_with_any(prompt, spec.close);
  return inside ? ReasoningMode::kStartsInside : ReasoningMode::kOn;
}

bool is_reasoning_condition(std::string_view word) {
  return word == kThinking || word == kNotThinking || word == kEffort ||
         (word.starts_with(kMode) && word.size() > kMode.size());
}

}  // namespace stator::parsers
