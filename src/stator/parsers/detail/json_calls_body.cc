// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/byte_set.h"
#include "stator/parsers/detail/contains.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/tool_schemas.h"

// Calls as JSON objects: one, several one after the other, or in an array.
//
//   <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
//
// Spec keys. Markers: section_begin, call_begin (both may stand before the JSON), section_end,
// call_end (both end it), skip (fences around the JSON). Words: name_keys, argument_keys, no_calls
// (names by which a model says that it calls nothing). Flags:
// closer_optional (text may follow without a closer), empty_arguments (a name without arguments is
// a call behind no marker, too), name_is_key ({"f": {"a": 1}}).

namespace stator::parsers {
namespace {

constexpr int kOpen = 0;
constexpr int kClose = 1;
constexpr int kSkip = 2;
/// Longest key, name or id with its quotes and escapes.
constexpr size_t kMaxQuotedBytes = 2 * kMaxCallNameBytes;
/// What may stand between calls without markers.
constexpr ByteSet kSeparators(" \t\r\n,;");

struct JsonCallsMachine final : BodyMachine {
  explicit JsonCallsMachine(const BodyContext& context);
  std::unique_ptr<Body> start() const override;

  MarkerSet before;  // what may stand in front of the JSON
  MarkerSet after;   // what may stand behind it
  std::vector<std::string> name_keys;
  std::vector<std::string> argument_keys;
  std::vector<std::string> no_calls;
  const ToolSchemas* schemas = nullptr;  // of the parser's options; may be null
  bool has_closer = false;               // calls end with a marker, always
  bool empty_arguments = false;
  bool name_is_key = false;
  bool whole = false;  // one element that is no call, and none is
};

/// The member of a call that is being read.
enum class Member : uint8_t { kName, kArguments, kId, kFunction, kOther };

class JsonCallsBody final : public Body {
 public:
  explicit JsonCallsBody(const JsonCallsMachine& machine) : machine_(machine) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override {
    return at_ == At::kItem || at_ == At::kJunk || at_ == At::kAfter;
  }
  bool committed() const override { return committed_; }
  void doubt() override { in_doubt_ = true; }

 private:
  enum class At : uint8_t {
    kOpening,    // before the JSON
    kItem,       // in the array, before a call or its end
    kJunk,       // in an element of the array that is no call
    kKey,        // in a call, before a key or its end
    kColon,      // after a key
    kValue,      // before a value
    kArguments,  // inside the arguments object
    kQuoted,     // inside the arguments as a JSON string
    kOther,      // inside a value nobody needs
    kNext,       // after a value
    kAfter,      // after the JSON
    kGarbage,    // something else: skip to the closer
  };
  /// What a sub-step has done: gone on, or ended the step.
  enum class Go : uint8_t { kOn, kMore, kDone, kNotACall };

  Go opening(Window& in, CallWriter& out);
  Go item(Window& in, CallWriter& out);
  Go junk(Window& in, CallWriter& out);
  Go key(Window& in, CallWriter& out);
  Go value(Window& in, CallWriter& out);
  Go string_value(Window& in, CallWriter& out);
  Go arguments(Window& in, CallWriter& out);
  Go quoted(Window& in, CallWriter& out);
  Go quoted_malformed(CallWriter& out);
  Go other(Window& in, CallWriter& out);
  Go next(Window& in, CallWriter& out);
  Go after(Window& in);
  Go garbage(Window& in, CallWriter& out);

  Go malformed(CallWriter& out);
  bool skip_space(Window& in);
  bool skips_junk() const;
  bool is_declared() const;
  void begin_object();
  Member member_of(std::string_view key) const;
  void forward(CallWriter& out);
  Go arguments_done(CallWriter& out);
  Go object_done(CallWriter& out);

  const JsonCallsMachine& machine_;
  At at_ = At::kOpening;
  Member member_ = Member::kOther;
  bool in_doubt_ = false;  // only a call that is written is one
  bool marked_ = false;    // an opening marker stood before the JSON
  bool in_array_ = false;
  bool committed_ = false;  // some call has been written, so this cannot be text any more
  uint32_t wrappers_ = 0;   // open "function" objects around the call
  // The call being read.
  std::string name_;
  std::string id_;
  std::string pending_;  // arguments that wait for the name
  bool has_name_ = false;
  bool has_arguments_ = false;  // complete
  bool begun_ = false;
  JsonStream json_;
};

JsonCallsMachine::JsonCallsMachine(const BodyContext& context)
    : before(context.options.special_markers),
      after(context.options.special_markers),
      name_keys(context.spec.find_words("name_keys")),
      argument_keys(context.spec.find_words("argument_keys")),
      no_calls(context.spec.find_words("no_calls")),
      schemas(context.options.schemas.get()),
      empty_arguments(context.spec.has_flag("empty_arguments")),
      name_is_key(context.spec.has_flag("name_is_key")),
      whole(context.spec.body == BodyKind::kWholeJson) {
  const FamilySpec& spec = context.spec;
  for (MarkerSet* set : {&before, &after}) {
    set->add(spec.find_markers("section_begin"), kOpen);
    set->add(spec.find_markers("call_begin"), kOpen);
    set->add(spec.find_markers("section_end"), kClose);
    set->add(spec.find_markers("call_end"), kClose);
    set->add(spec.find_markers("skip"), kSkip);
  }
  has_closer = !spec.has_flag("closer_optional") &&
               !(spec.find_markers("section_end").empty() && spec.find_markers("call_end").empty());
  if (name_keys.empty()) {
    name_keys = {"name"};
  }
  if (has_closer) {
    after.hold_at_end();
  }
  if (argument_keys.empty()) {
    argument_keys = {"arguments", "parameters"};
  }
}

std::unique_ptr<Body> JsonCallsMachine::start() const {
  return std::make_unique<JsonCallsBody>(*this);
}

Progress JsonCallsBody::step(Window& in, CallWriter& out) {
  Go go = Go::kOn;
  while (go == Go::kOn) {
    switch (at_) {
      case At::kOpening:
        go = opening(in, out);
        break;
      case At::kItem:
        go = item(in, out);
        break;
      case At::kJunk:
        go = junk(in, out);
        break;
      case At::kKey:
      case At::kColon:
        go = key(in, out);
        break;
      case At::kValue:
        go = value(in, out);
        break;
      case At::kArguments:
        go = arguments(in, out);
        break;
      case At::kQuoted:
        go = quoted(in, out);
        break;
      case At::kOther:
        go = other(in, out);
        break;
      case At::kNext:
        go = next(in, out);
        break;
      case At::kAfter:
        go = after(in);
        break;
      case At::kGarbage:
        go = garbage(in, out);
        break;
    }
  }
  if (go == Go::kMore && (!in.ending() || marked_ || committed_)) {
    return Progress::kMore;
  }
  return go == Go::kDone ? Progress::kDone : Progress::kNotACall;
}

/// False if there is nothing but space so far.
bool JsonCallsBody::skip_space(Window& in) {
  in.consume(leading_space(in.rest()));
  return !in.empty();
}

/// What was read cannot be a call. Without a marker around it, it is text; else it is removed.
JsonCallsBody::Go JsonCallsBody::malformed(CallWriter& out) {
  if (in_doubt_ && !committed_) {
    return Go::kNotACall;
  }
  if ((marked_ && machine_.has_closer) || committed_) {  // so is one that is open
    out.give_up(Recovery::kMalformedBody);
  }
  if (!marked_ || !machine_.has_closer) {
    return committed_ ? Go::kDone : Go::kNotACall;
  }
  at_ = At::kGarbage;
  return Go::kOn;
}

JsonCallsBody::Go JsonCallsBody::opening(Window& in, CallWriter& out) {
  if (!skip_space(in)) {
    return Go::kMore;
  }
  MarkerSet::Hit hit;
  switch (machine_.before.match_at(in, 0, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kYes:
      if (hit.role == kClose) {
        return malformed(out);
      }
      marked_ = marked_ || hit.role == kOpen;
      in.consume(hit.length_bytes);
      return Go::kOn;
    case MarkerSet::Match::kNo:
      break;
  }
  if (in.rest()[0] == '[') {
    in.consume(1);
    in_array_ = true;
    at_ = At::kItem;
    return Go::kOn;
  }
  if (in.rest()[0] != '{') {
    return malformed(out);
  }
  in.consume(1);
  begin_object();
  return Go::kOn;
}

void JsonCallsBody::begin_object() {
  at_ = At::kKey;
  wrappers_ = 0;
  name_.clear();
  id_.clear();
  pending_.clear();
  has_name_ = has_arguments_ = begun_ = false;
}

JsonCallsBody::Go JsonCallsBody::item(Window& in, CallWriter& out) {
  if (!skip_space(in)) {
    return Go::kMore;
  }
  const char c = in.rest()[0];
  if (c == '{') {
    in.consume(1);
    begin_object();
    return Go::kOn;
  }
  if (c == ',' || c == ';') {
    in.consume(1);
    return Go::kOn;
  }
  if (c == ']' && in_array_) {
    in.consume(1);
    in_array_ = false;
    at_ = At::kAfter;
    return committed_ || marked_ ? Go::kOn : Go::kNotACall;  // an empty array is text
  }
  MarkerSet::Hit hit;
  const auto match = machine_.after.match_at(in, 0, hit);
  if (match == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  if (match == MarkerSet::Match::kYes) {
    at_ = At::kAfter;
    return Go::kOn;
  }
  if (!in_array_ || !skips_junk()) {
    return malformed(out);
  }
  json_ = JsonStream();
  at_ = At::kJunk;
  return Go::kOn;
}

/// What stands between calls in an array costs its neighbours nothing.
JsonCallsBody::Go JsonCallsBody::junk(Window& in, CallWriter& out) {
  in.consume(json_.skip(in.rest()));
  if (json_.status() == JsonStream::Status::kMalformed) {
    return malformed(out);
  }
  if (json_.status() == JsonStream::Status::kMore) {
    return Go::kMore;
  }
  out.recovered(Recovery::kMalformedBody);
  at_ = At::kItem;
  return Go::kOn;
}

/// This is an array of calls, whatever else is in it.
bool JsonCallsBody::skips_junk() const {
  return !machine_.whole && (committed_ || (marked_ && machine_.has_closer && !in_doubt_));
}

Member JsonCallsBody::member_of(std::string_view key) const {
  if (contains(machine_.argument_keys, key)) {
    return Member::kArguments;
  }
  if (contains(machine_.name_keys, key)) {
    return Member::kName;
  }
  if (key == "function") {
    return Member::kFunction;
  }
  return key == "id" || key == "tool_call_id" ? Member::kId : Member::kOther;
}

/// Length of the JSON string at the front, with its quotes; 0 if it is not all there.
size_t quoted_length(std::string_view text) {
  static constexpr ByteSet kStops("\"\\");
  size_t at = kStops.find_in(text, 1);
  while (at < text.size() && text[at] == '\\') {
    at = kStops.find_in(text, at + 2);
  }
  return at < text.size() ? at + 1 : 0;
}

JsonCallsBody::Go JsonCallsBody::key(Window& in, CallWriter& out) {
  if (!skip_space(in)) {
    return Go::kMore;
  }
  const char c = in.rest()[0];
  if (at_ == At::kColon) {
    if (c != ':') {
      return malformed(out);
    }
    in.consume(1);
    at_ = At::kValue;
    return Go::kOn;
  }
  if (c == '}') {
    at_ = At::kNext;
    return Go::kOn;
  }
  if (c != '"') {
    return malformed(out);
  }
  const size_t length_bytes = quoted_length(in.rest());
  if ((length_bytes == 0 ? in.rest().size() : length_bytes) > kMaxQuotedBytes) {
    return malformed(out);
  }
  if (length_bytes == 0) {
    return Go::kMore;
  }
  std::string& key_text = out.scratch();
  append_unescaped(key_text, in.rest().substr(1, length_bytes - 2));
  member_ = member_of(key_text);
  if (machine_.name_is_key && !has_name_) {
    name_ = key_text;
    has_name_ = true;
    member_ = Member::kArguments;
  }
  const bool expected = member_ != Member::kOther || key_text == "type" || key_text == "index";
  if (!expected && !marked_ && !committed_) {
    return Go::kNotACall;  // JSON, but not ours: an answer in JSON
  }
  in.consume(length_bytes);
  at_ = At::kColon;
  return Go::kOn;
}

JsonCallsBody::Go JsonCallsBody::value(Window& in, CallWriter& out) {
  if (!skip_space(in)) {
    return Go::kMore;
  }
  const char c = in.rest()[0];
  if (member_ == Member::kFunction && c == '{') {
    in.consume(1);
    ++wrappers_;
    at_ = At::kKey;
    return Go::kOn;
  }
  const bool wants_text =
      member_ == Member::kName || member_ == Member::kFunction || member_ == Member::kId;
  if (wants_text && c == '"') {
    return string_value(in, out);
  }
  json_ = JsonStream();
  if (member_ != Member::kArguments || has_arguments_) {
    at_ = At::kOther;
    return Go::kOn;
  }
  if (c == '{') {
    at_ = At::kArguments;
    return Go::kOn;
  }
  if (c == '"') {
    in.consume(1);
    at_ = At::kQuoted;
    return Go::kOn;
  }
  constexpr std::string_view kNull = "null";
  if (kNull.starts_with(in.rest().substr(0, kNull.size()))) {
    if (in.rest().size() < kNull.size()) {
      return Go::kMore;
    }
    in.consume(kNull.size());
    pending_ = "{}";
    return arguments_done(out);
  }
  return malformed(out);
}

/// A name or an id.
JsonCallsBody::Go JsonCallsBody::string_value(Window& in, CallWriter& out) {
  const size_t length_bytes = quoted_length(in.rest());
  if ((length_bytes == 0 ? in.rest().size() : length_bytes) > kMaxQuotedBytes) {
    out.recovered(Recovery::kTooLarge);
    return malformed(out);
  }
  if (length_bytes == 0) {
    return Go::kMore;
  }
  std::string text;
  if (!append_unescaped(text, in.rest().substr(1, length_bytes - 2))) {
    return malformed(out);
  }
  in.consume(length_bytes);
  at_ = At::kNext;
  if (member_ == Member::kId) {
    id_ = std::move(text);
    return Go::kOn;
  }
  name_ = std::move(text);
  has_name_ = true;
  if (has_arguments_ && !begun_) {  // they came first
    forward(out);
    out.end_call();
  }
  return Go::kOn;
}

/// Writes the arguments read so far, if the name is known.
void JsonCallsBody::forward(CallWriter& out) {
  // With its first key or its end arguments are JSON: before, there is no call to announce.
  if (!has_name_ || (!begun_ && pending_.find_first_not_of("{ \t\r\n") == std::string::npos)) {
    return;
  }
  if (!begun_) {
    if (contains(machine_.no_calls, name_)) {
      out.begin_no_call();
    } else {
      out.begin_call(name_, id_);
    }
    begun_ = true;
    committed_ = true;
  }
  out.arguments(pending_);
  pending_.clear();
}

JsonCallsBody::Go JsonCallsBody::arguments_done(CallWriter& out) {
  if (json_.repaired()) {
    out.recovered(Recovery::kRepairedArguments);
  }
  has_arguments_ = true;
  at_ = At::kNext;
  forward(out);
  if (begun_) {
    out.end_call();
  }
  return Go::kOn;
}

JsonCallsBody::Go JsonCallsBody::arguments(Window& in, CallWriter& out) {
  const size_t room = has_name_ ? in.rest().size() : kMaxHeldBytes - pending_.size();
  in.consume(json_.feed(in.rest().substr(0, room), pending_));
  if (json_.status() == JsonStream::Status::kDone) {
    return arguments_done(out);
  }
  forward(out);
  if (pending_.size() >= kMaxHeldBytes) {
    out.recovered(Recovery::kTooLarge);
    return malformed(out);
  }
  return json_.status() == JsonStream::Status::kMalformed ? malformed(out) : Go::kMore;
}

/// Arguments as JSON text inside a JSON string: unwrapped once.
JsonCallsBody::Go JsonCallsBody::quoted(Window& in, CallWriter& out) {
  std::string text;
  while (!in.empty() && in.rest()[0] != '"') {
    const std::string_view rest = in.rest();
    const bool escaped = rest[0] == '\\';
    const size_t raw_bytes =
        escaped ? escape_length(rest) : std::min(rest.find_first_of("\"\\"), rest.size());
    if (raw_bytes == 0) {
      break;
    }
    text.clear();
    if (!append_unescaped(text, rest.substr(0, raw_bytes))) {
      return quoted_malformed(out);
    }
    const size_t used = json_.feed(text, pending_);
    const size_t space = leading_space(std::string_view(text).substr(used));
    const bool is_object = begun_ || pending_.empty() || pending_[0] == '{';
    if (used + space < text.size() || !is_object ||
        json_.status() == JsonStream::Status::kMalformed) {
      in.consume(escaped ? 0 : used + space);
      return quoted_malformed(out);
    }
    in.consume(raw_bytes);
  }
  if (pending_.size() > kMaxHeldBytes && !has_name_) {
    out.recovered(Recovery::kTooLarge);
    return malformed(out);
  }
  if (in.empty() || in.rest()[0] != '"') {
    const bool complete = json_.status() == JsonStream::Status::kDone;
    if (complete && in.empty() && in.ending_by_itself()) {
      return arguments_done(out);
    }
    forward(out);
    return Go::kMore;
  }
  in.consume(1);
  if (json_.status() != JsonStream::Status::kDone) {
    if (begun_ || !pending_.empty()) {
      return quoted_malformed(out);
    }
    pending_ = "{}";  // an empty string
  }
  return arguments_done(out);
}

/// What was sound so far is written, as it would have been had it come in smaller pieces.
JsonCallsBody::Go JsonCallsBody::quoted_malformed(CallWriter& out) {
  if (begun_ || pending_.starts_with('{')) {
    forward(out);
  }
  return malformed(out);
}

JsonCallsBody::Go JsonCallsBody::other(Window& in, CallWriter& out) {
  in.consume(json_.skip(in.rest()));
  if (json_.status() == JsonStream::Status::kMalformed) {
    return malformed(out);
  }
  if (json_.status() == JsonStream::Status::kMore) {
    return Go::kMore;
  }
  at_ = At::kNext;
  return Go::kOn;
}

JsonCallsBody::Go JsonCallsBody::next(Window& in, CallWriter& out) {
  if (!skip_space(in)) {
    return Go::kMore;
  }
  const char c = in.rest()[0];
  if (c == ',') {
    in.consume(1);
    at_ = At::kKey;
    return Go::kOn;
  }
  if (c == '}') {
    in.consume(1);
    if (wrappers_ > 0) {
      --wrappers_;
      return Go::kOn;
    }
    return object_done(out);
  }
  MarkerSet::Hit hit;
  const auto match = machine_.after.match_at(in, 0, hit);
  if (match == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  // The closing brace was forgotten: what is there counts.
  return match == MarkerSet::Match::kYes ? object_done(out) : malformed(out);
}

bool JsonCallsBody::is_declared() const {
  return has_name_ && (machine_.schemas == nullptr || machine_.schemas->contains(name_));
}

/// The closing brace of a call: whatever is missing is missing for good.
JsonCallsBody::Go JsonCallsBody::object_done(CallWriter& out) {
  at_ = in_array_ ? At::kItem : At::kAfter;
  if (begun_) {
    return Go::kOn;
  }
  if (!marked_ && !committed_ && !(machine_.empty_arguments && is_declared())) {
    return Go::kNotACall;  // an answer in JSON may have a name, too
  }
  if (!has_name_) {
    if (in_doubt_ && !committed_) {
      return Go::kNotACall;
    }
    out.recovered(Recovery::kMissingName);
    return Go::kOn;
  }
  out.recovered(Recovery::kMissingArguments);
  pending_ = "{}";
  forward(out);
  out.end_call();
  return Go::kOn;
}

JsonCallsBody::Go JsonCallsBody::after(Window& in) {
  const size_t space = leading_space(in.rest());
  if (space > kMaxHeldSpaceBytes) {
    return Go::kDone;
  }
  if (space == in.rest().size()) {
    return in.ending() ? Go::kDone : Go::kMore;
  }
  MarkerSet::Hit hit;
  switch (machine_.after.match_at(in, space, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kYes:
      if (hit.role != kOpen) {
        in.consume(space + hit.length_bytes);
      }
      return hit.role == kSkip ? Go::kOn : Go::kDone;
    case MarkerSet::Match::kNo:
      break;
  }
  const size_t call = kSeparators.skip_in(in.rest(), space);
  if (call > kMaxHeldSpaceBytes) {
    return Go::kDone;
  }
  if (call == in.rest().size() && !in.ending()) {
    return Go::kMore;
  }
  if (call < in.rest().size() && in.rest()[call] == '{') {
    at_ = At::kItem;
    return Go::kOn;
  }
  if (!marked_ || !machine_.has_closer || call == in.rest().size()) {
    return Go::kDone;
  }
  const bool is_surplus = in.rest()[call] == '}' || in.rest()[call] == ']';
  const auto closer = call > space ? machine_.after.match_at(in, call, hit) : MarkerSet::Match::kNo;
  if (closer == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  if (is_surplus || closer == MarkerSet::Match::kYes) {
    in.consume(call + (is_surplus ? 1 : 0));
    return Go::kOn;
  }
  return Go::kDone;  // the closer was forgotten, or text slipped in before it
}

JsonCallsBody::Go JsonCallsBody::garbage(Window& in, CallWriter& /*out*/) {
  const auto hit = machine_.after.find(in);
  in.consume(hit.offset);
  if (!hit) {
    return !in.ending() ? Go::kMore : (committed_ ? Go::kDone : Go::kNotACall);
  }
  if (hit.role != kOpen) {
    in.consume(hit.length_bytes);
  }
  return hit.role == kSkip ? Go::kOn : Go::kDone;
}

}  // namespace

std::unique_ptr<const BodyMachine> make_json_calls_machine(const BodyContext& context) {
  return std::make_unique<JsonCallsMachine>(context);
}

}  // namespace stator::parsers
