// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace stator::net::detail {

/// Without the white space around it: header values and entries of lists.
constexpr std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace stator::net::detail
