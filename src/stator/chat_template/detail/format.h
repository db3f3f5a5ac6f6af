// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/chat_template/value.h"

namespace stator::chat_template::detail {

// Values as text, spelled as Python spells them. All throw Failure past `bytes_max` (shared parts
// can make small graphs print exponentially long) and past 200 levels of nesting.

inline constexpr size_t kTextBytesMax = size_t{64} << 20U;

/// str(value); `undefined` prints nothing.
void write_str(const Value& value, std::string& out, size_t bytes_max = kTextBytesMax);
/// repr(value).
enum class KeyOrder : uint8_t { kInserted, kSorted };
void write_repr(const Value& value, std::string& out, size_t bytes_max = kTextBytesMax,
                KeyOrder key_order = KeyOrder::kInserted);
/// repr(float): shortest digits that round-trip, exponent below 1e-4 and from 1e16.
void write_double(double value, std::string& out);

/// Arguments of json.dumps.
struct JsonStyle {
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
  bool indented = false;
  std::string_view indent;  ///< one level, when indented
  bool ensure_ascii = false;
  bool sort_keys = false;
  size_t bytes_max = kTextBytesMax;
};
void write_json(const Value& value, const JsonStyle& style, std::string& out);

/// "str", "dict", …: Python's type name, for error texts.
std::string_view type_name(Kind kind);
std::string_view type_name(const Value& value);

}  // namespace stator::chat_template::detail
