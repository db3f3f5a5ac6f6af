// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "stator/parsers/detail/call_writer.h"
#include "stator/parsers/detail/marker_set.h"
#include "stator/parsers/detail/window.h"

namespace stator::parsers {

/// What the body of a family has done with the window.
enum class Progress : uint8_t {
  kMore,      ///< cannot go on without more text; the unconsumed rest is held
  kDone,      ///< the calls are over: what is left in the window is ordinary output again
  kNotACall,  ///< this was no call after all: everything consumed since the opener is text
};

/// Reads one stretch of tool calls, from its opening marker (not consumed yet) to its end. One
/// object per stretch and choice, or per choice where it can restart. `step` consumes from `in` as
/// far as it can decide and writes to `out`; it is called again with the rest and more. It either
/// consumes all it can and says kMore, or ends.
///
/// At the end of the stream it is called once more with `in.ending()`: it then takes what is left
/// as complete. If it still says kMore, the caller ends an open call as truncated, or drops the
/// unfinished one, unless it is `between_calls`.
class Body {
 public:
  virtual ~Body() = default;
  virtual Progress step(Window& in, CallWriter& out) = 0;
  /// No call has begun that is not finished: nothing is lost if the stream ends here.
  virtual bool between_calls() const = 0;
  /// This is a stretch of calls for sure: kNotACall will not be said any more.
  virtual bool committed() const = 0;
  /// The opener stands in reasoning, which may be about it and nothing more: until a call has begun
  /// beyond doubt, nothing is written, and what would elsewhere be a broken call is kNotACall.
  virtual void doubt() {}
  /// Makes it as new for the next stretch, but keeps its memory; false: it cannot.
  virtual bool restart() { return false; }

 protected:
  Body() = default;
  Body(const Body&) = default;
  Body& operator=(const Body&) = default;
};

/// The compiled form of a family's body: marker sets and switches, shared by all choices. Made once
/// per parser from the family's spec, which outlives it.
class BodyMachine {
 public:
  virtual ~BodyMachine() = default;
  virtual std::unique_ptr<Body> start() const = 0;

 protected:
  BodyMachine() = default;
  BodyMachine(const BodyMachine&) = default;
  BodyMachine& operator=(const BodyMachine&) = default;
};

/// Everything a machine may need to compile itself. The references outlive the machine.
struct BodyContext {
  const FamilySpec& spec;
  const ParserOptions& options;
};

/// The machine for `context.spec.body`. One row per kind in body.cc.
std::unique_ptr<const BodyMachine> make_body_machine(const BodyContext& context);

// The machines; each in a file of its own, with its part of the spec format above it.
std::unique_ptr<const BodyMachine> make_json_calls_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_named_json_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_tag_params_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_whole_json_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_pythonic_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_harmony_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_invoke_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_gemma4_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_minimax_m3_machine(const BodyContext& context);
std::unique_ptr<const BodyMachine> make_guided_arguments_machine();

}  // namespace stator::parsers
