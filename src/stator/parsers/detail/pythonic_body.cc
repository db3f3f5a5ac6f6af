// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/byte_set.h"
#include "stator/parsers/detail/python_literal.h"

// Calls as Python writes them, in a list or one per line.
//
//   [get_weather(city="Oslo", days=2), get_time()]
//
// Spec keys. Markers: section_begin (before the list; the list may then also be bare lines),
// section_end. Flag: json_calls (behind section_begin there may also be JSON calls). A call is
// written when its parenthesis closes, so one that is malformed costs its neighbours nothing. A
// list without a marker that stands behind text counts only if its first tool is a declared one.

namespace stator::parsers {
namespace {

constexpr int kOpen = 0;
constexpr int kClose = 1;

struct PythonicMachine final : BodyMachine {
  explicit PythonicMachine(const BodyContext& context) : markers(context.options.special_markers) {
    markers.add(context.spec.find_markers("section_begin"), kOpen);
    markers.add(context.spec.find_markers("section_end"), kClose);
    if (context.spec.has_flag("json_calls")) {
      json_calls = make_json_calls_machine(context);
    }
  }
  std::unique_ptr<Body> start() const override;

  MarkerSet markers;
  std::unique_ptr<const BodyMachine> json_calls;  // null: Python only
};

class PythonicBody final : public Body {
 public:
  explicit PythonicBody(const PythonicMachine& machine) : machine_(machine) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override {
    return json_calls_ != nullptr ? json_calls_->between_calls()
                                  : (at_ == At::kCall && !in_name_) || at_ == At::kAfter;
  }
  bool committed() const override {
    return json_calls_ != nullptr ? json_calls_->committed() : is_sure();
  }
  void doubt() override { in_doubt_ = true; }

 private:
  enum class At : uint8_t {
    kOpening,    // before the list
    kCall,       // before a call, a separator or the end of the list
    kArguments,  // behind the call's opening parenthesis
    kAfter,      // behind the list
    kGarbage,    // something else: skip to the closing marker
  };
  enum class Go : uint8_t { kOn, kMore, kDone, kNotACall };

  Go opening(Window& in);
  Go begin_marked(Window& in, size_t marker_bytes);
  Go call(Window& in, CallWriter& out);
  Go arguments(Window& in, CallWriter& out);
  Go malformed(CallWriter& out);
  enum class CallEnd : uint8_t { kSound, kInText, kUndecided };
  CallEnd call_end(const Window& in, size_t behind) const;
  /// What follows is a call, or a broken one.
  bool is_sure() const { return committed_ || (marked_ && !in_doubt_); }

  const PythonicMachine& machine_;
  std::unique_ptr<Body> json_calls_;  // set: it reads everything
  At at_ = At::kOpening;
  bool in_doubt_ = false;   // only a call that is written is one
  bool marked_ = false;     // an opening marker stood before the list
  bool bracketed_ = false;  // the list's bracket is open
  bool committed_ = false;  // some call has been written
  bool in_name_ = false;    // half a name waits for the rest
  std::string name_;
  PythonCallScanner scanner_;
};

std::unique_ptr<Body> PythonicMachine::start() const {
  return std::make_unique<PythonicBody>(*this);
}

Progress PythonicBody::step(Window& in, CallWriter& out) {
  Go go = Go::kOn;
  while (go == Go::kOn) {
    if (json_calls_ != nullptr) {
      return json_calls_->step(in, out);
    }
    switch (at_) {
      case At::kOpening:
        go = opening(in);
        break;
      case At::kCall:
        go = call(in, out);
        break;
      case At::kArguments:
        go = arguments(in, out);
        break;
      case At::kAfter:
        go = take_closer(in, machine_.markers, kClose) ? Go::kDone : Go::kMore;
        break;
      case At::kGarbage:
        go = skip_past_closer(in, machine_.markers, kClose) ? Go::kDone : Go::kMore;
        break;
    }
  }
  if (go == Go::kMore && (!in.ending() || is_sure())) {
    return Progress::kMore;
  }
  return go == Go::kDone ? Progress::kDone : Progress::kNotACall;
}

PythonicBody::Go PythonicBody::malformed(CallWriter& out) {
  if (!is_sure()) {
    return Go::kNotACall;
  }
  out.recovered(Recovery::kMalformedBody);
  if (!marked_) {
    return Go::kDone;
  }
  at_ = At::kGarbage;
  return Go::kOn;
}

PythonicBody::Go PythonicBody::opening(Window& in) {
  in.consume(leading_space(in.rest()));
  if (in.empty()) {
    return Go::kMore;
  }
  MarkerSet::Hit hit;
  switch (machine_.markers.match_at(in, 0, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kYes:
      if (hit.role == kOpen) {
        return begin_marked(in, hit.length_bytes);
      }
      marked_ = true;
      in.consume(hit.length_bytes);
      return Go::kDone;
    case MarkerSet::Match::kNo:
      break;
  }
  bracketed_ = in.rest()[0] == '[';
  if (!bracketed_ && !marked_) {
    return Go::kNotACall;
  }
  in.consume(bracketed_ ? 1 : 0);
  at_ = At::kCall;
  return Go::kOn;
}

/// Behind the opening marker: Python, or JSON if the family has both.
PythonicBody::Go PythonicBody::begin_marked(Window& in, size_t marker_bytes) {
  if (machine_.json_calls != nullptr && !marked_) {
    static constexpr ByteSet kBeforeFirst(" \t\r\n[");
    const size_t first = kBeforeFirst.skip_in(in.rest(), marker_bytes);
    if (first == in.rest().size() && first - marker_bytes <= kMaxHeldSpaceBytes && !in.ending()) {
      return Go::kMore;
    }
    if (first < in.rest().size() && in.rest()[first] == '{') {
      json_calls_ = machine_.json_calls->start();
      return Go::kOn;
    }
  }
  marked_ = true;
  in.consume(marker_bytes);
  return Go::kOn;
}

constexpr ByteSet kSeparators(" \t\r\n,;");
constexpr ByteSet kNameBytes =
    ByteSet("_.-").with('a', 'z').with('A', 'Z').with('0', '9').with(0x80, 0xFF);

PythonicBody::Go PythonicBody::call(Window& in, CallWriter& out) {
  in.consume(kSeparators.skip_in(in.rest()));
  in_name_ = false;
  if (in.empty()) {
    return Go::kMore;
  }
  if (in.rest()[0] == ']' && bracketed_) {
    in.consume(1);
    at_ = At::kAfter;
    return is_sure() ? Go::kOn : Go::kNotACall;  // an empty list is text
  }
  MarkerSet::Hit hit;
  const auto match = machine_.markers.match_at(in, 0, hit);
  if (match == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  if (match == MarkerSet::Match::kYes || machine_.markers.is_cut_off(in, 0)) {
    at_ = At::kAfter;
    return Go::kOn;
  }
  const size_t length = kNameBytes.skip_in(in.rest());
  if (length > kMaxCallNameBytes) {
    return malformed(out);
  }
  in_name_ = length == in.rest().size();
  if (in_name_) {
    return Go::kMore;
  }
  if (length == 0 || in.rest()[length] != '(') {
    return malformed(out);
  }
  name_ = in.rest().substr(0, length);
  const ToolSchemas* schemas = out.options().schemas.get();
  if (!marked_ && !committed_ && out.text_started() && schemas != nullptr &&
      !schemas->contains(name_)) {
    return Go::kNotACall;  // code in an answer
  }
  in.consume(length + 1);
  scanner_.reset();
  at_ = At::kArguments;
  return Go::kOn;
}

/// Behind the parenthesis at the end of a call stands something of the list. Else a quote inside a
/// text was taken for its end, and what was read is a part of a call: `f(a="g("b")")`.
PythonicBody::CallEnd PythonicBody::call_end(const Window& in, size_t behind) const {
  const size_t space = leading_space(in.rest().substr(behind));
  const size_t next = behind + space;
  if (next == in.rest().size()) {
    return in.ending() || space > kMaxHeldSpaceBytes ? CallEnd::kSound : CallEnd::kUndecided;
  }
  const char c = in.rest()[next];
  MarkerSet::Hit hit;
  const bool is_list = c == ']' || kSeparators.contains(c) || (space > 0 && kNameBytes.contains(c));
  if (is_list || machine_.markers.is_cut_off(in, next)) {
    return CallEnd::kSound;
  }
  switch (machine_.markers.match_at(in, next, hit)) {
    case MarkerSet::Match::kMaybe:
      return CallEnd::kUndecided;
    case MarkerSet::Match::kYes:
      return CallEnd::kSound;
    case MarkerSet::Match::kNo:
      break;
  }
  return CallEnd::kInText;
}

PythonicBody::Go PythonicBody::arguments(Window& in, CallWriter& out) {
  const size_t end =
      scanner_.find_end(in.rest(), in.ending() ? Window::Ending::kYes : Window::Ending::kNo);
  if (end == std::string_view::npos) {
    if (in.rest().size() <= kMaxHeldBytes) {
      return Go::kMore;
    }
    out.recovered(Recovery::kTooLarge);
    return malformed(out);
  }
  const CallEnd after = bracketed_ ? call_end(in, end + 1) : CallEnd::kSound;
  if (after == CallEnd::kUndecided) {
    return Go::kMore;
  }
  if (after == CallEnd::kInText) {
    return malformed(out);
  }
  std::string& json = out.scratch();
  const bool sound = append_python_arguments(json, in.rest().substr(0, end));
  if (!sound && !is_sure()) {
    return Go::kNotACall;
  }
  in.consume(end + 1);
  at_ = At::kCall;
  if (!sound) {
    out.recovered(Recovery::kMalformedBody);
    return Go::kOn;
  }
  committed_ = true;
  out.begin_call(name_);
  out.arguments(json);
  out.end_call();
  return Go::kOn;
}

}  // namespace

std::unique_ptr<const BodyMachine> make_pythonic_machine(const BodyContext& context) {
  return std::make_unique<PythonicMachine>(context);
}

}  // namespace stator::parsers
