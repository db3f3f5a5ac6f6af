// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "stator/chat_template/value.h"

namespace stator::chat_template::detail {

/// How one value is written and padded, for `%` and for `{}` formatting alike.
struct FormatSpec {
  std::string_view fill = " ";
  char align = 0;  ///< '<', '>', '^', '=' or 0: by type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  char grouping = 0;  ///< ',' or '_'
  size_t width = 0;
  int precision = -1;
  char type = 0;
};

/// Digits at `at`, which moves past them. Throws above 10,000, the widest field.
size_t read_format_count(std::string_view text, size_t& at);
/// [[fill]align][sign][#][0][width][grouping][.precision][type]
FormatSpec parse_format_spec(std::string_view text);

/// format(value, spec): throws where Python refuses the type or the combination.
std::string format_value(const Value& value, std::string_view spec_text);
/// A number under `spec`, whose type must suit it.
std::string format_number(const Value& value, const FormatSpec& spec);
/// `text` cut to the precision and padded to the width.
std::string format_text(std::string_view text, const FormatSpec& spec);

}  // namespace stator::chat_template::detail
