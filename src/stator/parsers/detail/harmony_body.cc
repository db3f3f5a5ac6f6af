// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/harmony_machine.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/detail/message_header.h"
#include "stator/parsers/detail/names.h"

// The state machine of channel formats; harmony_machine.cc describes their specs.

namespace stator::parsers {
namespace {

/// Longest header; what is longer is taken for text.
constexpr size_t kMaxHeaderBytes = 4 * kMaxCallNameBytes;
constexpr std::string_view kTo = "to=";

/// State machine of one choice:
///
///   kBetween ──<|start|>, <|channel|>, to=──> kHeader ──<|message|>──> kMessage
///      ^  └──────────────text────────────────────────────────────────────^  │
///      │└─────────────────────────────<|end|>────────────────────────────────┤
///      └──next marker── kAfterCalls <──machine_.calls is done────────────────┘
class HarmonyBody final : public Body {
 public:
  explicit HarmonyBody(const HarmonyMachine& machine)
      : machine_(machine), at_(machine.has_kinds ? At::kHeader : At::kBetween) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override {
    if (calls_ != nullptr) {
      return calls_->between_calls();
    }
    return at_ == At::kBetween || at_ == At::kAfterCalls ||
           (at_ == At::kHeader && machine_.has_kinds) ||
           (at_ == At::kMessage && (route_ != Route::kCall || ended_));
  }
  bool committed() const override { return true; }

 private:
  enum class At : uint8_t { kBetween, kHeader, kMessage, kAfterCalls };
  using Route = HarmonyRoute::Kind;
  using Part = MessageHeader::Part;

  bool between(Window& in, CallWriter& out);
  MarkerSet::Match match_bare_word(const Window& in, size_t space, Part& part) const;
  MarkerSet::Match match_bare_recipient(const Window& in, size_t at) const;
  bool header(Window& in, CallWriter& out);
  bool kind_header(Window& in, CallWriter& out);
  bool message(Window& in, CallWriter& out);
  bool calls(Window& in, CallWriter& out);
  bool after_calls(Window& in, CallWriter& out);
  bool bare_header(const MarkerSet::Hit& hit, Window& in, CallWriter& out);

  void begin_header(Part part);
  void end_header_early(std::string_view text, CallWriter& out);
  bool write_forgotten_message(std::string_view text, CallWriter& out);
  void begin_message(CallWriter& out);
  void begin_message(Route route, CallWriter& out);
  void begin_kind(const MarkerSet::Hit& hit, Window& in, CallWriter& out);
  void end_message(CallWriter& out);
  void write(std::string_view text, CallWriter& out);
  void write_arguments(std::string_view text, CallWriter& out);

  const HarmonyMachine& machine_;
  At at_;
  Part part_ = Part::kRole;
  MessageHeader header_;
  bool first_ = true;  // the prompt has begun the first header
  Route route_ = Route::kContent;
  bool reasoned_ = false;      // some message was reasoning
  bool span_started_ = false;  // this one has written something
  bool drop_space_ = false;    // the space behind its marker is still to come
  std::string tool_;
  bool begun_ = false;  // the call has been begun
  bool ended_ = false;  // its arguments are complete, or given up
  JsonStream json_;
  std::string json_out_;
  std::unique_ptr<Body> calls_;  // set: it reads the message
  bool is_noisy_ = false;        // something stands behind its calls
};

Progress HarmonyBody::step(Window& in, CallWriter& out) {
  bool goes_on = true;
  while (goes_on) {
    switch (at_) {
      case At::kBetween:
        goes_on = between(in, out);
        break;
      case At::kHeader:
        goes_on = machine_.has_kinds ? kind_header(in, out) : header(in, out);
        break;
      case At::kMessage:
        goes_on = calls_ != nullptr ? calls(in, out) : message(in, out);
        break;
      case At::kAfterCalls:
        goes_on = after_calls(in, out);
        break;
    }
  }
  return Progress::kMore;
}

void HarmonyBody::begin_header(Part part) {
  at_ = At::kHeader;
  part_ = part;
  first_ = false;
  header_ = MessageHeader();
}

bool HarmonyBody::between(Window& in, CallWriter& out) {
  const size_t space = leading_space(in.rest());
  if (space > kMaxHeldSpaceBytes) {
    begin_header(Part::kRest);
    begin_message(out);
    return true;
  }
  if (space == in.rest().size()) {
    if (in.ending()) {
      in.consume(space);
    }
    return false;
  }
  MarkerSet::Hit hit;
  const auto match = machine_.markers.match_at(in, space, hit);
  if (match == MarkerSet::Match::kMaybe && !in.ending()) {
    return false;
  }
  if (match == MarkerSet::Match::kYes && hit.role >= kContent) {
    in.consume(space);
    begin_kind(hit, in, out);
    return true;
  }
  if (match == MarkerSet::Match::kYes) {
    in.consume(space + hit.length_bytes);
    if (hit.role == kMessage) {
      begin_header(Part::kRest);
      begin_message(out);
    } else if (hit.role == kEnd && machine_.has_kinds) {  // the end of the turn is a marker, too
      return true;
    } else if (hit.role == kEnd) {
      out.recovered(Recovery::kStrayMarker);
    } else {
      begin_header(hit.role == kStart     ? Part::kRole
                   : hit.role == kChannel ? Part::kChannel
                                          : Part::kRest);
    }
    return true;
  }
  Part part = Part::kRest;
  auto bare = match_bare_word(in, space, part);
  const bool is_word = bare == MarkerSet::Match::kYes;
  if (bare == MarkerSet::Match::kNo && first_) {
    bare = match_bare_recipient(in, space);
  }
  if (bare == MarkerSet::Match::kMaybe && !in.ending()) {
    return false;
  }
  // Cut off within what may be a header, that is what it was; prose ends by itself.
  const bool is_cut = bare == MarkerSet::Match::kMaybe && !in.ending_by_itself() &&
                      in.rest().substr(space).starts_with(kTo);
  if (bare == MarkerSet::Match::kYes || is_cut) {
    if (is_word) {
      out.recovered(Recovery::kStrayMarker);
    }
    in.consume(space);
    begin_header(part);
    return true;
  }
  begin_header(Part::kRest);  // text where a header should be: content
  begin_message(out);
  return true;
}

/// Whether a role or a channel follows `space` without the marker that belongs before it, and then
/// what a header goes on with.
MarkerSet::Match HarmonyBody::match_bare_word(const Window& in, size_t space, Part& part) const {
  using Match = MarkerSet::Match;
  const std::string_view text = in.rest().substr(space);
  const auto match = [&](const std::string& word) {
    const std::string_view front = text.substr(0, word.size());
    if (!std::string_view(word).starts_with(front)) {
      return Match::kNo;
    }
    const std::string_view rest = text.substr(front.size());
    const size_t gap = leading_space(rest);
    if (gap > kMaxHeldSpaceBytes) {
      return Match::kNo;
    }
    if (gap > 0 && kTo.starts_with(rest.substr(gap, kTo.size()))) {
      return match_bare_recipient(in, space + front.size() + gap);
    }
    MarkerSet::Hit hit;
    const Match marker = machine_.markers.match_at(in, space + front.size() + gap, hit);
    const bool goes_on = hit.role == kChannel || hit.role == kMessage || hit.role == kConstrain;
    return marker == Match::kYes && !goes_on ? Match::kNo : marker;
  };
  Match result = Match::kNo;
  for (const auto* words : {&machine_.roles, &machine_.channels}) {
    for (const std::string& word : *words) {
      const Match one = match(word);
      if (one == Match::kYes) {
        part = words == &machine_.roles ? Part::kRole : Part::kChannel;
        return one;
      }
      result = one == Match::kMaybe ? one : result;
    }
  }
  return result;
}

/// Whether a recipient stands `at`, and then, behind a content type at most, a marker.
MarkerSet::Match HarmonyBody::match_bare_recipient(const Window& in, size_t at) const {
  using Match = MarkerSet::Match;
  constexpr std::string_view kNameBytes =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  constexpr size_t kMaxTypeBytes = 16;
  const std::string_view text = in.rest();
  const std::string_view front = text.substr(at, kTo.size());
  if (front.size() < kTo.size() || front != kTo) {
    return kTo.starts_with(front) ? Match::kMaybe : Match::kNo;
  }
  const auto skip = [text](std::string_view bytes, size_t from) {
    return std::min(text.find_first_not_of(bytes, from), text.size());
  };
  const size_t name = skip(" ", at + kTo.size());
  const size_t end = skip(kNameBytes, name);
  if (end - at > kMaxCallNameBytes || (end == name && end < text.size())) {
    return Match::kNo;
  }
  MarkerSet::Hit hit;
  const size_t next = skip(" ", end);
  const Match marker = machine_.markers.match_at(in, next, hit);
  if (next == text.size() || marker != Match::kNo || next == end) {
    return next == text.size() ? Match::kMaybe : marker;
  }
  const size_t type = skip(kNameBytes, next);
  const size_t behind = skip(" ", type);
  if (type == next || type - next > kMaxTypeBytes) {
    return Match::kNo;
  }
  return behind == text.size() ? Match::kMaybe : machine_.markers.match_at(in, behind, hit);
}

bool HarmonyBody::header(Window& in, CallWriter& out) {
  const MarkerSet::Hit hit = machine_.markers.find(in);
  const std::string_view text = in.rest().substr(0, hit.offset);
  if (text.size() > kMaxHeaderBytes) {
    out.recovered(Recovery::kTooLarge);
    const std::string_view message =
        find_forgotten_message(text.substr(0, kMaxHeaderBytes), part_);  // however it was cut
    const size_t words = message.empty() ? 0 : static_cast<size_t>(message.data() - text.data());
    read_header(text.substr(0, words), part_, header_);
    in.consume(words);
    header_.recipient.clear();
    begin_message(out);
    return true;
  }
  if (!hit) {
    if (in.ending() && write_forgotten_message(text, out)) {
      in.consume(text.size());
    }
    return false;
  }
  if (hit.role == kEnd || hit.role == kStart) {
    end_header_early(text, out);
    at_ = At::kBetween;
  } else {
    read_header(text, part_, header_);
    part_ = hit.role == kChannel ? Part::kChannel : Part::kRest;
  }
  if (hit.role == kStart) {
    begin_header(Part::kRole);
  } else if (hit.role == kMessage) {
    begin_message(out);
  }
  in.consume(hit.offset + hit.length_bytes);
  return true;
}

/// A header that a marker ends which says what the message is: a name, which says nothing new.
/// What can be no name, or is followed by no such marker, is content.
bool HarmonyBody::kind_header(Window& in, CallWriter& out) {
  const MarkerSet::Hit hit = machine_.markers.find(in);
  const std::string_view text = trim(in.rest().substr(0, hit.offset));
  const bool is_name =
      hit.offset <= kMaxHeaderBytes &&
      (text.empty() || (is_plausible_name(text) && text.size() <= kMaxCallNameBytes));
  if (!hit && is_name && !in.ending()) {
    return false;
  }
  if (!hit || !is_name || hit.role == kEnd) {
    begin_message(Route::kContent, out);
    return true;
  }
  in.consume(hit.offset);
  if (hit.role >= kContent) {
    begin_kind(hit, in, out);
  } else {
    in.consume(hit.length_bytes);
  }
  return true;
}

/// `hit`, which stands at the front, is one of the markers that say what a message is.
void HarmonyBody::begin_kind(const MarkerSet::Hit& hit, Window& in, CallWriter& out) {
  const bool has_calls = hit.role == kCalls && out.options().tool_mode != ToolMode::kOff;
  in.consume(has_calls ? 0 : hit.length_bytes);  // of calls it is a part
  begin_message(has_calls                ? Route::kCall
                : hit.role == kReasoning ? Route::kReasoning
                                         : Route::kContent,
                out);
}

/// A header without <|message|>. If its arguments or its text follow all the same, they count.
void HarmonyBody::end_header_early(std::string_view text, CallWriter& out) {
  const size_t brace = text.find('{');
  if (write_forgotten_message(text, out)) {
    return;
  }
  out.recovered(Recovery::kStrayMarker);
  if (brace != std::string_view::npos && machine_.calls == nullptr &&
      !machine_.tool_of(header_.recipient, out.options()).empty()) {
    begin_message(out);
    write(text.substr(brace), out);
    end_message(out);
  }
}

/// Reads a header without <|message|>, and the message, if it has no recipient and text behind it.
bool HarmonyBody::write_forgotten_message(std::string_view text, CallWriter& out) {
  read_header(text.substr(0, text.find('{')), part_, header_);
  const std::string_view message = find_forgotten_message(text, part_);
  if (!header_.recipient.empty() || message.empty()) {
    return false;
  }
  out.recovered(Recovery::kStrayMarker);
  begin_message(out);
  write(message, out);
  end_message(out);
  return true;
}

void HarmonyBody::begin_message(CallWriter& out) {
  HarmonyRoute route = machine_.route(header_, out.options());
  tool_ = std::move(route.tool);
  begin_message(route.kind, out);
}

void HarmonyBody::begin_message(Route route, CallWriter& out) {
  at_ = At::kMessage;
  first_ = false;
  route_ = route;
  calls_ = route == Route::kCall && machine_.calls != nullptr ? machine_.calls->start() : nullptr;
  span_started_ = begun_ = ended_ = false;
  drop_space_ = machine_.spaced;
  json_ = JsonStream();
  if (route_ == Route::kDropped) {
    out.recovered(Recovery::kUnknownTool);
  }
}

void HarmonyBody::end_message(CallWriter& out) {
  at_ = At::kBetween;
  if (route_ == Route::kReasoning) {
    out.end_reasoning();
  }
  if (route_ != Route::kCall || ended_) {
    return;
  }
  if (begun_) {
    out.break_call(Recovery::kMalformedBody);
    return;
  }
  out.recovered(Recovery::kMissingArguments);
  out.begin_call(tool_);
  out.arguments("{}");
  out.end_call();
}

bool HarmonyBody::message(Window& in, CallWriter& out) {
  if (in.ending() && route_ == Route::kCall) {
    return false;  // what is left is half a marker
  }
  const MarkerSet::Hit hit = machine_.markers.find(in);
  if (machine_.bare_headers && (hit.role == kMessage || (!hit && !in.ending()))) {
    return bare_header(hit, in, out);
  }
  if (hit.offset > 0) {
    write(in.rest().substr(0, hit.offset), out);
    in.consume(hit.offset);
  }
  if (!hit) {
    return false;
  }
  if (hit.role >= kContent) {  // the end of this one was forgotten
    end_message(out);
    begin_kind(hit, in, out);
    return true;
  }
  in.consume(hit.length_bytes);
  switch (hit.role) {
    case kStart:
    case kChannel:
      end_message(out);
      begin_header(hit.role == kStart ? Part::kRole : Part::kChannel);
      break;
    case kEnd:
      end_message(out);
      break;
    default:
      out.recovered(Recovery::kStrayMarker);
      break;
  }
  return true;
}

/// In a message, before a message marker or the end of what has come: a recipient at the end of the
/// text begins another message, or may do so.
bool HarmonyBody::bare_header(const MarkerSet::Hit& hit, Window& in, CallWriter& out) {
  const std::string_view text = in.rest().substr(0, hit.offset);
  const size_t header = find_trailing_recipient(text, kMaxCallNameBytes);
  MessageHeader next;
  read_header(text.substr(header), Part::kRest, next);
  write(text.substr(0, header), out);
  in.consume(hit ? hit.offset + hit.length_bytes : header);
  if (!hit) {
    return false;
  }
  if (next.recipient.empty()) {
    write(text.substr(header), out);
    out.recovered(Recovery::kStrayMarker);
    return true;
  }
  end_message(out);
  header_ = std::move(next);
  begin_message(out);
  return true;
}

/// In a message that another machine reads. Where kinds have markers its end is the machine's, too.
bool HarmonyBody::calls(Window& in, CallWriter& out) {
  const size_t from = in.consumed();
  if (calls_->step(in, out) == Progress::kMore) {
    return false;
  }
  calls_.reset();
  const bool has_ended =
      machine_.has_kinds && std::ranges::any_of(machine_.ends, [&](const std::string& end) {
        return in.consumed_since(from).ends_with(end);
      });
  at_ = has_ended ? At::kHeader : At::kAfterCalls;
  is_noisy_ = false;
  return true;
}

/// What is left of a message behind its calls, or instead of them, is nothing.
bool HarmonyBody::after_calls(Window& in, CallWriter& out) {
  const MarkerSet::Hit hit = machine_.markers.find(in);
  if (!is_noisy_ && !trim(in.rest().substr(0, hit.offset)).empty()) {
    out.recovered(Recovery::kMalformedBody);
    is_noisy_ = true;
  }
  in.consume(hit.offset + (hit.role == kEnd ? hit.length_bytes : 0));
  at_ = hit ? At::kBetween : At::kAfterCalls;
  return static_cast<bool>(hit);
}

void HarmonyBody::write(std::string_view text, CallWriter& out) {
  if (drop_space_ && !text.empty()) {
    drop_space_ = false;
    text.remove_prefix(text[0] == ' ' ? 1 : 0);
    if (text.empty()) {
      return;
    }
  }
  switch (route_) {
    case Route::kContent:
      out.text(text);
      break;
    case Route::kReasoning:
      if (reasoned_ && !span_started_) {
        out.reasoning("\n");
      }
      reasoned_ = span_started_ = true;
      out.reasoning(text);
      break;
    case Route::kCall:
      write_arguments(text, out);
      break;
    case Route::kDropped:
      break;
  }
}

void HarmonyBody::write_arguments(std::string_view text, CallWriter& out) {
  if (!begun_) {
    text.remove_prefix(leading_space(text));
  }
  if (ended_ || text.empty()) {
    return;
  }
  if (!begun_ && text[0] != '{') {
    out.recovered(Recovery::kMalformedBody);
    ended_ = true;
    return;
  }
  if (!begun_) {
    out.begin_call(tool_);
    begun_ = true;
  }
  json_out_.clear();
  json_.feed(text, json_out_);
  out.arguments(json_out_);
  if (json_.status() == JsonStream::Status::kMore) {
    return;
  }
  ended_ = true;
  if (json_.status() == JsonStream::Status::kMalformed) {
    out.break_call(Recovery::kMalformedBody);
    return;
  }
  if (json_.repaired()) {
    out.recovered(Recovery::kRepairedArguments);
  }
  out.end_call();
}

}  // namespace

std::unique_ptr<Body> HarmonyMachine::start() const {
  return std::make_unique<HarmonyBody>(*this);
}

std::unique_ptr<const BodyMachine> make_harmony_machine(const BodyContext& context) {
  return std::make_unique<HarmonyMachine>(context);
}

}  // namespace stator::parsers
