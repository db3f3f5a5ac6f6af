// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "stator/app/invocation.h"

namespace stator::app {

/// The number that an option gives, without a unit; `out` stays where the option is absent or
/// empty. kInvalidArgument names the flag and what it may be.
template <typename Number>
Status read_number(const Invocation& invocation, std::string_view flag, Number low, Number high,
                   Number& out) {
  const auto found = invocation.options.find(flag);
  if (found == invocation.options.end() || found->second.empty()) {
    return {};
  }
  const std::string_view text = found->second;
  Number value{};
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || !(value >= low) ||
      !(value <= high)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} must be from {} to {}, is '{}'", flag, low, high, text));
  }
  out = value;
  return {};
}

}  // namespace stator::app
