// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/parsers/event_list.h"
#include "stator/parsers/family_spec.h"
#include "stator/parsers/tool_schemas.h"

namespace stator::parsers {

/// Splits generated text into content, reasoning and tool calls, as it arrives.
///
///   auto parser = OutputParser::create({.tools_family = hermes, .tool_mode = ToolMode::kNative,
///                                       .schemas = schemas, .id_seed = random.next()});
///   OutputParser::State state = parser->make_state(choice_index);      // one per choice
///   parser->feed(state, delta, events);                                // for each delta
///   Outcome outcome = parser->finish(state, StreamEnd::kStop, events); // once
///
/// The events' concatenation does not depend on how the text was cut. Text is released at once,
/// but for what may still become a marker. Nothing is lost or sent twice; see Recovery for what
/// happens to malformed output.

enum class ToolMode : uint8_t {
  kOff,              ///< no tools, or tool_choice none: calls are text, channels are still framed
  kNative,           ///< the family's own format
  kGuidedCalls,      ///< guided to [{"name","parameters"|"arguments"}] (tool_choice required)
  kGuidedArguments,  ///< guided to the bare arguments object of `named_tool` (tool_choice named)
};

enum class ReasoningMode : uint8_t {
  kOff,           ///< reasoning is not looked for
  kOn,            ///< begins with an opener
  kStartsInside,  ///< the prompt, or the model's habit, has opened it already
};

enum class UnknownTools : uint8_t { kKeep, kDrop };

/// Everything a request decides. Cheap to copy.
struct ParserOptions {
  std::shared_ptr<const FamilySpec> tools_family;         ///< null: none
  std::shared_ptr<const ReasoningSpec> reasoning_family;  ///< null: none
  ToolMode tool_mode = ToolMode::kOff;
  ReasoningMode reasoning = ReasoningMode::kOff;
  std::shared_ptr<const ToolSchemas> schemas;  ///< null: any name is known, values are guessed
  std::string named_tool;                      ///< kGuidedArguments
  UnknownTools unknown_tools = UnknownTools::kKeep;
  bool parallel_calls = true;  ///< false: only the first call is let through
  uint64_t id_seed = 0;        ///< from Random; equal seeds give equal ids
  /// Markers that are one special token in this tokenizer. Where the family says "special", the
  /// same letters from ordinary tokens then do not count. Empty when token ids are not known.
  std::vector<std::string> special_markers;
  /// The answer is constrained to JSON (response_format, or a guided tool mode): engines may then
  /// leave out the reasoning. If the output begins with '{' or '[' instead, there is none.
  bool answers_json = false;
  /// A turn of reasoning without content hands its reasoning out as content.
  bool force_nonempty_content = false;
};

/// The text of one token, or of several ordinary ones.
struct Piece {
  std::string_view text;
  bool special = false;  ///< exactly one special token of the vocabulary
};

enum class StreamEnd : uint8_t { kStop, kLength, kCancelled };

/// What the finish reason depends on.
struct Outcome {
  bool has_calls = false;
  /// The stream ended inside a call of which something had been sent, or its arguments broke and no
  /// other call is complete: finish reason `length`.
  bool truncated_call = false;
};

/// Longest name of a call, longest single value that is held back, in bytes. Beyond them the call
/// is dropped with Recovery::kTooLarge.
inline constexpr size_t kMaxCallNameBytes = 1024;
inline constexpr size_t kMaxHeldBytes = size_t{16} << 20;

struct ParserPlan;   // detail/plan.h
struct ChoiceState;  // detail/plan.h

/// Immutable, one per request, shared by its choices. Pure: no I/O, no clock, no locks.
class OutputParser {
 public:
  /// What one choice remembers. Move-only; destroyed at any time without `finish`. Its parser
  /// outlives it.
  class State {
   public:
    State(State&&) noexcept;
    State& operator=(State&&) noexcept;
    ~State();
    /// Bytes that wait for their decision: 0 means that everything fed has become an event.
    size_t held_bytes() const;

   private:
    friend class OutputParser;
    explicit State(std::unique_ptr<ChoiceState> state);
    std::unique_ptr<ChoiceState> state_;
  };

  static std::shared_ptr<const OutputParser> create(ParserOptions options);
  ~OutputParser();

  /// `choice_index` only serves to give every choice ids of its own.
  State make_state(uint32_t choice_index = 0) const;

  /// Appends to `out` what became certain.
  void feed(State& state, std::span<const Piece> pieces, EventList& out) const;
  void feed(State& state, std::string_view text, EventList& out) const;

  /// Releases or drops what was held. Nothing may be fed afterwards.
  Outcome finish(State& state, StreamEnd end, EventList& out) const;

  /// True if text passes through unchanged: the caller may skip the parser altogether.
  bool is_pass_through() const;

 private:
  explicit OutputParser(std::unique_ptr<const ParserPlan> plan);
  std::unique_ptr<const ParserPlan> plan_;
};

}  // namespace stator::parsers
