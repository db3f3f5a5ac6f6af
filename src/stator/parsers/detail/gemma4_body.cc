// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/byte_set.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/detail/names.h"
#include "stator/parsers/detail/python_literal.h"

// Gemma 4's calls: bare keys, strings between quote tokens, so nothing in them needs an escape.
//
//   <|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,days:2,tags:[<|"|>a<|"|>]}<tool_call|>
//
// Spec keys. Markers: call_begin, call_end, quote. Everything is written as it arrives, a bare word
// when it ends: true, false, null, none and nil in any case, numbers, else a string.

namespace stator::parsers {
namespace {

enum Mark : int { kOpen, kClose, kQuote };

/// Deepest nesting, longest bare word.
constexpr size_t kMaxDepth = 256;
constexpr size_t kMaxBareBytes = 4096;

struct Gemma4Machine final : BodyMachine {
  explicit Gemma4Machine(const BodyContext& context)
      : framing(context.options.special_markers), quotes(context.options.special_markers) {
    framing.add(context.spec.find_markers("call_begin"), kOpen);
    framing.add(context.spec.find_markers("call_end"), kClose);
    quotes.add(context.spec.find_markers("quote"), kQuote);
    all = framing;
    all.add(context.spec.find_markers("quote"), kQuote);
    for (unsigned char c = 0; c < 0x80; ++c) {
      if (all.may_begin(static_cast<char>(c))) {
        key_stops = key_stops.with(c, c);
        value_stops = value_stops.with(c, c);
      }
    }
  }
  std::unique_ptr<Body> start() const override;

  MarkerSet framing;
  MarkerSet quotes;
  MarkerSet all;
  // What may end a bare word: structure, and what begins a marker.
  ByteSet key_stops{":,{}[]"};
  ByteSet value_stops{",{}[]"};
};

/// What one step writes. The arguments are gathered: they come in bits of a byte or two.
class StepWriter {
 public:
  explicit StepWriter(CallWriter& out) : out_(out), json_(out.scratch()) {}

  std::string& json() { return json_; }
  /// Hands the arguments on; before anything else is written.
  CallWriter& flush() {
    if (!json_.empty()) {
      out_.arguments(json_);
      json_.clear();
    }
    return out_;
  }

 private:
  CallWriter& out_;
  std::string& json_;
};

class Gemma4Body final : public Body {
 public:
  explicit Gemma4Body(const Gemma4Machine& machine) : machine_(machine) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override { return at_ == At::kClosed; }
  bool committed() const override { return !in_doubt_; }
  void doubt() override { in_doubt_ = true; }

 private:
  enum class At : uint8_t {
    kOpening,  // before and at the name
    kKey,      // in an object, before a key or its end
    kColon,    // behind a key
    kValue,    // before a value, or the end of an array
    kString,   // in a string or a quoted key
    kBare,     // in a bare word or key
    kNext,     // behind a value
    kClosed,   // behind the arguments
    kGarbage,  // something else: skip to the closing marker
  };
  enum class Go : uint8_t { kOn, kMore, kDone, kNotACall };

  Go opening(Window& in, StepWriter& out);
  Go inside(Window& in, StepWriter& out);
  Go structure(Window& in, StepWriter& out);
  Go value(char c, Window& in, StepWriter& out);
  Go string(Window& in, StepWriter& out);
  Go bare(Window& in, StepWriter& out);
  void key_ends(Window& in, StepWriter& out);
  void value_ends(Window& in);
  Go close_bracket(char c, StepWriter& out);
  Go cut_off(StepWriter& out);
  Go malformed(StepWriter& out);
  void open(char c, StepWriter& out);
  void separate(StepWriter& out);

  void begin(StepWriter& out);

  const Gemma4Machine& machine_;
  At at_ = At::kOpening;
  bool in_doubt_ = false;  // only a call that is written is one
  bool begun_ = false;     // the call is announced: its arguments have a first key, or an end
  std::string name_;
  std::string stack_;     // open brackets
  bool is_key_ = false;   // the string or bare word is a key
  bool is_empty_ = true;  // nothing is in the innermost bracket yet
  bool comma_ = false;    // a comma has been read and not written
};

/// true, false or null, if that is what the word means; else empty.
std::string_view known_word(std::string_view word) {
  constexpr size_t kLongest = 5;
  static constexpr ByteSet kInitials("tTfFnN");
  if (word.empty() || word.size() > kLongest || !kInitials.contains(word[0])) {
    return {};
  }
  std::array<char, kLongest> letters{};
  std::ranges::transform(word, letters.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  const std::string_view lower(letters.data(), word.size());
  if (lower == "true") {
    return "true";
  }
  if (lower == "false") {
    return "false";
  }
  return lower == "null" || lower == "none" || lower == "nil" ? "null" : "";
}

bool is_json_number(std::string_view word) {
  static constexpr ByteSet kDigits = ByteSet("").with('0', '9');
  const auto at = [word](size_t i) { return i < word.size() ? word[i] : '\0'; };
  size_t end = at(0) == '-' ? 1 : 0;
  const size_t whole = end;
  end = at(whole) == '0' ? whole + 1 : kDigits.skip_in(word, whole);
  bool sound = end > whole;
  if (at(end) == '.') {
    const size_t fraction = end + 1;
    end = kDigits.skip_in(word, fraction);
    sound = sound && end > fraction;
  }
  if (at(end) == 'e' || at(end) == 'E') {
    const size_t exponent = end + (at(end + 1) == '+' || at(end + 1) == '-' ? 2 : 1);
    end = kDigits.skip_in(word, exponent);
    sound = sound && end > exponent;
  }
  return sound && end == word.size();
}

/// A word without quotes: true, false and null by any of their names, a number, else a string.
void append_bare(std::string& out, std::string_view word) {
  static constexpr ByteSet kNumberBytes("+-.0123456789eE");
  if (is_json_number(word)) {
    out += word;
    return;
  }
  const bool is_number = kNumberBytes.skip_in(word) == word.size();
  const bool is_padded = word.size() > 1 && word[0] == '0' && word[1] != '.';
  if (is_number && !is_padded && append_python_value(out, word)) {
    return;
  } else if (const std::string_view known = known_word(word); !known.empty()) {
    out += known;
  } else {
    append_json_string(out, word);
  }
}

std::unique_ptr<Body> Gemma4Machine::start() const {
  return std::make_unique<Gemma4Body>(*this);
}

Progress Gemma4Body::step(Window& in, CallWriter& writer) {
  StepWriter out(writer);
  Go go = Go::kOn;
  while (go == Go::kOn) {
    switch (at_) {
      case At::kOpening:
        go = opening(in, out);
        break;
      case At::kString:
        go = string(in, out);
        break;
      case At::kBare:
        go = bare(in, out);
        break;
      case At::kKey:
      case At::kColon:
      case At::kValue:
      case At::kNext:
        go = inside(in, out);
        break;
      case At::kClosed:
        go = take_closer(in, machine_.framing, kClose) ? Go::kDone : Go::kMore;
        break;
      case At::kGarbage:
        go = skip_past_closer(in, machine_.framing, kClose) ? Go::kDone : Go::kMore;
        break;
    }
  }
  out.flush();
  if (go == Go::kNotACall) {
    return Progress::kNotACall;
  }
  return go == Go::kMore ? Progress::kMore : Progress::kDone;
}

Gemma4Body::Go Gemma4Body::malformed(StepWriter& out) {
  if (in_doubt_) {
    return Go::kNotACall;
  }
  out.flush().give_up(Recovery::kMalformedBody);
  at_ = At::kGarbage;
  return Go::kOn;
}

/// `<|tool_call>call:NAME{`
Gemma4Body::Go Gemma4Body::opening(Window& in, StepWriter& out) {
  constexpr std::string_view kPrefixes[] = {"call:", ":"};  // of the first one's, half may be lost
  MarkerSet::Hit hit;
  const auto match = machine_.framing.match_at(in, 0, hit);
  if (match == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  if (match == MarkerSet::Match::kYes && hit.role == kOpen) {
    in.consume(hit.length_bytes);
    return Go::kOn;
  }
  const std::string_view head = in.rest().substr(0, 2 * kMaxCallNameBytes);
  size_t brace = 0;
  while (brace < head.size() && head[brace] != '{' && !machine_.framing.may_begin(head[brace])) {
    ++brace;
  }
  if (brace == head.size()) {
    return head.size() < 2 * kMaxCallNameBytes ? Go::kMore : malformed(out);
  }
  if (head[brace] != '{') {
    return malformed(out);  // names have no byte that begins a marker
  }
  std::string_view name = trim(head.substr(0, brace));
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  }
  name_ = trim(name);
  if (in_doubt_ && !is_plausible_name(name_)) {
    return malformed(out);
  }
  begun_ = false;
  stack_ = '{';
  at_ = At::kKey;
  is_empty_ = true;
  comma_ = false;
  in.consume(brace + 1);
  return Go::kOn;
}

/// Not before it is known that there are arguments.
void Gemma4Body::begin(StepWriter& out) {
  if (!begun_) {
    out.flush().begin_call(name_);
    out.json() += '{';
    begun_ = true;
    in_doubt_ = false;
  }
}

void Gemma4Body::open(char c, StepWriter& out) {
  out.json() += c;
  stack_ += c;
  at_ = c == '{' ? At::kKey : At::kValue;
  is_empty_ = true;
  comma_ = false;
}

/// A key, or the value of an array, follows.
void Gemma4Body::separate(StepWriter& out) {
  begin(out);
  if (comma_) {
    out.json() += ',';
  }
  comma_ = false;
  is_empty_ = false;
}

/// Between words: the closing marker may come at any time.
Gemma4Body::Go Gemma4Body::inside(Window& in, StepWriter& out) {
  in.consume(leading_space(in.rest()));
  if (in.empty()) {
    return Go::kMore;
  }
  if (!machine_.all.may_begin(in.rest()[0])) {
    return structure(in, out);
  }
  MarkerSet::Hit hit;
  switch (machine_.all.match_at(in, 0, hit)) {
    case MarkerSet::Match::kMaybe:
      return Go::kMore;
    case MarkerSet::Match::kNo:
      return structure(in, out);
    case MarkerSet::Match::kYes:
      break;
  }
  if (hit.role != kQuote) {
    return cut_off(out);
  }
  if (at_ != At::kKey && at_ != At::kValue) {
    return malformed(out);
  }
  in.consume(hit.length_bytes);
  is_key_ = at_ == At::kKey;
  if (is_key_ || stack_.back() == '[') {
    separate(out);
  }
  out.json() += '"';
  at_ = At::kString;
  return string(in, out);
}

Gemma4Body::Go Gemma4Body::structure(Window& in, StepWriter& out) {
  const char c = in.rest()[0];
  switch (at_) {
    case At::kColon:
      if (c != ':') {
        return malformed(out);
      }
      key_ends(in, out);
      return Go::kOn;
    case At::kKey:
      if (c == '}' || c == ',') {
        at_ = At::kNext;
        return Go::kOn;
      }
      is_key_ = true;
      at_ = At::kBare;
      return bare(in, out);
    case At::kValue:
      return value(c, in, out);
    default:
      break;
  }
  if (c == ',') {
    value_ends(in);
    return Go::kOn;
  }
  in.consume(1);
  return close_bracket(c, out);
}

/// At the colon behind a key.
void Gemma4Body::key_ends(Window& in, StepWriter& out) {
  in.consume(1);
  out.json() += ':';
  at_ = At::kValue;
}

/// At the comma behind a value. It is written with what follows: models leave one behind the last
/// element.
void Gemma4Body::value_ends(Window& in) {
  in.consume(1);
  comma_ = !is_empty_;
  at_ = stack_.back() == '{' ? At::kKey : At::kValue;
}

Gemma4Body::Go Gemma4Body::value(char c, Window& in, StepWriter& out) {
  const bool in_array = stack_.back() == '[';
  if (c == ',' || c == '}' || c == ']') {
    if (!in_array) {
      out.json() += "\"\"";  // `key:` stands for an empty string
    }
    at_ = At::kNext;
    return Go::kOn;
  }
  if (c == '{' || c == '[') {
    if (stack_.size() == kMaxDepth) {
      return malformed(out);
    }
    if (in_array) {
      separate(out);
    }
    in.consume(1);
    open(c, out);
    return Go::kOn;
  }
  is_key_ = false;
  at_ = At::kBare;
  return bare(in, out);
}

Gemma4Body::Go Gemma4Body::close_bracket(char c, StepWriter& out) {
  if ((c != '}' && c != ']') || stack_.back() != (c == '}' ? '{' : '[')) {
    return malformed(out);
  }
  begin(out);
  out.json() += c;
  stack_.pop_back();
  is_empty_ = comma_ = false;
  at_ = stack_.empty() ? At::kClosed : At::kNext;
  if (stack_.empty()) {
    out.flush().end_call();
  }
  return Go::kOn;
}

/// A string ends at the next quote token and nowhere else.
Gemma4Body::Go Gemma4Body::string(Window& in, StepWriter& out) {
  if (in.ending()) {
    return Go::kMore;  // what is left is half a marker
  }
  const MarkerSet::Hit hit = machine_.quotes.find(in);
  append_json_string_body(out.json(), in.rest().substr(0, hit.offset));
  in.consume(hit.offset);
  if (!hit) {
    return Go::kMore;
  }
  in.consume(hit.length_bytes);
  out.json() += '"';
  at_ = is_key_ ? At::kColon : At::kNext;
  return Go::kOn;
}

Gemma4Body::Go Gemma4Body::bare(Window& in, StepWriter& out) {
  const ByteSet& stops = is_key_ ? machine_.key_stops : machine_.value_stops;
  const std::string_view rest = in.rest();
  MarkerSet::Hit hit;
  auto match = MarkerSet::Match::kNo;
  size_t length = stops.find_in(rest);
  while (length < rest.size() && machine_.all.may_begin(rest[length])) {
    match = machine_.all.match_at(in, length, hit);
    if (match != MarkerSet::Match::kNo) {
      break;
    }
    length = stops.find_in(rest, length + 1);
  }
  if (length > kMaxBareBytes) {
    return malformed(out);
  }
  if (length == rest.size() || match == MarkerSet::Match::kMaybe) {
    return Go::kMore;
  }
  const char c = match == MarkerSet::Match::kYes ? '\0' : rest[length];
  const std::string_view word = trim(rest.substr(0, length));
  const bool is_sound = is_key_ ? c == ':' && !word.empty()
                                : c != '{' && c != '[' && (c != '\0' || hit.role == kClose);
  if (!is_sound) {
    return malformed(out);
  }
  in.consume(length);
  if (is_key_) {
    separate(out);
    append_json_string(out.json(), word);
    key_ends(in, out);
    return Go::kOn;
  }
  if (stack_.back() == '[') {
    separate(out);
  }
  append_bare(out.json(), word);
  at_ = At::kNext;
  if (c == ',') {
    value_ends(in);
  }
  return Go::kOn;
}

/// The closing marker came with brackets open: they are closed for the model.
Gemma4Body::Go Gemma4Body::cut_off(StepWriter& out) {
  if (at_ == At::kColon || (in_doubt_ && !begun_)) {
    return malformed(out);
  }
  begin(out);
  if (at_ == At::kValue && stack_.back() == '{') {
    out.json() += "\"\"";
  }
  for (; !stack_.empty(); stack_.pop_back()) {
    out.json() += stack_.back() == '{' ? '}' : ']';
  }
  out.flush().recovered(Recovery::kRepairedArguments);
  out.flush().end_call();
  at_ = At::kClosed;
  return Go::kOn;
}

}  // namespace

std::unique_ptr<const BodyMachine> make_gemma4_machine(const BodyContext& context) {
  return std::make_unique<Gemma4Machine>(context);
}

}  // namespace stator::parsers
