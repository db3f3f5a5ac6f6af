// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

namespace stator::parsers {

/// Whether `name` can be the name of a function: no white space, brackets or quotes. Prose between
/// markers is not.
constexpr bool is_plausible_name(std::string_view name) {
  constexpr std::string_view kForbidden = "<>{}[]()\"'`,;|\\";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return static_cast<unsigned char>(c) > ' ' && kForbidden.find(c) == std::string_view::npos;
  });
}

}  // namespace stator::parsers
