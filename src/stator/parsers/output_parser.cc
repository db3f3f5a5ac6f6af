// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/output_parser.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/parsers/detail/compile.h"
#include "stator/parsers/detail/plan.h"

namespace stator::parsers {
namespace {

using Mode = ChoiceState::Mode;

void open_body(const ParserPlan& plan, ChoiceState& state, size_t opener_bytes) {
  state.mode = Mode::kBody;
  const bool restarts = state.spare != nullptr && state.spare->restart();
  state.body = restarts ? std::move(state.spare) : plan.machine->start();
  state.may_be_text = true;
  state.opener_bytes = opener_bytes;
  state.raw.clear();
  if (state.handed_over) {
    state.body->doubt();
  }
}

void close_body(ChoiceState& state) {
  state.mode = Mode::kText;
  state.spare = std::move(state.body);
  state.may_be_text = false;
  state.raw.clear();
}

/// The body was none: what was consumed is text, without its opener where that would show a marker
/// to the user.
void give_back(const ParserPlan& plan, ChoiceState& state, Window& in, CallWriter& out) {
  if (state.handed_over && state.raw.empty() && state.opener_bytes == 0) {
    state.handed_over = false;  // another family's marker: reasoning would only meet it again
  }
  if (state.raw.size() < state.opener_bytes) {  // or it would open the same body again
    const size_t from = in.consumed();
    in.consume(state.opener_bytes - state.raw.size());
    state.raw.append(in.consumed_since(from));
  }
  const std::string raw = std::move(state.raw);
  std::string_view text = raw;
  if (plan.keeps_opener) {
    state.kept_openers += state.opener_bytes > 0 && !state.handed_over ? 1 : 0;
  } else if (!state.handed_over) {  // a thought may be about the marker
    text.remove_prefix(std::min(state.opener_bytes, text.size()));
  }
  if (state.opener_bytes > 0 || state.at_start) {  // a bracket in prose is nothing to count
    out.recovered(Recovery::kNotACall);
  } else if (raw.size() != 1) {  // more than the bracket: it looked like a call for a while
    ++state.false_starts;
  }
  state.at_start = false;
  close_body(state);
  if (state.handed_over) {
    resume_reasoning(state, text, out);
  } else {
    out.text(text);
  }
}

/// In reasoning: what has not become a call when the reasoning ends is none. The body does not see
/// the closer, nor what is behind it.
Progress step_doubtful(const ParserPlan& plan, ChoiceState& state, Window& in, CallWriter& out) {
  const auto closer = plan.reasoning_closers.find(in);
  Window part = in.shortened(closer.offset);
  const Progress progress = state.body->step(part, out);
  const size_t taken = part.consumed() - in.consumed();
  if (state.body->committed()) {
    in.consume(taken);
    return progress == Progress::kMore ? state.body->step(in, out) : progress;
  }
  const bool is_over = closer || in.ending();
  if (progress == Progress::kMore && is_over) {
    in.consume(closer ? closer.offset : in.rest().size());
    return Progress::kNotACall;
  }
  in.consume(taken);
  return progress == Progress::kMore ? Progress::kMore : Progress::kNotACall;
}

bool step_body(const ParserPlan& plan, ChoiceState& state, Window& in, CallWriter& out) {
  const size_t from = in.consumed();
  const Progress progress = state.handed_over && state.may_be_text
                                ? step_doubtful(plan, state, in, out)
                                : state.body->step(in, out);
  if (state.may_be_text && state.body->committed()) {
    state.may_be_text = false;
    state.handed_over = false;
    state.raw.clear();
  } else if (state.may_be_text) {
    state.raw.append(in.consumed_since(from));
  }
  if (state.raw.size() > kMaxHeldBytes) {
    out.recovered(Recovery::kTooLarge);
    state.may_be_text = false;
    state.opener_bytes = 0;
    state.raw.clear();
  }
  switch (progress) {
    case Progress::kMore:
      return false;
    case Progress::kDone:
      if (state.may_be_text && state.raw.empty()) {
        if (state.opener_bytes > 0) {
          give_back(plan, state, in, out);
          return true;
        }
        ++state.false_starts;  // the body does not know the marker that its spec begins it with
      }
      state.at_start = false;
      close_body(state);
      return true;
    case Progress::kNotACall:
      give_back(plan, state, in, out);
      return true;
  }
  return false;
}

/// At the start of the output some families need no marker.
bool step_start(const ParserPlan& plan, ChoiceState& state, Window& in) {
  const size_t space = leading_space(in.rest());
  if (space > kMaxHeldSpaceBytes) {
    state.at_start = false;
    return true;
  }
  if (plan.starts_with_name) {
    if (space == in.rest().size() && !in.ending()) {
      return false;
    }
    open_body(plan, state, 0);
    return true;
  }
  const size_t from = in.consumed();
  MarkerSet::Hit hit;
  switch (plan.text_markers.match_at(in, space, hit)) {
    case MarkerSet::Match::kMaybe:
      return false;
    case MarkerSet::Match::kYes:  // of a marker, too, a bracket may be the first byte
      if (static_cast<Role>(hit.role) != Role::kPerhaps) {
        state.at_start = false;
        return true;
      }
      break;
    case MarkerSet::Match::kNo:
      break;
  }
  switch (plan.start_markers.match_at(in, space, hit)) {
    case MarkerSet::Match::kMaybe:
      return false;
    case MarkerSet::Match::kYes:
      if (static_cast<Role>(hit.role) == Role::kFraming) {
        in.consume(space + hit.length_bytes);
        state.trims_newline = !in.consumed_since(from).ends_with('\n');
        state.at_start = false;
      } else {
        open_body(plan, state, 0);
      }
      return true;
    case MarkerSet::Match::kNo:
      state.at_start = false;
      return true;
  }
  return false;
}

bool step_text(const ParserPlan& plan, ChoiceState& state, Window& in, CallWriter& out) {
  if (!trim_after_reasoning(state, in)) {
    return false;
  }
  if (state.handed_over) {
    MarkerSet::Hit handed;
    switch (plan.call_openers.match_at(in, 0, handed)) {
      case MarkerSet::Match::kYes:
        open_body(plan, state, handed.length_bytes);
        return true;
      case MarkerSet::Match::kMaybe:
        return false;
      case MarkerSet::Match::kNo:
        break;
    }
  }
  if (state.at_start && (plan.starts_with_name || !plan.start_markers.empty())) {
    return step_start(plan, state, in);
  }
  const auto hit =
      state.is_plain ? MarkerSet::Hit{.offset = in.rest().size()} : plan.text_markers.find(in);
  out.text(in.rest().substr(0, hit.offset));
  in.consume(hit.offset);
  state.handed_over = state.handed_over && hit.offset == 0;  // text: the reasoning is over
  if (!hit) {
    return false;
  }
  switch (static_cast<Role>(hit.role)) {
    case Role::kCalls:
      open_body(plan, state, hit.length_bytes);
      return true;
    case Role::kPerhaps:
      if (state.false_starts < kMaxFalseStarts) {
        open_body(plan, state, 0);  // no marker to hide; the body consumes it before it says no
        return true;
      }
      out.text(in.rest().substr(0, hit.length_bytes));
      break;
    case Role::kStray:
      if (state.kept_openers > 0) {
        --state.kept_openers;
        out.text(in.rest().substr(0, hit.length_bytes));
      } else {
        out.recovered(Recovery::kStrayMarker);
      }
      break;
    case Role::kFraming:
      state.at_start = !out.text_started();
      break;
    case Role::kReasoningOpen:
      out.begin_reasoning();
      state.mode = Mode::kReasoning;
      state.trims_newline = true;
      break;
    case Role::kReasoningClose:
      out.recovered(Recovery::kStrayMarker);
      state.trims_newline = true;
      break;
  }
  in.consume(hit.length_bytes);
  return true;
}

/// Makes events of everything that is decided.
void advance(const ParserPlan& plan, ChoiceState& state, Window& in, CallWriter& out) {
  bool going = state.peeked || peek(plan, state, in);
  while (going) {
    switch (state.mode) {
      case Mode::kReasoning:
        going = step_reasoning(plan, state, in, out);
        break;
      case Mode::kText:
        going = step_text(plan, state, in, out);
        break;
      case Mode::kBody:
        going = step_body(plan, state, in, out);
        break;
    }
  }
}

/// Most deltas are text or reasoning in which nothing begins, in the middle of an answer: these go
/// on as they are. False: it is none of them.
bool pass_on(const ParserPlan& plan, const ChoiceState& state, std::string_view text,
             CallWriter& out) {
  if (!state.peeked || state.trims_newline || state.held_newline || state.handed_over) {
    return false;
  }
  if (state.mode == Mode::kText) {
    const bool starts = state.at_start && (plan.starts_with_name || !plan.start_markers.empty());
    if (starts || plan.text_markers.may_begin_in(text)) {
      return false;
    }
    out.text(text);
    return true;
  }
  if (state.mode != Mode::kReasoning || !state.span_written || text.ends_with('\n') ||
      plan.reasoning_markers.may_begin_in(text)) {
    return false;
  }
  out.reasoning(text);
  return true;
}

/// The stream has ended inside a body that wants more.
void abandon_body(ChoiceState& state, CallWriter& out) {
  if (out.call_open()) {
    out.break_call(Recovery::kTruncatedCall);
  } else if (!state.body->between_calls()) {
    out.recovered(Recovery::kTruncatedCall);
  }
}

/// Keeps what the window did not decide.
void hold(ChoiceState& state, size_t consumed) {
  state.held.erase(0, consumed);
  std::erase_if(state.tokens, [&](const TokenSpan& token) { return token.offset < consumed; });
  for (TokenSpan& token : state.tokens) {
    token.offset -= static_cast<uint32_t>(consumed);
  }
}

}  // namespace

OutputParser::State::State(std::unique_ptr<ChoiceState> state) : state_(std::move(state)) {}
OutputParser::State::State(State&&) noexcept = default;
OutputParser::State& OutputParser::State::operator=(State&&) noexcept = default;
OutputParser::State::~State() = default;

size_t OutputParser::State::held_bytes() const {
  return state_->held.size() + state_->writer.pending_space.size();
}

OutputParser::OutputParser(std::unique_ptr<const ParserPlan> plan) : plan_(std::move(plan)) {}
OutputParser::~OutputParser() = default;

std::shared_ptr<const OutputParser> OutputParser::create(ParserOptions options) {
  return std::shared_ptr<const OutputParser>(  // NOLINT: private constructor
      new OutputParser(compile_plan(std::move(options))));
}

bool OutputParser::is_pass_through() const {
  return plan_->machine == nullptr && plan_->text_markers.empty() && plan_->start_markers.empty() &&
         plan_->options.reasoning == ReasoningMode::kOff;
}

OutputParser::State OutputParser::make_state(uint32_t choice_index) const {
  auto state = std::make_unique<ChoiceState>();
  state->writer.choice_index = choice_index;
  state->writer.holds_space = !is_pass_through();
  if (plan_->starts_in_body) {
    open_body(*plan_, *state, 0);
  } else if (plan_->options.reasoning == ReasoningMode::kStartsInside &&
             plan_->options.reasoning_family != nullptr && plan_->prefix.empty()) {
    state->mode = Mode::kReasoning;
    state->trims_newline = true;
  }
  state->peeked = !plan_->peeks || plan_->starts_in_body;
  state->held = plan_->prefix;
  return State(std::move(state));
}

void OutputParser::feed(State& state, std::string_view text, EventList& out) const {
  const Piece piece{.text = text};
  feed(state, std::span(&piece, 1), out);
}

void OutputParser::feed(State& state, std::span<const Piece> pieces, EventList& out) const {
  ChoiceState& choice = *state.state_;
  CallWriter writer(plan_->options, choice.writer, out);
  for (const Piece& piece : pieces) {
    if (piece.text.empty()) {
      continue;
    }
    if (choice.held.empty() && !piece.special) {  // the common case: nothing to join, no copy
      if (pass_on(*plan_, choice, piece.text, writer)) {
        continue;
      }
      Window window(piece.text, {}, Window::Ending::kNo);
      advance(*plan_, choice, window, writer);
      choice.held.assign(window.rest());
      continue;
    }
    if (piece.special) {
      choice.tokens.push_back({.offset = static_cast<uint32_t>(choice.held.size()),
                               .length_bytes = static_cast<uint32_t>(piece.text.size())});
    }
    choice.held.append(piece.text);
    Window window(choice.held, choice.tokens, Window::Ending::kNo);
    advance(*plan_, choice, window, writer);
    hold(choice, window.consumed());
  }
}

Outcome OutputParser::finish(State& state, StreamEnd end, EventList& out) const {
  ChoiceState& choice = *state.state_;
  CallWriter writer(plan_->options, choice.writer, out);
  Window window(choice.held, choice.tokens,
                end == StreamEnd::kStop ? Window::Ending::kByItself : Window::Ending::kYes);
  advance(*plan_, choice, window, writer);
  if (choice.mode == Mode::kBody) {
    abandon_body(choice, writer);
  }
  writer.finish();
  choice.held.clear();
  choice.tokens.clear();
  return {.has_calls = choice.writer.next_index > 0,
          .truncated_call =
              choice.writer.truncated || (choice.writer.broken && !choice.writer.completed)};
}

}  // namespace stator::parsers
