// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/look_ahead.h"

#include <fmt/format.h>

#include <string_view>

namespace stator::structured {
namespace {

/// The end of the group that a pattern begins with; npos if it has none.
size_t end_of_group(std::string_view pattern) {
  int depth = 0;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')' && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<LookAhead> take_look_aheads(std::string& pattern) {
  std::vector<LookAhead> out;
  if (!pattern.starts_with('^')) {
    return out;
  }
  std::string_view rest = std::string_view(pattern).substr(1);
  while (rest.starts_with("(?!") || rest.starts_with("(?=")) {
    const size_t end = end_of_group(rest);
    if (end == std::string_view::npos) {
      return {};
    }
    std::string_view inside = rest.substr(3, end - 3);
    const bool to_the_end = inside.ends_with('$') && !inside.ends_with("\\$");
    inside.remove_suffix(to_the_end ? 1 : 0);
    out.push_back({.wanted = rest[2] == '=',
                   .pattern = fmt::format("^(?:{}){}", inside, to_the_end ? "$" : "")});
    rest.remove_prefix(end + 1);
  }
  pattern = fmt::format("^{}", rest);
  return out;
}

}  // namespace stator::structured
