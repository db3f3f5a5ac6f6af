// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/contains.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/detail/names.h"

// Calls as a name followed by a JSON object of arguments.
//
//   <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
//
// Spec keys. Markers: section_begin, section_end (around all calls, optional), call_begin,
// call_end (optional), name_end (behind the name), name_stop (ends the name, belongs to what
// follows), id_begin (an id follows, up to name_end), fence (may stand around the arguments).
// Words: name_prefixes (removed from names), text_names (such a "call" is text). Flags:
// id_from_name (NAME:0 is the call's id), json_calls (behind the opener there may also be JSON
// calls), name_at_start (the first name needs no call_begin).

namespace stator::parsers {
namespace {

enum Part : int {
  kSectionBegin,
  kSectionEnd,
  kCallBegin,
  kCallEnd,
  kNameEnd,
  kNameStop,
  kIdBegin,
  kFence,
};

struct NamedJsonMachine final : BodyMachine {
  explicit NamedJsonMachine(const BodyContext& context);
  std::unique_ptr<Body> start() const override;

  MarkerSet framing;    // around calls
  MarkerSet name_ends;  // what may end a name or an id
  MarkerSet fences;     // framing, and what may stand around arguments
  std::vector<std::string> name_prefixes;
  std::vector<std::string> text_names;
  std::unique_ptr<const BodyMachine> json_calls;
  bool has_closer = false;
  bool marks_name_end = false;  // by a special token: there is a call, or a broken one
  bool id_from_name = false;
  bool name_at_start = false;
};

class NamedJsonBody final : public Body {
 public:
  explicit NamedJsonBody(const NamedJsonMachine& machine) : machine_(machine) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override {
    return json_calls_ != nullptr ? json_calls_->between_calls()
                                  : at_ == At::kBetween || at_ == At::kAfterArguments;
  }
  bool committed() const override {
    return json_calls_ != nullptr ? json_calls_->committed() : committed_;
  }
  void doubt() override { in_doubt_ = true; }
  bool restart() override;

 private:
  enum class At : uint8_t {
    kBetween,  // calls
    kName,
    kId,
    kBeforeArguments,
    kArguments,
    kAfterArguments,
    kGarbage,  // skip to the next marker
  };
  enum class Go : uint8_t { kOn, kMore, kDone, kNotACall };

  Go dispatch(Window& in, CallWriter& out);
  Go between(Window& in, CallWriter& out);
  Go call_begins(Window& in, const MarkerSet::Hit& hit);
  Go name(Window& in, CallWriter& out);
  Go id(Window& in, CallWriter& out);
  Go before_arguments(Window& in, CallWriter& out);
  Go arguments(Window& in, CallWriter& out);
  Go after_arguments(Window& in);
  Go garbage(Window& in);
  Go malformed(CallWriter& out);
  void set_name(std::string_view text);

  const NamedJsonMachine& machine_;
  std::unique_ptr<Body> json_calls_;  // set: it reads everything
  At at_ = At::kBetween;
  bool in_section_ = false;
  bool in_doubt_ = false;   // only a call that is written is one
  bool started_ = false;    // some marker, or a name at the start, was read
  bool committed_ = false;  // some call has been written, or its name is certain
  std::string name_;
  std::string id_;
  JsonStream json_;
};

NamedJsonMachine::NamedJsonMachine(const BodyContext& context)
    : framing(context.options.special_markers),
      name_ends(context.options.special_markers),
      fences(context.options.special_markers),
      name_prefixes(context.spec.find_words("name_prefixes")),
      text_names(context.spec.find_words("text_names")),
      id_from_name(context.spec.has_flag("id_from_name")),
      name_at_start(context.spec.has_flag("name_at_start")) {
  const FamilySpec& spec = context.spec;
  fences.add(spec.find_markers("fence"), kFence);
  name_ends.add(spec.find_markers("name_end"), kNameEnd);
  name_ends.add(spec.find_markers("name_stop"), kNameStop);
  name_ends.add(spec.find_markers("id_begin"), kIdBegin);
  for (MarkerSet* set : {&framing, &name_ends, &fences}) {
    set->add(spec.find_markers("section_begin"), kSectionBegin);
    set->add(spec.find_markers("section_end"), kSectionEnd);
    set->add(spec.find_markers("call_begin"), kCallBegin);
    set->add(spec.find_markers("call_end"), kCallEnd);
  }
  has_closer = !spec.find_markers("call_end").empty();
  marks_name_end =
      !has_closer && std::ranges::any_of(spec.find_markers("name_end"),
                                         [](const Marker& one) { return one.special; });
  if (has_closer) {
    name_ends.hold_at_end();
    fences.hold_at_end();
  }
  if (spec.has_flag("json_calls")) {
    json_calls = make_json_calls_machine(context);
  }
}

std::unique_ptr<Body> NamedJsonMachine::start() const {
  return std::make_unique<NamedJsonBody>(*this);
}

bool NamedJsonBody::restart() {
  json_calls_ = nullptr;
  at_ = At::kBetween;
  in_section_ = false;
  in_doubt_ = false;
  started_ = false;
  committed_ = false;
  name_.clear();
  id_.clear();
  json_ = JsonStream();
  return true;
}

Progress NamedJsonBody::step(Window& in, CallWriter& out) {
  Go go = Go::kOn;
  while (go == Go::kOn) {
    if (json_calls_ != nullptr) {
      return json_calls_->step(in, out);
    }
    go = dispatch(in, out);
  }
  if (go == Go::kMore && (!in.ending() || machine_.has_closer || committed_)) {
    return Progress::kMore;
  }
  return go == Go::kDone ? Progress::kDone : Progress::kNotACall;
}

NamedJsonBody::Go NamedJsonBody::dispatch(Window& in, CallWriter& out) {
  switch (at_) {
    case At::kBetween:
      return between(in, out);
    case At::kName:
      return name(in, out);
    case At::kId:
      return id(in, out);
    case At::kBeforeArguments:
      return before_arguments(in, out);
    case At::kArguments:
      return arguments(in, out);
    case At::kAfterArguments:
      return after_arguments(in);
    case At::kGarbage:
      return garbage(in);
  }
  return Go::kDone;
}

/// The call cannot be read. Where calls have closers it is removed, else it is text, or over.
NamedJsonBody::Go NamedJsonBody::malformed(CallWriter& out) {
  if (in_doubt_ && !committed_) {
    return Go::kNotACall;
  }
  if (out.call_open() || machine_.has_closer || committed_) {
    out.give_up(Recovery::kMalformedBody);
  }
  if (!machine_.has_closer) {
    return committed_ ? Go::kDone : Go::kNotACall;
  }
  at_ = At::kGarbage;
  return Go::kOn;
}

NamedJsonBody::Go NamedJsonBody::between(Window& in, CallWriter& out) {
  const size_t space = leading_space(in.rest());
  if (space > kMaxHeldSpaceBytes) {
    return Go::kDone;
  }
  if (!started_ && machine_.name_at_start && space < in.rest().size()) {
    MarkerSet::Hit first;
    const auto match = machine_.framing.match_at(in, space, first);
    if (match == MarkerSet::Match::kMaybe) {
      return Go::kMore;
    }
    in.consume(space);
    started_ = true;
    at_ = match == MarkerSet::Match::kNo ? At::kName : At::kBetween;
    return Go::kOn;
  }
  if (space == in.rest().size()) {
    return in.ending() ? Go::kDone : Go::kMore;
  }
  MarkerSet::Hit hit;
  switch (machine_.framing.match_at(in, space, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kNo:
      if (!started_ && machine_.json_calls != nullptr) {  // the opener was left out, or cut out
        json_calls_ = machine_.json_calls->start();
        return Go::kOn;
      }
      if (!in_section_) {
        return Go::kDone;
      }
      if (in_doubt_ && !committed_) {
        return Go::kNotACall;
      }
      out.recovered(Recovery::kMalformedBody);
      at_ = At::kGarbage;
      return Go::kOn;
    case MarkerSet::Match::kYes:
      break;
  }
  in.consume(space);
  if (hit.role == kCallBegin) {
    return call_begins(in, hit);
  }
  in.consume(hit.length_bytes);
  started_ = true;
  in_section_ = in_section_ || hit.role == kSectionBegin;
  return hit.role == kSectionEnd ? Go::kDone : Go::kOn;
}

NamedJsonBody::Go NamedJsonBody::call_begins(Window& in, const MarkerSet::Hit& hit) {
  if (machine_.json_calls != nullptr && !committed_) {
    const size_t next = in.rest().find_first_not_of(" \t\r\n", hit.length_bytes);
    if (next == std::string_view::npos) {
      return in.ending() ? Go::kNotACall : Go::kMore;
    }
    MarkerSet::Hit marker;  // may begin with a bracket, too
    const auto match = machine_.framing.match_at(in, next, marker);
    if (match == MarkerSet::Match::kMaybe) {
      return Go::kMore;
    }
    const bool is_json = in.rest()[next] == '[' || in.rest()[next] == '{';
    if (is_json && match == MarkerSet::Match::kNo) {
      json_calls_ = machine_.json_calls->start();
      return Go::kOn;
    }
  }
  in.consume(hit.length_bytes);
  started_ = true;
  name_.clear();
  id_.clear();
  at_ = At::kName;
  return Go::kOn;
}

/// Of white space at its ends, `text` is free.
void NamedJsonBody::set_name(std::string_view text) {
  if (machine_.name_prefixes.empty() && !machine_.id_from_name) {
    name_ = text;
    return;
  }
  const std::string_view whole = text;
  for (const std::string& prefix : machine_.name_prefixes) {
    if (text.starts_with(prefix)) {
      text.remove_prefix(prefix.size());
      break;
    }
  }
  if (machine_.id_from_name) {
    const size_t colon = text.rfind(':');
    const bool numbered = colon != std::string_view::npos && colon + 1 < text.size() &&
                          text.find_first_not_of("0123456789", colon + 1) == text.npos;
    if (numbered) {
      id_ = whole;
      text = text.substr(0, colon);
    }
  }
  name_ = trim(text);
}

NamedJsonBody::Go NamedJsonBody::name(Window& in, CallWriter& out) {
  const auto hit = machine_.name_ends.find(in);
  if (hit.offset > kMaxCallNameBytes) {
    return malformed(out);
  }
  const std::string_view text = trim(in.rest().substr(0, hit.offset));
  if (!hit) {  // prose shows early, and need not wait
    const bool prose = !machine_.has_closer && !text.empty() && !is_plausible_name(text);
    return prose ? malformed(out) : Go::kMore;
  }
  if (hit.role == kNameEnd && contains(machine_.text_names, text)) {
    in.consume(hit.offset + hit.length_bytes);
    return Go::kDone;
  }
  set_name(text);
  const bool ends_well = hit.role == kNameEnd || hit.role == kNameStop || hit.role == kIdBegin;
  if (!ends_well || !is_plausible_name(name_)) {
    if (!ends_well || !text.empty() || !machine_.has_closer || (in_doubt_ && !committed_)) {
      return malformed(out);
    }
    out.recovered(Recovery::kMissingName);
    at_ = At::kGarbage;
    return Go::kOn;
  }
  in.consume(hit.offset + (hit.role == kNameStop ? 0 : hit.length_bytes));
  committed_ = committed_ || (machine_.marks_name_end && hit.role != kNameStop && !in_doubt_);
  at_ = hit.role == kIdBegin ? At::kId : At::kBeforeArguments;
  return Go::kOn;
}

NamedJsonBody::Go NamedJsonBody::id(Window& in, CallWriter& out) {
  const auto hit = machine_.name_ends.find(in);
  if (hit.offset > kMaxCallNameBytes) {
    return malformed(out);
  }
  if (!hit) {
    return Go::kMore;
  }
  if (hit.role != kNameEnd && hit.role != kNameStop) {
    return malformed(out);
  }
  id_ = trim(in.rest().substr(0, hit.offset));
  in.consume(hit.offset + (hit.role == kNameStop ? 0 : hit.length_bytes));
  at_ = At::kBeforeArguments;
  return Go::kOn;
}

NamedJsonBody::Go NamedJsonBody::before_arguments(Window& in, CallWriter& out) {
  in.consume(leading_space(in.rest()));
  if (in.empty()) {
    return Go::kMore;
  }
  MarkerSet::Hit hit;
  const auto match = machine_.fences.match_at(in, 0, hit);
  if (match == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  if (match == MarkerSet::Match::kYes && hit.role == kFence) {
    in.consume(hit.length_bytes);
    return Go::kOn;
  }
  const bool absent = match == MarkerSet::Match::kYes && hit.role == kCallEnd;
  if (!absent && in.rest()[0] != '{') {
    return malformed(out);
  }
  if (!absent) {
    const auto start = object_start(in.rest());
    if (start != ObjectStart::kObject) {  // a call is announced when its arguments may be JSON
      return start == ObjectStart::kOther ? malformed(out) : Go::kMore;
    }
  }
  out.begin_call(name_, id_);
  committed_ = true;
  if (absent) {
    out.recovered(Recovery::kMissingArguments);
    out.arguments("{}");
    out.end_call();
    at_ = At::kAfterArguments;
    return Go::kOn;
  }
  json_ = JsonStream();
  at_ = At::kArguments;
  return Go::kOn;
}

NamedJsonBody::Go NamedJsonBody::arguments(Window& in, CallWriter& out) {
  std::string& fragment = out.scratch();
  in.consume(json_.feed(in.rest(), fragment));
  out.arguments(fragment);
  if (json_.status() == JsonStream::Status::kMore) {
    return Go::kMore;
  }
  if (json_.repaired()) {
    out.recovered(Recovery::kRepairedArguments);
  }
  if (json_.status() == JsonStream::Status::kMalformed) {
    return malformed(out);
  }
  out.end_call();
  at_ = At::kAfterArguments;
  return Go::kOn;
}

NamedJsonBody::Go NamedJsonBody::after_arguments(Window& in) {
  const size_t space = leading_space(in.rest());
  if (space > kMaxHeldSpaceBytes) {
    return Go::kDone;
  }
  if (space == in.rest().size()) {
    return in.ending() ? Go::kDone : Go::kMore;
  }
  MarkerSet::Hit hit;
  switch (machine_.fences.match_at(in, space, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kNo:
      if (!machine_.has_closer) {
        return Go::kDone;
      }
      if (in.rest()[space] != '}' && in.rest()[space] != ']') {
        return Go::kDone;  // the closer was forgotten, or text slipped in before it
      }
      in.consume(space + 1);
      return Go::kOn;
    case MarkerSet::Match::kYes:
      break;
  }
  if (hit.role == kFence) {
    in.consume(space + hit.length_bytes);
    return Go::kOn;
  }
  at_ = At::kBetween;
  if (hit.role == kCallBegin) {
    in.consume(space);
    return call_begins(in, hit);
  }
  if (hit.role == kCallEnd) {
    in.consume(space + hit.length_bytes);
  }
  return Go::kOn;
}

NamedJsonBody::Go NamedJsonBody::garbage(Window& in) {
  const auto hit = machine_.framing.find(in);
  in.consume(hit.offset);
  if (!hit) {
    return in.ending() ? Go::kDone : Go::kMore;
  }
  if (hit.role == kCallEnd) {
    in.consume(hit.length_bytes);
  }
  at_ = At::kBetween;
  return Go::kOn;
}

}  // namespace

std::unique_ptr<const BodyMachine> make_named_json_machine(const BodyContext& context) {
  return std::make_unique<NamedJsonMachine>(context);
}

}  // namespace stator::parsers
