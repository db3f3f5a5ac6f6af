// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/plan.h"

namespace stator::parsers {
namespace {

/// White space at the start of a span that waits for what follows; a longer run is reasoning.
constexpr size_t kMaxLeadingSpaceBytes = 4096;

/// Drops the newline that belongs to the marker before it. False if it has not arrived yet.
bool trim_newline(ChoiceState& state, Window& in) {
  if (!state.trims_newline) {
    return true;
  }
  if (in.empty()) {
    return false;
  }
  if (in.rest()[0] == '\n') {
    in.consume(1);
  }
  state.trims_newline = false;
  return true;
}

void write(ChoiceState& state, std::string_view text, CallWriter& out) {
  if (text.empty()) {
    return;
  }
  if (state.reasoned_before) {
    out.reasoning("\n");
    state.reasoned_before = false;
  }
  state.reasoning_written = state.span_written = true;
  out.reasoning(text);
}

/// At a closer, or in front of calls; `newline_last`: a line break before it was not written.
void end_span(ChoiceState& state, Role role, bool newline_last, CallWriter& out) {
  state.trims_newline = state.trims_newline || role == Role::kReasoningClose;
  state.handed_over = role == Role::kCalls;
  state.handed_newline = state.handed_over && newline_last;
  state.held_newline = false;
  state.reasoned_before = state.reasoning_written;
  state.span_written = false;
  state.mode = ChoiceState::Mode::kText;
  state.at_start = !out.text_started();
  out.end_reasoning();
}

}  // namespace

bool peek(const ParserPlan& plan, ChoiceState& state, Window& in) {
  const size_t space = leading_space(in.rest());
  MarkerSet::Hit hit;
  const auto match = plan.reasoning_markers.match_at(in, space, hit);  // Mistral's begins with '['
  if (space > kMaxHeldSpaceBytes) {
    state.peeked = true;
    return true;
  }
  if (match == MarkerSet::Match::kMaybe || (space == in.rest().size() && !in.ending())) {
    return false;
  }
  const char first = space < in.rest().size() ? in.rest()[space] : '\0';
  if (match == MarkerSet::Match::kNo && (first == '{' || first == '[')) {
    state.mode = ChoiceState::Mode::kText;
    state.trims_newline = false;
    state.is_plain = plan.machine == nullptr;
  }
  state.peeked = true;
  return true;
}

bool step_reasoning(const ParserPlan& plan, ChoiceState& state, Window& in, CallWriter& out) {
  if (!trim_newline(state, in)) {
    return false;
  }
  const auto hit = plan.reasoning_markers.find(in);
  const std::string_view text = in.rest().substr(0, hit.offset);
  const bool newline_last = text.ends_with('\n');
  const auto role = static_cast<Role>(hit.role);
  const bool held_before_calls = state.held_newline && hit.offset == 0 && role == Role::kCalls;
  if (state.held_newline && !held_before_calls) {
    if (!hit && text.empty() && !in.ending()) {
      return false;
    }
    if (hit.offset > 0 || role != Role::kReasoningClose) {
      write(state, "\n", out);
    }
    state.held_newline = false;
  }
  // White space in front of an opener that repeats the prompt's is none of the reasoning.
  const bool is_blank = !state.span_written && text.size() <= kMaxLeadingSpaceBytes &&
                        leading_space(text) == text.size();
  if (!hit && is_blank && !in.ending()) {
    return false;
  }
  if (!hit) {  // a newline may belong to the closer behind it
    const size_t sure = text.size() - (newline_last && !in.ending() ? 1 : 0);
    write(state, text.substr(0, sure), out);
    in.consume(sure);
    return false;
  }
  if (role == Role::kCalls && plan.calls_are_json) {  // or the model only thinks about calls
    const size_t behind = hit.offset + hit.length_bytes;
    const size_t space = leading_space(in.rest().substr(behind));
    const bool is_cut = behind + space == in.rest().size();
    if (is_cut && !in.ending() && space <= kMaxHeldSpaceBytes) {
      write(state, text.substr(0, text.size() - (newline_last ? 1 : 0)), out);
      in.consume(text.size() - (newline_last ? 1 : 0));
      return false;
    }
    const char first = is_cut ? '\0' : in.rest()[behind + space];
    if (!is_cut && first != '{' && first != '[') {
      write(state, held_before_calls ? "\n" : "", out);
      state.held_newline = false;
      write(state, in.rest().substr(0, behind), out);
      in.consume(behind);
      return true;
    }
  }
  if (role == Role::kReasoningOpen) {
    const size_t end = hit.offset + hit.length_bytes;
    if (is_blank) {  // written although the prompt had it
      state.trims_newline = true;
    } else {
      write(state, in.rest().substr(0, end), out);
    }
    in.consume(end);
    return true;
  }
  write(state, text.substr(0, text.size() - (newline_last ? 1 : 0)), out);
  in.consume(hit.offset + (role == Role::kReasoningClose ? hit.length_bytes : 0));
  end_span(state, role, newline_last || held_before_calls, out);
  return true;
}

void resume_reasoning(ChoiceState& state, std::string_view text, CallWriter& out) {
  state.reasoned_before = false;                   // still the same span
  const bool newline_last = text.ends_with('\n');  // it may belong to a closer behind it
  if (state.handed_newline) {
    write(state, "\n", out);
  }
  write(state, text.substr(0, text.size() - (newline_last ? 1 : 0)), out);
  state.held_newline = newline_last;
  state.handed_over = false;
  state.mode = ChoiceState::Mode::kReasoning;
}

bool trim_after_reasoning(ChoiceState& state, Window& in) {
  return trim_newline(state, in);
}

}  // namespace stator::parsers
