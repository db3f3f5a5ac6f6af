// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/chat_template/detail/interpreter.h"

namespace stator::chat_template::detail {

/// text.splitlines() as a list; `keep_ends` leaves the line ends on.
ListData* split_lines(Interpreter& interpreter, std::string_view text, bool keep_ends = false);
/// How wordwrap breaks lines.
struct WrapStyle {
  size_t width = 79;  ///< code points
  bool break_long_words = true;
  bool break_on_hyphens = true;
};
/// One line as Python's textwrap.wrap breaks it.
std::vector<std::string> wrap_line(std::string_view line, const WrapStyle& style);
/// text.replace(from, to, limit); a negative limit means all.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        int64_t limit);
/// text.format(…): {}, {0}, {name}, {x.y}, {x[0]}, !r, !s and simple format specs.
std::string format_braces(Interpreter& interpreter, std::string_view text,
                          const CallArguments& arguments);
/// Throws kTooLarge when `text` may not grow further.
void check_text_size(const std::string& text);
/// The JSON text as a value; `text` is copied.
Value parse_json_text(Interpreter& interpreter, std::string_view text);

}  // namespace stator::chat_template::detail
