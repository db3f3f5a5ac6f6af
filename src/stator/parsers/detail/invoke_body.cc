// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/coerce.h"
#include "stator/parsers/detail/entities.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/detail/names.h"

// Calls as elements with attributes, which say whether a value is text or JSON.
//
//   <｜DSML｜function_calls>
//   <｜DSML｜invoke name="f">
//   <｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>
//   <｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>
//   </｜DSML｜invoke>
//   </｜DSML｜function_calls>
//
// Spec keys. Markers: section_begin, section_end, call_begin and call_end (around one invoke; may
// be absent), invoke_begin and parameter_begin (up to the attributes), tag_end (behind them),
// invoke_end, parameter_end. Words: call_name, parameter_name (attributes), text_if
// (attribute=value of a text; with another value it is JSON; without the attribute, or where its
// type cannot be what it says, the tool's schema decides). Flags: escaped_attributes (they have the
// entities of XML).
//
// Text values are written as they arrive. An invoke may also hold one bare JSON object.

namespace stator::parsers {
namespace {

enum Mark : int {
  kOpen,
  kCallOpen,
  kClose,
  kCallEnd,
  kInvoke,
  kInvokeEnd,
  kParameter,
  kParameterEnd,
  kTagEnd,
  kSeparator,
};

/// Longest list of attributes.
constexpr size_t kMaxTagBytes = 2 * kMaxCallNameBytes;

struct InvokeMachine final : BodyMachine {
  explicit InvokeMachine(const BodyContext& context);
  std::unique_ptr<Body> start() const override;

  MarkerSet markers;
  MarkerSet between;  // invokes: `markers`, and those that mean nothing
  MarkerSet parameter_begins;
  MarkerSet tag_ends;
  std::string call_name;
  std::string parameter_name;
  std::string type_name;   // of the attribute that tells text from JSON
  std::string text_value;  // its value for text
  bool escaped_attributes = false;
};

const std::string& first_or(const std::vector<std::string>& words, const std::string& fallback) {
  return words.empty() ? fallback : words[0];
}

InvokeMachine::InvokeMachine(const BodyContext& context)
    : markers(context.options.special_markers),
      between(context.options.special_markers),
      parameter_begins(context.options.special_markers),
      tag_ends(context.options.special_markers),
      call_name(first_or(context.spec.find_words("call_name"), "name")),
      parameter_name(first_or(context.spec.find_words("parameter_name"), "name")),
      escaped_attributes(context.spec.has_flag("escaped_attributes")) {
  const FamilySpec& spec = context.spec;
  const std::string text_if = first_or(spec.find_words("text_if"), "");
  type_name = text_if.substr(0, text_if.find('='));
  text_value = text_if.substr(std::min(type_name.size() + 1, text_if.size()));
  tag_ends.add(spec.find_markers("tag_end"), kTagEnd);
  for (MarkerSet* set : {&markers, &between}) {
    set->add(spec.find_markers("invoke_begin"), kInvoke);
    set->add(spec.find_markers("invoke_end"), kInvokeEnd);
    set->add(spec.find_markers("parameter_begin"), kParameter);
    set->add(spec.find_markers("parameter_end"), kParameterEnd);
    set->add(spec.find_markers("section_begin"), kOpen);
    set->add(spec.find_markers("call_begin"), kCallOpen);
    set->add(spec.find_markers("section_end"), kClose);
    set->add(spec.find_markers("call_end"), kCallEnd);
  }
  between.add(spec.find_markers("stray"), kSeparator);
  parameter_begins.add(spec.find_markers("parameter_begin"), kParameter);
}

class InvokeBody final : public Body {
 public:
  explicit InvokeBody(const InvokeMachine& machine) : machine_(machine) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override { return at_ == At::kSection; }
  bool committed() const override { return !in_doubt_; }
  void doubt() override { in_doubt_ = true; }

 private:
  enum class At : uint8_t {
    kSection,    // between invokes
    kInvokeTag,  // in the attributes of an invoke
    kDoubt,      // behind them, where that may be prose
    kInvoke,     // between parameters
    kJson,       // in a bare object of arguments
    kTag,        // in the attributes of a parameter
    kWrapper,    // before the value of a parameter that may hold all arguments
    kText,       // in a text value, which is written as it arrives
    kValue,      // in a value that is held to its end
  };
  enum class Go : uint8_t { kOn, kMore, kDone, kNotACall };

  Go section(Window& in, CallWriter& out);
  Go invoke_tag(Window& in, CallWriter& out);
  Go doubtful(Window& in, CallWriter& out);
  Go begin(CallWriter& out);
  Go invoke(Window& in, CallWriter& out);
  Go json(Window& in, CallWriter& out);
  Go parameter_tag(Window& in, CallWriter& out);
  Go wrapper(Window& in, CallWriter& out);
  Go begin_parameter(CallWriter& out);
  Go text(Window& in, CallWriter& out);
  Go value(Window& in, CallWriter& out);
  Go value_ended(const MarkerSet::Hit& hit, Window& in, CallWriter& out);
  Go end_invoke(CallWriter& out);
  std::string read_attribute(std::string_view tag, std::string_view name) const;
  Go broken(CallWriter& out);

  const InvokeMachine& machine_;
  At at_ = At::kSection;
  bool in_doubt_ = false;    // no call yet: the opener may have been talked about
  bool in_section_ = false;  // an outer marker is open, so text is not the user's
  std::string name_;         // of the invoke
  std::string key_;          // of the parameter
  bool is_text_value_ = false;
  bool is_json_value_ = false;
  bool is_wrapped_ = false;  // the bare object stands in a parameter
  size_t parameters_ = 0;
  size_t scanned_bytes_ = 0;   // of the held value, without a marker
  bool in_header_ = false;     // between call_begin and its invoke stands the kind of call
  bool is_json_done_ = false;  // the bare object is complete
  bool is_noisy_ = false;      // something stands between tags, or behind the object
  JsonStream json_;
};

std::unique_ptr<Body> InvokeMachine::start() const {
  return std::make_unique<InvokeBody>(*this);
}

Progress InvokeBody::step(Window& in, CallWriter& out) {
  Go go = Go::kOn;
  while (go == Go::kOn) {
    switch (at_) {
      case At::kSection:
        go = section(in, out);
        break;
      case At::kInvokeTag:
        go = invoke_tag(in, out);
        break;
      case At::kDoubt:
        go = doubtful(in, out);
        break;
      case At::kInvoke:
        go = invoke(in, out);
        break;
      case At::kJson:
        go = json(in, out);
        break;
      case At::kTag:
        go = parameter_tag(in, out);
        break;
      case At::kWrapper:
        go = wrapper(in, out);
        break;
      case At::kText:
        go = text(in, out);
        break;
      case At::kValue:
        go = value(in, out);
        break;
    }
  }
  if (go == Go::kNotACall) {
    return Progress::kNotACall;
  }
  return go == Go::kMore ? Progress::kMore : Progress::kDone;
}

InvokeBody::Go InvokeBody::section(Window& in, CallWriter& out) {
  MarkerSet::Hit hit;
  if (in_section_ || in_header_) {
    hit = machine_.between.find(in);
    const std::string_view before = in.rest().substr(0, hit.offset);
    const bool is_noise = !in_header_ && leading_space(before) < before.size();
    if (in_doubt_ && (is_noise || before.size() > kMaxTagBytes)) {
      return Go::kNotACall;
    }
    if (is_noise && !is_noisy_) {
      out.recovered(Recovery::kMalformedBody);
      is_noisy_ = true;
    }
  } else {
    const size_t space = leading_space(in.rest());
    const auto match = machine_.between.match_at(in, space, hit);
    hit.offset = space;
    if (space > kMaxHeldSpaceBytes ||
        (match == MarkerSet::Match::kNo && space < in.rest().size())) {
      return Go::kDone;
    }
    if (match != MarkerSet::Match::kYes) {
      return in.ending() ? Go::kDone : Go::kMore;
    }
  }
  if (!hit) {
    in.consume(hit.offset);
    return in.ending() ? Go::kDone : Go::kMore;
  }
  in.consume(hit.offset + hit.length_bytes);
  switch (hit.role) {
    case kOpen:
      in_section_ = true;
      break;
    case kCallOpen:
      in_header_ = true;
      break;
    case kSeparator:
      break;
    case kClose:
      return Go::kDone;
    case kInvoke:
      at_ = At::kInvokeTag;
      break;
    case kCallEnd:
      in_header_ = false;
      break;
    default:
      out.recovered(Recovery::kStrayMarker);
      break;
  }
  return Go::kOn;
}

/// Value of an attribute in ` name="f" string="true"`; quotes may be missing.
std::string_view attribute(std::string_view tag, std::string_view name) {
  for (size_t at = tag.find(name); at != std::string_view::npos; at = tag.find(name, at + 1)) {
    const bool is_word = at > 0 && is_space(tag[at - 1]);
    std::string_view rest = tag.substr(at + name.size());
    rest.remove_prefix(leading_space(rest));
    if (!is_word || !rest.starts_with('=')) {
      continue;
    }
    rest.remove_prefix(1);
    rest.remove_prefix(leading_space(rest));
    const char quote = rest.empty() ? '\0' : rest[0];
    if (quote == '"' || quote == '\'') {
      return rest.substr(1, rest.find(quote, 1) - 1);
    }
    return rest.substr(0, rest.find_first_of(" \t\r\n"));
  }
  return {};
}

/// The end of a tag, outside of quotes. `role` kNone: it has not come yet.
MarkerSet::Hit find_tag_end(const MarkerSet& ends, const Window& in) {
  char quote = '\0';
  const std::string_view text = in.rest().substr(0, kMaxTagBytes);
  MarkerSet::Hit hit;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (ends.match_at(in, at, hit) != MarkerSet::Match::kNo) {
      return hit;
    }
  }
  return {.offset = text.size()};
}

std::string InvokeBody::read_attribute(std::string_view tag, std::string_view name) const {
  std::string value(attribute(tag, name));
  if (machine_.escaped_attributes) {
    unescape_entities(value);
  }
  return value;
}

/// The call cannot be read any further.
InvokeBody::Go InvokeBody::broken(CallWriter& out) {
  if (in_doubt_) {
    return Go::kNotACall;
  }
  out.give_up(Recovery::kMalformedBody);
  is_noisy_ = true;  // the rest of it is counted already
  at_ = At::kSection;
  return Go::kOn;
}

InvokeBody::Go InvokeBody::invoke_tag(Window& in, CallWriter& out) {
  const MarkerSet::Hit end = find_tag_end(machine_.tag_ends, in);
  if (!end) {
    return in.rest().size() >= kMaxTagBytes ? broken(out) : Go::kMore;
  }
  name_ = read_attribute(in.rest().substr(0, end.offset), machine_.call_name);
  in.consume(end.offset + end.length_bytes);
  if (in_doubt_) {
    at_ = At::kDoubt;
    return Go::kOn;
  }
  return begin(out);
}

/// In reasoning: a call goes on with a parameter, an object, or its end.
InvokeBody::Go InvokeBody::doubtful(Window& in, CallWriter& out) {
  const size_t space = leading_space(in.rest());
  if (space == in.rest().size() && space <= kMaxHeldSpaceBytes) {
    return Go::kMore;
  }
  MarkerSet::Hit hit;
  const auto match = machine_.markers.match_at(in, space, hit);
  if (match == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  const bool is_marked =
      match == MarkerSet::Match::kYes && (hit.role == kParameter || hit.role == kInvokeEnd);
  if (!is_plausible_name(trim(name_)) || (!is_marked && in.rest().substr(space, 1) != "{")) {
    return Go::kNotACall;
  }
  in_doubt_ = false;
  return begin(out);
}

InvokeBody::Go InvokeBody::begin(CallWriter& out) {
  out.begin_call(name_);
  parameters_ = 0;
  is_json_done_ = is_noisy_ = in_header_ = is_wrapped_ = false;
  json_ = JsonStream();
  at_ = At::kInvoke;
  return Go::kOn;
}

InvokeBody::Go InvokeBody::end_invoke(CallWriter& out) {
  if (!is_json_done_) {
    out.arguments(parameters_ == 0 ? "{}" : "}");
  }
  out.end_call();
  at_ = At::kSection;
  return Go::kOn;
}

InvokeBody::Go InvokeBody::invoke(Window& in, CallWriter& out) {
  const bool has_arguments = parameters_ > 0 || is_json_done_;
  if (has_arguments && lacks_only_closer(in, machine_.markers, machine_.parameter_begins)) {
    in.consume(in.rest().size());
    out.recovered(Recovery::kRepairedArguments);
    return end_invoke(out);
  }
  const MarkerSet::Hit hit = machine_.markers.find(in);
  const std::string_view before = in.rest().substr(0, hit.offset);
  const size_t space = leading_space(before);
  if (space < before.size() && before[space] == '{' && parameters_ == 0 && !is_json_done_ &&
      !is_noisy_) {
    at_ = At::kJson;
    return Go::kOn;
  }
  if (space < before.size() && !is_noisy_) {
    out.recovered(Recovery::kRepairedArguments);
    is_noisy_ = true;
  }
  in.consume(before.size());
  if (!hit) {
    return Go::kMore;
  }
  if (hit.role == kParameter && !is_json_done_) {
    in.consume(hit.length_bytes);
    at_ = At::kTag;
    return Go::kOn;
  }
  if (hit.role == kParameterEnd || hit.role == kOpen || hit.role == kCallOpen) {
    in.consume(hit.length_bytes);
    if (hit.role != kParameterEnd || !std::exchange(is_wrapped_, false)) {
      out.recovered(Recovery::kStrayMarker);
    }
    return Go::kOn;
  }
  if (hit.role == kInvokeEnd) {
    in.consume(hit.length_bytes);
  } else {
    out.recovered(Recovery::kRepairedArguments);  // its end was forgotten
  }
  return end_invoke(out);
}

InvokeBody::Go InvokeBody::json(Window& in, CallWriter& out) {
  std::string& fragment = out.scratch();
  in.consume(json_.feed(in.rest(), fragment));
  out.arguments(fragment);
  if (json_.status() == JsonStream::Status::kMore) {
    return Go::kMore;
  }
  if (json_.status() == JsonStream::Status::kMalformed) {
    return broken(out);
  }
  is_json_done_ = true;
  at_ = At::kInvoke;
  return Go::kOn;
}

InvokeBody::Go InvokeBody::parameter_tag(Window& in, CallWriter& out) {
  const MarkerSet::Hit end = find_tag_end(machine_.tag_ends, in);
  if (!end) {
    return in.rest().size() >= kMaxTagBytes ? broken(out) : Go::kMore;
  }
  const std::string_view tag = in.rest().substr(0, end.offset);
  key_ = read_attribute(tag, machine_.parameter_name);
  const std::string type = read_attribute(tag, machine_.type_name);
  is_text_value_ = !type.empty() && type == machine_.text_value;
  is_json_value_ = !type.empty() && !is_text_value_;
  in.consume(end.offset + end.length_bytes);
  const ToolSchemas* schemas = out.options().schemas.get();
  const ValueSchema* schema = schemas == nullptr ? nullptr : schemas->find_parameter(name_, key_);
  if (schema != nullptr && !schema->kinds.empty()) {  // the tool knows better than the attribute
    is_text_value_ = is_text_value_ && schema->allows(ValueKind::kString);
  }
  if (schema == nullptr && schemas != nullptr && schemas->contains(name_) && parameters_ == 0 &&
      key_ == "arguments" && !is_text_value_) {
    at_ = At::kWrapper;
    return Go::kOn;
  }
  return begin_parameter(out);
}

/// All arguments as one object in a parameter that the tool does not have.
InvokeBody::Go InvokeBody::wrapper(Window& in, CallWriter& out) {
  const size_t space = leading_space(in.rest());
  if (space == in.rest().size() && space <= kMaxHeldSpaceBytes) {
    return Go::kMore;
  }
  if (in.rest().substr(space, 1) != "{") {
    return begin_parameter(out);
  }
  out.recovered(Recovery::kRepairedArguments);
  is_wrapped_ = true;
  at_ = At::kJson;
  return Go::kOn;
}

InvokeBody::Go InvokeBody::begin_parameter(CallWriter& out) {
  std::string& prefix = out.scratch();
  prefix += parameters_ == 0 ? '{' : ',';
  append_json_string(prefix, key_);
  prefix += ':';
  ++parameters_;
  if (is_text_value_) {
    prefix += '"';
    at_ = At::kText;
  } else {
    at_ = At::kValue;
    scanned_bytes_ = 0;
  }
  out.arguments(prefix);
  return Go::kOn;
}

InvokeBody::Go InvokeBody::text(Window& in, CallWriter& out) {
  if (in.ending()) {
    return Go::kMore;  // what is left is half a marker
  }
  const MarkerSet::Hit hit = machine_.markers.find(in);
  std::string& quoted = out.scratch();
  append_json_string_body(quoted, in.rest().substr(0, hit.offset));
  out.arguments(quoted);
  in.consume(hit.offset);
  if (!hit) {
    return Go::kMore;
  }
  out.arguments("\"");
  return value_ended(hit, in, out);
}

InvokeBody::Go InvokeBody::value(Window& in, CallWriter& out) {
  const MarkerSet::Hit hit = machine_.markers.find(in, scanned_bytes_);
  scanned_bytes_ = hit.offset;
  if (hit.offset > kMaxHeldBytes) {
    out.recovered(Recovery::kTooLarge);
    return broken(out);
  }
  if (!hit) {
    return Go::kMore;
  }
  const std::string_view text = in.rest().substr(0, hit.offset);
  std::string& json = out.scratch();
  const auto& schemas = out.options().schemas;
  const ValueSchema* schema = schemas == nullptr ? nullptr : schemas->find_parameter(name_, key_);
  const bool is_text = schema != nullptr && schema->kinds.size() == 1 &&
                       schema->allows(ValueKind::kString) && !trim(text).starts_with('"');
  if (is_json_value_ && !is_text && is_json(text)) {
    json = trim(text);
  } else if (is_json_value_) {
    append_json_string(json, text);
  } else {
    append_coerced(json, text, schema);
  }
  out.arguments(json);
  in.consume(hit.offset);
  return value_ended(hit, in, out);
}

/// `hit` stands at the front. Any marker but the right one means that the right one was forgotten.
InvokeBody::Go InvokeBody::value_ended(const MarkerSet::Hit& hit, Window& in, CallWriter& out) {
  if (hit.role == kParameterEnd) {
    in.consume(hit.length_bytes);
  } else {
    out.recovered(Recovery::kRepairedArguments);
  }
  at_ = At::kInvoke;
  return Go::kOn;
}

}  // namespace

std::unique_ptr<const BodyMachine> make_invoke_machine(const BodyContext& context) {
  return std::make_unique<InvokeMachine>(context);
}

}  // namespace stator::parsers
