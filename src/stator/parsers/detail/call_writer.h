// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/parsers/event_list.h"
#include "stator/parsers/output_parser.h"

namespace stator::parsers {

/// What a choice remembers about what it has sent. Invariants:
/// W1: `open` or not, calls 0 … next_index-1 have been begun, and all but the open one ended.
/// W2: `pending_space` is white space of which it is not known yet whether text follows; it is only
///     kept while `holds_space`.
struct WriterState {
  uint32_t choice_index = 0;
  uint32_t next_index = 0;
  bool open = false;          ///< a call has begun and not ended
  bool muted = false;         ///< it is one of those that are dropped
  bool truncated = false;     ///< some call was cut off
  bool broken = false;        ///< the arguments of some call turned out to be no JSON
  bool completed = false;     ///< some call is complete
  bool text_started = false;  ///< content other than white space has been sent
  bool holds_space = true;    ///< at the start, after reasoning and after calls
  std::string pending_space;
  bool reasoned = false;       ///< some reasoning has been sent
  std::string held_reasoning;  ///< with force_nonempty_content: it may have to become content
  std::string scratch;         ///< of `CallWriter::scratch`: only its capacity is kept
};

/// Room for an id that is made here, the longest being "call_" and 24 characters.
using IdBuffer = std::array<char, 32>;

/// Turns what machines find into events, and applies the rules that hold for every family: indexes,
/// ids, unknown tools, parallel calls, white space around calls. A short-lived view over its
/// arguments.
class CallWriter {
 public:
  CallWriter(const ParserOptions& options, WriterState& state, EventList& out)
      : options_(options), state_(state), out_(out) {}

  void text(std::string_view bytes) {
    state_.holds_space ? first_text(bytes) : out_.add_text(bytes);
  }
  void reasoning(std::string_view bytes);
  /// White space before reasoning, with no text yet, says nothing.
  void begin_reasoning() {
    if (!state_.text_started) {
      state_.pending_space.clear();
    }
  }
  /// Reasoning has ended: white space up to text or a call is undecided from here on.
  void end_reasoning() { state_.holds_space = true; }

  /// `native_id` empty: an id is made by the family's scheme. A name that is empty or too long
  /// drops the call: `arguments` and `end_call` then have no effect, so machines need not care.
  void begin_call(std::string_view name, std::string_view native_id = {});
  /// Opens what is written like a call and is none: nothing of it reaches the client.
  void begin_no_call();
  void arguments(std::string_view json) {
    STATOR_ASSERT(state_.open, "W1: arguments belong to an open call");
    if (!state_.muted) {
      out_.add_arguments(state_.next_index - 1, json);
    }
  }
  void end_call();
  /// Ends an open call whose arguments will never be complete.
  void break_call(Recovery why);
  void recovered(Recovery recovery) { out_.add_recovery(recovery); }
  /// What is being read is no call, or not any more: the open one ends, and it is counted.
  void give_up(Recovery why) { call_open() ? break_call(why) : recovered(why); }

  /// An empty string for a machine to put a fragment together in; until it asks for it again.
  std::string& scratch() {
    state_.scratch.clear();
    return state_.scratch;
  }

  bool call_open() const { return state_.open; }
  bool text_started() const { return state_.text_started; }
  const ParserOptions& options() const { return options_; }

  /// The stream is over.
  void finish();

 private:
  void first_text(std::string_view bytes);
  std::string_view make_id(IdBuffer& buffer) const;
  void release_reasoning();

  const ParserOptions& options_;
  WriterState& state_;
  EventList& out_;
};

}  // namespace stator::parsers
