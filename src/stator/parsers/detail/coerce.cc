// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/coerce.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "stator/parsers/detail/byte_set.h"
#include "stator/parsers/detail/json_stream.h"
#include "stator/parsers/detail/python_literal.h"
#include "stator/parsers/detail/window.h"

namespace stator::parsers {
namespace {

/// Kind of a JSON value, by its text.
ValueKind kind_of(std::string_view json) {
  switch (json.empty() ? '\0' : json[0]) {
    case '{':
      return ValueKind::kObject;
    case '[':
      return ValueKind::kArray;
    case '"':
      return ValueKind::kString;
    case 't':
    case 'f':
      return ValueKind::kBoolean;
    case 'n':
      return ValueKind::kNull;
    default:
      return json.find_first_of(".eE") == std::string_view::npos ? ValueKind::kInteger
                                                                 : ValueKind::kNumber;
  }
}

/// 3.0 is an integer to JSON Schema, and every integer is a number.
bool fits(ValueKind value, std::string_view json, ValueKind wanted) {
  if (value == ValueKind::kInteger && wanted == ValueKind::kNumber) {
    return true;
  }
  if (value == ValueKind::kNumber && wanted == ValueKind::kInteger) {
    return json.ends_with(".0");
  }
  return value == wanted;
}

/// Whether writing the number gives the same text: integers of any length do, 1.10, 1e5 and -0
/// do not.
bool is_canonical_number(std::string_view text) {
  if (text.find_first_of(".eE") == std::string_view::npos) {
    return text != "-0";
  }
  // A decimal of up to 15 digits is the shortest that reads as its double, if it has no zeros to
  // spare; one that begins with zero or ends with .0 may be shorter with an exponent.
  const size_t point = text.find('.');
  const bool is_decimal = point != std::string_view::npos &&
                          text.find_first_of("eE") == std::string_view::npos &&
                          text.size() > point + 1;
  if (is_decimal && !text.ends_with(".0")) {
    if (text.back() == '0') {
      return false;
    }
    constexpr size_t kExactDigits = 15;
    if (text.size() <= kExactDigits && text[text[0] == '-' ? 1 : 0] != '0') {
      return true;
    }
  }
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
    return false;
  }
  char buffer[64];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string again(buffer, written.ptr);
  if (again.find_first_of(".e") == std::string::npos) {
    again += ".0";
  }
  return again == text;
}

/// Whether every number inside a JSON value is canonical.
bool has_canonical_numbers(std::string_view json) {
  constexpr std::string_view kNumberBytes = "+-.0123456789eE";
  for (size_t at = 0; at < json.size(); ++at) {
    if (json[at] == '"') {
      for (++at; at < json.size() && json[at] != '"'; ++at) {
        at += json[at] == '\\' ? 1 : 0;
      }
    } else if (json[at] == '-' || (json[at] >= '0' && json[at] <= '9')) {
      const size_t end = std::min(json.find_first_not_of(kNumberBytes, at), json.size());
      if (!is_canonical_number(json.substr(at, end - at))) {
        return false;
      }
      at = end - 1;
    }
  }
  return true;
}

void append_guess(std::string& out, std::string_view text) {
  static constexpr ByteSet kValueStarts("{[-0123456789tfn");  // strings are text
  const bool is_value = !text.empty() && kValueStarts.contains(text.front()) &&
                        !is_space(text.back()) && is_json(text) && has_canonical_numbers(text);
  if (is_value) {
    out += text;
  } else {
    append_json_string(out, text);
  }
}

/// The JSON spelling of the text read as JSON, as a boolean in any case, as a Python literal, or as
/// JSON that was escaped once too often. Empty: it is none of them.
std::string read_value(std::string_view text) {
  std::string value;
  if (is_json(text)) {
    value = text;
    return value;
  }
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  if (lower == "true" || lower == "false" || lower == "null") {
    return lower;
  }
  if (append_python_value(value, text)) {
    return value;
  }
  value.clear();
  if (text.find(R"(\")") != std::string_view::npos &&
      !(append_unescaped(value, text) && is_json(value))) {
    value.clear();
  }
  return value;
}

}  // namespace

void append_coerced(std::string& out, std::string_view text, const ValueSchema* schema) {
  if (schema == nullptr || schema->kinds.empty()) {
    append_guess(out, text);
    return;
  }
  const auto& kinds = schema->kinds;
  if (kinds.size() == 1 && kinds[0] == ValueKind::kString) {
    append_json_string(out, text);
    return;
  }
  const std::string value = read_value(trim(text));
  const ValueKind kind = kind_of(value);
  const bool wanted = std::ranges::any_of(
      kinds, [&](ValueKind one) { return one != ValueKind::kString && fits(kind, value, one); });
  const bool may_be_text = std::ranges::find(kinds, ValueKind::kString) != kinds.end();
  const bool is_bit = !wanted && !may_be_text && (value == "0" || value == "1");
  if (is_bit && schema->allows(ValueKind::kBoolean)) {
    out += value == "1" ? "true" : "false";
  } else if (!value.empty() && (wanted || !may_be_text)) {
    out += value;
  } else {
    append_json_string(out, text);
  }
}

}  // namespace stator::parsers
