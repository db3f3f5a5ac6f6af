// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/coerce.h"
#include "stator/parsers/detail/entities.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/detail/names.h"

// Calls with one tag per parameter. Values are bare text: the tool's schema says what they are.
//
//   <tool_call><function=f><parameter=a>1</parameter></function></tool_call>
//
// Spec keys. Markers: section_begin, section_end (around all calls), call_begin, call_end,
// name_end, key_begin, key_end, value_begin (optional), value_end, text_begin and text_end (a value
// may stand between them, and is taken literally). Flags: name_in_section (the name follows
// section_begin, which holds one call), hold_call (a call is sent when it is complete),
// implicit_close (a value may end where the next tag begins), trim_newline (one line break at each
// end of a value is not part of it), strict (text between tags makes the call malformed),
// keep_opener (an opener without a call behind it is text), type_before_value (what stands between
// key_end and value_begin is skipped: the schema knows better), entities (values have
// those of XML), namespaced (of an undeclared name NAMESPACE.f it is f that counts, if that is
// declared), json_calls (behind an opener there may also be JSON calls).

namespace stator::parsers {
namespace {

enum Part : int {
  kSectionBegin,
  kSectionEnd,
  kCallBegin,
  kCallEnd,
  kNameEnd,
  kKeyBegin,
  kKeyEnd,
  kValueBegin,
  kValueEnd,
  kTextBegin,
  kTextEnd,
};

struct TagParamsMachine final : BodyMachine {
  explicit TagParamsMachine(const BodyContext& context);
  std::unique_ptr<Body> start() const override;

  MarkerSet framing;     // around calls
  MarkerSet name_ends;   // name_end, and what shows that it is missing
  MarkerSet parameters;  // key_begin, and what shows that the call is over
  MarkerSet key_begins;
  MarkerSet key_ends;
  MarkerSet value_begins;
  MarkerSet value_ends;
  MarkerSet text_begins;
  MarkerSet text_ends;
  const ToolSchemas* schemas = nullptr;  // of the parser's options; may be null
  std::unique_ptr<const BodyMachine> json_calls;
  bool has_value_begin = false;
  bool name_in_section = false;
  bool hold_call = false;
  bool trim_newline = false;
  bool strict = false;
  bool keep_opener = false;
  bool type_before_value = false;
  bool entities = false;
  bool namespaced = false;
};

class TagParamsBody final : public Body {
 public:
  explicit TagParamsBody(const TagParamsMachine& machine) : machine_(machine) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override {
    return json_calls_ != nullptr ? json_calls_->between_calls() : at_ == At::kBetween;
  }
  bool committed() const override {
    return committed_ || (json_calls_ != nullptr && json_calls_->committed());
  }
  void doubt() override { in_doubt_ = true; }

 private:
  enum class At : uint8_t {
    kBetween,  // calls
    kName,
    kParameters,  // between parameters
    kKey,
    kBeforeValue,
    kValue,
    kText,       // in a literal value
    kAfterText,  // before the end of its tag
    kGarbage,    // skip to the next call or the end
  };
  enum class Go : uint8_t { kOn, kMore, kDone, kNotACall };

  Go dispatch(Window& in, CallWriter& out);
  Go between(Window& in, CallWriter& out);
  Go json_calls(Window& in, CallWriter& out);
  Go name(Window& in, CallWriter& out);
  Go parameters(Window& in, CallWriter& out);
  Go key(Window& in, CallWriter& out);
  Go before_value(Window& in, CallWriter& out);
  Go value(Window& in, CallWriter& out);
  Go skip_type(Window& in, CallWriter& out);
  Go text(Window& in, CallWriter& out);
  Go after_text(Window& in, CallWriter& out);
  Go garbage(Window& in);
  Go malformed(CallWriter& out);
  Go cut_off(Window& in, CallWriter& out);
  void write_parameter(CallWriter& out);
  void write_call(CallWriter& out);

  const TagParamsMachine& machine_;
  At at_ = At::kBetween;
  bool in_section_ = false;
  bool committed_ = false;   // the grammar has started: this is a call, or a broken one
  bool is_counted_ = false;  // as malformed
  bool in_doubt_ = false;    // only a call that is written is one
  bool begun_ = false;
  bool is_noisy_ = false;  // text stands between the parameters
  std::string name_;
  std::string key_;
  std::string value_;
  std::string arguments_;             // not sent yet
  std::unique_ptr<Body> json_calls_;  // set: it reads on
};

TagParamsMachine::TagParamsMachine(const BodyContext& context)
    : framing(context.options.special_markers),
      name_ends(context.options.special_markers),
      parameters(context.options.special_markers),
      key_begins(context.options.special_markers),
      key_ends(context.options.special_markers),
      value_begins(context.options.special_markers),
      value_ends(context.options.special_markers),
      text_begins(context.options.special_markers),
      text_ends(context.options.special_markers),
      schemas(context.options.schemas.get()),
      name_in_section(context.spec.has_flag("name_in_section")),
      hold_call(context.spec.has_flag("hold_call")),
      trim_newline(context.spec.has_flag("trim_newline")),
      strict(context.spec.has_flag("strict")),
      keep_opener(context.spec.has_flag("keep_opener")),
      type_before_value(context.spec.has_flag("type_before_value")),
      entities(context.spec.has_flag("entities")),
      namespaced(context.spec.has_flag("namespaced")) {
  const FamilySpec& spec = context.spec;
  const auto add = [&spec](MarkerSet& set, std::string_view key, Part part) {
    set.add(spec.find_markers(key), part);
  };
  const auto add_ends = [&](MarkerSet& set) {
    add(set, "section_end", kSectionEnd);
    add(set, "call_begin", kCallBegin);
    add(set, "call_end", kCallEnd);
  };
  add(framing, "section_begin", kSectionBegin);
  add_ends(framing);
  add(name_ends, "name_end", kNameEnd);
  add(name_ends, "key_begin", kKeyBegin);
  add_ends(name_ends);
  add(parameters, "key_begin", kKeyBegin);
  add_ends(parameters);
  add(key_begins, "key_begin", kKeyBegin);
  if (!strict) {
    add(parameters, "section_begin", kSectionBegin);
  }
  add(key_ends, "key_end", kKeyEnd);
  add(key_ends, "key_begin", kKeyBegin);
  add_ends(key_ends);
  add(value_begins, "value_begin", kValueBegin);
  add(value_ends, "value_end", kValueEnd);
  add(text_begins, "text_begin", kTextBegin);
  add(text_ends, "text_end", kTextEnd);
  if (spec.has_flag("implicit_close")) {
    add(value_ends, "key_begin", kKeyBegin);
    add(value_ends, "call_end", kCallEnd);
  }
  has_value_begin = !value_begins.empty();
  if (spec.has_flag("json_calls")) {
    json_calls = make_json_calls_machine(context);
  }
  for (MarkerSet* set :
       {&name_ends, &parameters, &key_ends, &value_begins, &value_ends, &text_begins, &text_ends}) {
    set->hold_at_end();
  }
}

std::unique_ptr<Body> TagParamsMachine::start() const {
  return std::make_unique<TagParamsBody>(*this);
}

Progress TagParamsBody::step(Window& in, CallWriter& out) {
  Go go = Go::kOn;
  while (go == Go::kOn) {
    go = dispatch(in, out);
  }
  switch (go) {
    case Go::kMore:
      return Progress::kMore;
    case Go::kNotACall:
      return Progress::kNotACall;
    default:
      return Progress::kDone;
  }
}

TagParamsBody::Go TagParamsBody::dispatch(Window& in, CallWriter& out) {
  if (json_calls_ != nullptr) {
    return json_calls(in, out);
  }
  switch (at_) {
    case At::kBetween:
      return between(in, out);
    case At::kName:
      return name(in, out);
    case At::kParameters:
      return parameters(in, out);
    case At::kKey:
      return key(in, out);
    case At::kBeforeValue:
      return before_value(in, out);
    case At::kValue:
      return value(in, out);
    case At::kText:
      return text(in, out);
    case At::kAfterText:
      return after_text(in, out);
    case At::kGarbage:
      return garbage(in);
  }
  return Go::kDone;
}

TagParamsBody::Go TagParamsBody::malformed(CallWriter& out) {
  if (!committed_ && (machine_.keep_opener || in_doubt_)) {
    return Go::kNotACall;
  }
  out.give_up(Recovery::kMalformedBody);
  is_counted_ = true;
  at_ = At::kGarbage;
  return Go::kOn;
}

/// The stream ended where a call may have been about to begin.
TagParamsBody::Go TagParamsBody::cut_off(Window& in, CallWriter& out) {
  in.consume(in.rest().size());
  if (!committed_) {
    out.recovered(Recovery::kTruncatedCall);
  }
  return Go::kDone;
}

TagParamsBody::Go TagParamsBody::between(Window& in, CallWriter& out) {
  const size_t space = leading_space(in.rest());
  if (space > kMaxHeldSpaceBytes) {
    return committed_ || !machine_.keep_opener ? Go::kDone : Go::kNotACall;
  }
  if (space == in.rest().size()) {
    const bool was_call = committed_ || !machine_.keep_opener;
    if (!in.ending()) {
      return Go::kMore;
    }
    return was_call || !in.ending_by_itself() ? cut_off(in, out) : Go::kNotACall;
  }
  if (in_section_ && machine_.framing.is_cut_off(in, space)) {
    return cut_off(in, out);
  }
  MarkerSet::Hit hit;
  switch (machine_.framing.match_at(in, space, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kNo:
      return in_section_ ? malformed(out) : Go::kDone;
    case MarkerSet::Match::kYes:
      break;
  }
  if (!committed_ && !in_doubt_ && !is_counted_ && in_section_ && hit.role == kSectionEnd) {
    out.recovered(Recovery::kMalformedBody);  // nothing is called
  }
  if (machine_.json_calls != nullptr && hit.role != kSectionEnd && hit.role != kCallEnd) {
    const size_t next = space + hit.length_bytes;
    const size_t json = next + leading_space(in.rest().substr(next));
    if (json == in.rest().size() && json - next <= kMaxHeldSpaceBytes && !in.ending()) {
      return Go::kMore;
    }
    if (in.rest().substr(json).starts_with('{') || in.rest().substr(json).starts_with('[')) {
      in.consume(space);
      json_calls_ = machine_.json_calls->start();
      return Go::kOn;
    }
  }
  in.consume(space + hit.length_bytes);
  if (hit.role == kSectionEnd) {
    return Go::kDone;
  }
  in_section_ = in_section_ || hit.role == kSectionBegin;
  if (hit.role == kCallBegin || (hit.role == kSectionBegin && machine_.name_in_section)) {
    at_ = At::kName;
    begun_ = is_noisy_ = false;
    arguments_.clear();
    committed_ = committed_ || (in_section_ && hit.role == kCallBegin && !in_doubt_);
  }
  return Go::kOn;
}

/// Behind them, up to the end of the section, there may be more calls, of either kind.
TagParamsBody::Go TagParamsBody::json_calls(Window& in, CallWriter& out) {
  const Progress progress = json_calls_->step(in, out);
  if (progress == Progress::kMore) {
    return Go::kMore;
  }
  json_calls_.reset();
  in_section_ = false;
  if (progress == Progress::kNotACall) {
    return malformed(out);
  }
  committed_ = true;
  return Go::kOn;
}

TagParamsBody::Go TagParamsBody::name(Window& in, CallWriter& out) {
  // The line break behind an opener does not end the name before it has begun.
  in.consume(leading_space(in.rest()));
  const auto hit = machine_.name_ends.find(in);
  if (hit.offset > kMaxCallNameBytes) {
    return malformed(out);
  }
  if (!hit) {
    return Go::kMore;
  }
  name_ = trim(in.rest().substr(0, hit.offset));
  if (!is_plausible_name(name_)) {
    return malformed(out);
  }
  const size_t dot = machine_.namespaced ? name_.rfind('.') : std::string::npos;
  if (dot != std::string::npos && machine_.schemas != nullptr &&
      !machine_.schemas->contains(name_) &&
      machine_.schemas->contains(std::string_view(name_).substr(dot + 1))) {
    name_.erase(0, dot + 1);
  }
  in.consume(hit.offset + (hit.role == kNameEnd ? hit.length_bytes : 0));
  committed_ = committed_ || !in_doubt_;
  at_ = At::kParameters;
  return Go::kOn;
}

TagParamsBody::Go TagParamsBody::parameters(Window& in, CallWriter& out) {
  in.consume(leading_space(in.rest()));
  const bool has_parameters = begun_ || !arguments_.empty();
  if (has_parameters && lacks_only_closer(in, machine_.parameters, machine_.key_begins)) {
    in.consume(in.rest().size());
    out.recovered(Recovery::kRepairedArguments);
    write_call(out);
    at_ = At::kBetween;
    return Go::kOn;
  }
  MarkerSet::Hit hit;
  switch (machine_.parameters.match_at(in, 0, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kNo:
      if (in.empty()) {
        return Go::kMore;
      }
      if (machine_.strict || !committed_) {
        return malformed(out);
      }
      if (!is_noisy_) {
        out.recovered(Recovery::kRepairedArguments);
        is_noisy_ = true;
      }
      in.consume(machine_.parameters.find(in, 1).offset);
      return in.empty() ? Go::kMore : Go::kOn;
    case MarkerSet::Match::kYes:
      break;
  }
  if (hit.role == kKeyBegin) {
    in.consume(hit.length_bytes);
    at_ = At::kKey;
    return Go::kOn;
  }
  if (hit.role == kSectionBegin) {  // of the next call: this one's end was forgotten
    out.recovered(Recovery::kRepairedArguments);
  }
  write_call(out);
  in.consume(hit.role == kCallEnd ? hit.length_bytes : 0);
  at_ = At::kBetween;
  return Go::kOn;
}

TagParamsBody::Go TagParamsBody::key(Window& in, CallWriter& out) {
  const auto hit = machine_.key_ends.find(in);
  if (hit.offset > kMaxCallNameBytes) {
    return malformed(out);
  }
  if (!hit) {
    return Go::kMore;
  }
  if (hit.role != kKeyEnd) {
    return malformed(out);
  }
  key_ = trim(in.rest().substr(0, hit.offset));
  in.consume(hit.offset + hit.length_bytes);
  value_.clear();
  at_ = machine_.has_value_begin || !machine_.text_begins.empty() ? At::kBeforeValue : At::kValue;
  return Go::kOn;
}

TagParamsBody::Go TagParamsBody::before_value(Window& in, CallWriter& out) {
  if (machine_.has_value_begin) {
    in.consume(leading_space(in.rest()));
  }
  const bool literal = !machine_.text_begins.empty();
  const MarkerSet& begins = literal ? machine_.text_begins : machine_.value_begins;
  MarkerSet::Hit hit;
  switch (begins.match_at(in, 0, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kNo:
      if (in.empty()) {
        return Go::kMore;
      }
      if (literal) {
        at_ = At::kValue;
        return Go::kOn;
      }
      return machine_.type_before_value ? skip_type(in, out) : malformed(out);
    case MarkerSet::Match::kYes:
      in.consume(hit.length_bytes);
      at_ = literal ? At::kText : At::kValue;
      return Go::kOn;
  }
  return Go::kMore;
}

/// What stands before value_begin, which stays.
TagParamsBody::Go TagParamsBody::skip_type(Window& in, CallWriter& out) {
  const auto hit = machine_.value_begins.find(in);
  if (hit.offset > kMaxCallNameBytes) {
    return malformed(out);
  }
  in.consume(hit ? hit.offset : 0);
  return hit ? Go::kOn : Go::kMore;
}

TagParamsBody::Go TagParamsBody::value(Window& in, CallWriter& out) {
  const auto hit = machine_.value_ends.find(in);
  value_.append(in.rest().substr(0, hit.offset));
  in.consume(hit.offset);
  if (value_.size() > kMaxHeldBytes) {
    out.recovered(Recovery::kTooLarge);
    return malformed(out);
  }
  if (!hit) {
    return Go::kMore;
  }
  in.consume(hit.role == kValueEnd ? hit.length_bytes : 0);
  if (machine_.entities) {
    unescape_entities(value_);
  }
  write_parameter(out);
  at_ = At::kParameters;
  return Go::kOn;
}

/// A literal value: only text_end ends it.
TagParamsBody::Go TagParamsBody::text(Window& in, CallWriter& out) {
  const auto hit = machine_.text_ends.find(in);
  value_.append(in.rest().substr(0, hit.offset));
  in.consume(hit.offset + hit.length_bytes);
  if (value_.size() > kMaxHeldBytes) {
    out.recovered(Recovery::kTooLarge);
    return malformed(out);
  }
  if (!hit) {
    return Go::kMore;
  }
  at_ = At::kAfterText;
  return Go::kOn;
}

TagParamsBody::Go TagParamsBody::after_text(Window& in, CallWriter& out) {
  const auto hit = machine_.value_ends.find(in);
  in.consume(hit.offset + (hit.role == kValueEnd ? hit.length_bytes : 0));
  if (!hit) {
    return Go::kMore;
  }
  write_parameter(out);
  at_ = At::kParameters;
  return Go::kOn;
}

void TagParamsBody::write_parameter(CallWriter& out) {
  committed_ = true;
  std::string_view text = value_;
  if (machine_.trim_newline && text.starts_with('\n')) {
    text.remove_prefix(1);
  }
  if (machine_.trim_newline && text.ends_with('\n')) {
    text.remove_suffix(1);
  }
  arguments_ += begun_ || !arguments_.empty() ? ',' : '{';
  append_json_string(arguments_, key_);
  arguments_ += ':';
  append_coerced(
      arguments_, text,
      machine_.schemas == nullptr ? nullptr : machine_.schemas->find_parameter(name_, key_));
  if (machine_.hold_call) {
    return;
  }
  if (!begun_) {
    out.begin_call(name_);
    begun_ = true;
  }
  out.arguments(arguments_);
  arguments_.clear();
}

/// The call's end tag, or whatever shows that it is over.
void TagParamsBody::write_call(CallWriter& out) {
  committed_ = true;
  if (!begun_) {
    out.begin_call(name_);
  }
  if (!begun_ && arguments_.empty()) {
    arguments_ = "{";
  }
  out.arguments(arguments_ + "}");
  out.end_call();
  begun_ = false;
  arguments_.clear();
}

TagParamsBody::Go TagParamsBody::garbage(Window& in) {
  const auto hit = machine_.framing.find(in);
  in.consume(hit.offset);
  if (!hit) {
    return !in.ending() ? Go::kMore : (committed_ ? Go::kDone : Go::kNotACall);
  }
  in.consume(hit.role == kCallEnd ? hit.length_bytes : 0);
  at_ = At::kBetween;
  return Go::kOn;
}

}  // namespace

std::unique_ptr<const BodyMachine> make_tag_params_machine(const BodyContext& context) {
  return std::make_unique<TagParamsMachine>(context);
}

}  // namespace stator::parsers
