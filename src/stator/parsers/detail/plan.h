// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/call_writer.h"
#include "stator/parsers/detail/marker_set.h"
#include "stator/parsers/output_parser.h"

namespace stator::parsers {

/// What a hit of a marker means outside of calls.
enum class Role : int {
  kCalls,    ///< a stretch of tool calls begins
  kPerhaps,  ///< ordinary text that begins calls if calls follow
  kStray,    ///< belongs to calls, but none is open
  kFraming,  ///< says where text stands, which the client does not care about
  kReasoningOpen,
  kReasoningClose,
};

/// A request's parser, compiled.
struct ParserPlan {
  ParserOptions options;
  std::shared_ptr<const FamilySpec> calls_family;  ///< of `machine`; null: calls are not looked for
  std::unique_ptr<const BodyMachine> machine;      ///< null with calls_family
  MarkerSet start_markers;                         ///< begin calls at the start of the output only
  MarkerSet text_markers;                          ///< in content
  MarkerSet reasoning_markers;                     ///< in reasoning
  MarkerSet reasoning_closers;                     ///< those of them that end it
  MarkerSet call_openers;         ///< of all kinds, if some count in reasoning only
  bool peeks = false;             ///< the output may be bare JSON although reasoning is expected
  std::string prefix;             ///< text that is put before the output
  bool starts_in_body = false;    ///< channel formats: the machine reads everything
  bool starts_with_name = false;  ///< any first word may begin a call
  bool calls_are_json = false;    ///< what follows an opener of calls is '{' or '['
  bool keeps_opener = false;      ///< what turns out to be no call is text with its opening marker
};

/// So often text behind text may begin like unmarked calls and be none; from then on it is text
/// at once. Keeps the time linear in what is held.
inline constexpr uint32_t kMaxFalseStarts = 16;

/// Where a choice stands.
///
///   kReasoning <──open── kText ──marker──> kBody
///        └────close────────^ └───done──────┘
///
/// R1: `held` is what no event has been made of yet, `tokens` are the special tokens in it.
/// R2: `body` is set exactly in kBody.
/// R3: while `may_be_text`, `raw` is everything consumed since the body was opened.
struct ChoiceState {
  enum class Mode : uint8_t { kReasoning, kText, kBody };

  Mode mode = Mode::kText;
  std::string held;
  std::vector<TokenSpan> tokens;
  WriterState writer;
  std::unique_ptr<Body> body;
  std::unique_ptr<Body> spare;  ///< the one before
  bool may_be_text = false;
  size_t opener_bytes = 0;    ///< length of the marker that opened the body
  uint32_t false_starts = 0;  ///< text that began like calls without a marker, up to the limit
  uint32_t kept_openers = 0;  ///< openers that were given back as text: their closers are text, too
  std::string raw;
  bool peeked = false;         ///< the first byte has been looked at
  bool is_plain = false;       ///< bare JSON: nothing in it is a marker
  bool at_start = true;        ///< no content yet, so start markers count
  bool trims_newline = false;  ///< a newline right here belongs to a reasoning marker
  bool reasoning_written = false;
  bool span_written = false;     ///< and this span has written some
  bool reasoned_before = false;  ///< a span of reasoning has ended: the next one is set apart
  bool handed_over = false;      ///< calls were seen in reasoning; it goes on if they are none
  bool handed_newline = false;   ///< with handed_over: a newline stood before their opener
  bool held_newline = false;     ///< of reasoning: it may belong to a closer right behind it
};

/// Whether the output begins with JSON instead of reasoning: false if more text is needed. In
/// reasoning_step.cc.
bool peek(const ParserPlan& plan, ChoiceState& state, Window& in);

/// One step in reasoning: false if more text is needed. Same place.
bool step_reasoning(const ParserPlan& plan, ChoiceState& state, Window& in, CallWriter& out);

/// What looked like calls in reasoning was none: `text`, without a closer in it, is reasoning. Same
/// place.
void resume_reasoning(ChoiceState& state, std::string_view text, CallWriter& out);

/// After reasoning, before content: false if more text is needed. Same place.
bool trim_after_reasoning(ChoiceState& state, Window& in);

}  // namespace stator::parsers
