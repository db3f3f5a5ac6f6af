// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/parsers/detail/window.h"

namespace stator::parsers {

/// Python literals as models write them in calls, spelled as JSON: True, False and None (and their
/// JSON names), integers of any length, floats, strings in all four quotes with Python's escapes,
/// lists, tuples and sets (arrays), dicts (objects). Output is compact, keys keep their order,
/// digits their spelling.
///
/// Accepted beyond Python, because models write it: line breaks inside '…' and "…", quotes inside
/// quotes of the same kind ('it's'), broken escapes (kept as text), zero-padded integers. Refused:
/// names, calls, operators, bytes and f-strings.

/// Deepest nesting that is read.
inline constexpr uint32_t kMaxPythonDepth = 128;

/// Appends the JSON spelling of `text`, which must be exactly one literal and white space. False,
/// with `out` as it was, if it is anything else.
bool append_python_value(std::string& out, std::string_view text);

/// The same for what stands between the parentheses of a call: `a=1, b="x"` becomes
/// {"a":1,"b":"x"}. Positional arguments are refused.
bool append_python_arguments(std::string& out, std::string_view text);

/// Finds where a call ends in text that arrives bit by bit, without reading any byte twice.
class PythonCallScanner {
 public:
  /// Looks at `text` from where the last call stopped; `text` begins behind the call's opening
  /// parenthesis and only ever grows. Returns the offset of the parenthesis that closes the call,
  /// or npos if it has not come yet.
  size_t find_end(std::string_view text, Window::Ending ending);
  void reset() { *this = PythonCallScanner(); }

 private:
  size_t skip_string(std::string_view text, Window::Ending ending);

  size_t at_ = 0;
  uint32_t depth_ = 0;
  char quote_ = '\0';  // '\0': not in a string
  bool triple_ = false;
};

}  // namespace stator::parsers
