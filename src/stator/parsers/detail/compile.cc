// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/compile.h"

#include <utility>

#include "stator/parsers/detail/plan.h"

namespace stator::parsers {
namespace {

/// What begins calls in running text.
Markers opening_markers(const FamilySpec& spec) {
  Markers markers = spec.find_markers("section_begin");
  if (!spec.has_flag("needs_section")) {
    const Markers& more = spec.find_markers("call_begin");
    markers.insert(markers.end(), more.begin(), more.end());
  }
  return markers;
}

constexpr std::string_view kStrayKeys[] = {"section_end", "call_end", "stray"};

void add_calls(const FamilySpec& spec, ParserPlan& plan) {
  MarkerSet& opening = spec.has_flag("at_start_only") ? plan.start_markers : plan.text_markers;
  opening.add(opening_markers(spec), static_cast<int>(Role::kCalls));
  plan.start_markers.add(spec.find_markers("at_start"), static_cast<int>(Role::kCalls));
  plan.text_markers.add(spec.find_markers("in_text"), static_cast<int>(Role::kPerhaps));
  for (const std::string_view key : kStrayKeys) {
    plan.text_markers.add(spec.find_markers(key), static_cast<int>(Role::kStray));
  }
  plan.starts_in_body = spec.has_flag("whole_output");
  plan.starts_with_name = spec.has_flag("name_at_start");
}

void add_reasoning(const ReasoningSpec& spec, ParserPlan& plan) {
  if (plan.options.reasoning == ReasoningMode::kOff) {
    if (spec.has_flag("strip_opener_when_off")) {
      plan.start_markers.add(spec.open, static_cast<int>(Role::kFraming));
    }
    return;
  }
  if (spec.has_flag("prepend_opener")) {
    plan.prefix = spec.open.empty() ? "" : spec.open[0].text;
    return;
  }
  plan.peeks = plan.options.answers_json || plan.options.tool_mode == ToolMode::kGuidedCalls ||
               plan.options.tool_mode == ToolMode::kGuidedArguments;
  plan.reasoning_markers.add(spec.close, static_cast<int>(Role::kReasoningClose));
  plan.reasoning_closers.add(spec.close, static_cast<int>(Role::kReasoningClose));
  plan.reasoning_markers.add(spec.open, static_cast<int>(Role::kReasoningOpen));
  plan.text_markers.add(spec.open, static_cast<int>(Role::kReasoningOpen));
  plan.text_markers.add(spec.close, static_cast<int>(Role::kReasoningClose));
  plan.text_markers.add(spec.framing, static_cast<int>(Role::kFraming));
  if (plan.machine == nullptr) {
    return;
  }
  plan.reasoning_markers.add(spec.hand_over, static_cast<int>(Role::kCalls));
  if (!spec.hand_over.empty()) {
    for (const std::string_view key : {"section_begin", "call_begin"}) {
      plan.call_openers.add(plan.calls_family->find_markers(key), static_cast<int>(Role::kCalls));
    }
  }
  if (spec.has_flag("hand_over_calls")) {
    plan.reasoning_markers.add(opening_markers(*plan.calls_family), static_cast<int>(Role::kCalls));
  }
}

/// The format that guided decoding makes of a required call: JSON without markers, from the start.
std::shared_ptr<const FamilySpec> guided_family(std::string_view first) {
  auto spec = std::make_shared<FamilySpec>();
  spec->name = "guided_json";
  spec->body = BodyKind::kJsonCalls;
  spec->markers["at_start"] = {{.text = std::string(first)}};
  spec->flags = {"empty_arguments"};
  return spec;
}

std::shared_ptr<const FamilySpec> choose_calls_family(const ParserOptions& options) {
  switch (options.tool_mode) {
    case ToolMode::kGuidedCalls:
      return guided_family("[");
    case ToolMode::kGuidedArguments:
      return guided_family("{");
    case ToolMode::kNative:
      return options.tools_family;
    case ToolMode::kOff:
      break;
  }
  const bool channels = options.tools_family != nullptr && options.tools_family->always_on &&
                        options.tools_family->has_flag("whole_output");
  return channels ? options.tools_family : nullptr;
}

}  // namespace

std::unique_ptr<const ParserPlan> compile_plan(ParserOptions options) {
  auto plan = std::make_unique<ParserPlan>();
  plan->options = std::move(options);
  plan->start_markers = MarkerSet(plan->options.special_markers);
  plan->text_markers = MarkerSet(plan->options.special_markers);
  plan->reasoning_markers = MarkerSet(plan->options.special_markers);
  plan->reasoning_closers = MarkerSet(plan->options.special_markers);
  plan->call_openers = MarkerSet(plan->options.special_markers);
  plan->calls_family = choose_calls_family(plan->options);
  if (plan->calls_family != nullptr) {
    const bool named = plan->options.tool_mode == ToolMode::kGuidedArguments;
    plan->machine =
        named ? make_guided_arguments_machine()
              : make_body_machine({.spec = *plan->calls_family, .options = plan->options});
    plan->calls_are_json = plan->calls_family->body == BodyKind::kJsonCalls;
    plan->keeps_opener = plan->calls_family->has_flag("keep_opener");
    add_calls(*plan->calls_family, *plan);
  }
  if (plan->calls_family == nullptr && plan->options.tools_family != nullptr) {
    plan->start_markers.add(plan->options.tools_family->find_markers("text_prefix"),
                            static_cast<int>(Role::kFraming));
  }
  if (plan->options.tools_family != nullptr && plan->options.tools_family->always_on) {
    plan->text_markers.add(plan->options.tools_family->find_markers("framing"),
                           static_cast<int>(Role::kFraming));
  }
  if (plan->options.reasoning_family != nullptr) {
    add_reasoning(*plan->options.reasoning_family, *plan);
  }
  return plan;
}

}  // namespace stator::parsers
