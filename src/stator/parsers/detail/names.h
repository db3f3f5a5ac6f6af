// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/parsers/detail/byte_set.h"

namespace stator::parsers {

/// Whether `name` can be the name of a function: no white space, brackets or quotes. Prose between
/// markers is not.
constexpr bool is_plausible_name(std::string_view name) {
  static constexpr ByteSet kForbidden = ByteSet("<>{}[]()\"'`,;|\\").with(0, ' ');
  return !name.empty() && kForbidden.find_in(name) == name.size();
}

}  // namespace stator::parsers
