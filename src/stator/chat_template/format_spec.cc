// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/text.h"
#include "stator/text/utf8.h"

namespace stator::chat_template::detail {
namespace {

constexpr size_t kWidthMax = 10'000;

bool is_one_of(char c, std::string_view set) {
  return c != 0 && set.find(c) != std::string_view::npos;
}

/// The text of `value` in the given style, without sign.
std::string real_digits(double value, std::chars_format format, int precision) {
  // Digits of the largest double before the point, and the precision behind it.
  std::string buffer(330 + static_cast<size_t>(precision), '\0');
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision).ptr;
  buffer.resize(static_cast<size_t>(end - buffer.data()));
  return buffer;
}

/// A precision without a type: as %g, but always visibly a float, and with an exponent one digit
/// earlier to make room for that.
std::string untyped_digits(double value, int precision) {
  precision = std::max(precision, 1);
  std::string digits = real_digits(value, std::chars_format::general, precision);
  const bool plain = digits.find_first_of(".e") == std::string::npos;
  if (plain && static_cast<int>(digits.size()) >= precision) {
    digits = real_digits(value, std::chars_format::scientific, precision - 1);
    const size_t point = digits.find('.');
    const size_t e = digits.find('e');
    if (point != std::string::npos) {  // %g drops trailing zeros
      size_t last = e;
      while (digits[last - 1] == '0') {
        --last;
      }
      last -= digits[last - 1] == '.' ? 1 : 0;
      digits.erase(last, e - last);
    }
    return digits;
  }
  return plain ? digits + ".0" : digits;
}

std::string format_real(double value, const FormatSpec& spec) {
  const char type = static_cast<char>(spec.type | (spec.type == '%' ? 0 : 0x20));
  if (!std::isfinite(value)) {
    std::string text = std::isnan(value) ? "nan" : "inf";
    text = is_one_of(spec.type, "EFG") ? to_upper(text) : text;
    return spec.type == '%' ? text + "%" : text;
  }
  if (spec.type == 0 && spec.precision < 0) {
    std::string text;
    write_double(value, text);
    return text;
  }
  if (spec.type == 0) {
    return untyped_digits(value, spec.precision);
  }
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  std::string digits;
  switch (type) {
    case 'e':
      digits = real_digits(value, std::chars_format::scientific, precision);
      break;
    case '%':
      return real_digits(value * 100, std::chars_format::fixed, precision) + "%";
    case 'f':
      digits = real_digits(value, std::chars_format::fixed, precision);
      break;
    default:
      digits = real_digits(value, std::chars_format::general, std::max(precision, 1));
  }
  return is_one_of(spec.type, "EG") ? to_upper(digits) : digits;
}

/// Digits of the magnitude, with the prefix of '#'.
std::string format_integer(const Value& value, const FormatSpec& spec) {
  const int base = is_one_of(spec.type, "xX") ? 16
                   : spec.type == 'o'         ? 8
                   : spec.type == 'b'         ? 2
                                              : 10;
  std::string digits;
  if (value.kind() == Kind::kBigInt) {
    if (base != 10) {
      fail("integers beyond 64 bits are formatted as decimals only");
    }
    digits = value.text().substr(value.text().starts_with('-') ? 1 : 0);
  } else {
    const int64_t integer = value.as_int();
    const uint64_t magnitude =
        integer < 0 ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
    char buffer[72];
    digits.assign(buffer, std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base).ptr);
  }
  if (spec.type == 'X') {
    digits = to_upper(digits);
  }
  if (spec.alternate && base != 10) {
    digits.insert(0, base == 8 ? "0o" : base == 2 ? "0b" : spec.type == 'X' ? "0X" : "0x");
  }
  return digits;
}

/// `digits` with a separator every three (every four in binary, octal and hexadecimal).
std::string group_digits(std::string digits, const FormatSpec& spec) {
  const size_t step = is_one_of(spec.type, "xXob") ? 4 : 3;
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (size_t at = end; at > step;) {
    at -= step;
    digits.insert(at, 1, spec.grouping);
  }
  return digits;
}

std::string pad(std::string text, const FormatSpec& spec, char align) {
  const size_t length = count_code_points(text);
  if (length >= spec.width) {
    return text;
  }
  const size_t space = spec.width - length;
  const size_t left = align == '<' ? 0 : align == '^' ? space / 2 : space;
  std::string out;
  for (size_t i = 0; i < left; ++i) {
    out += spec.fill;
  }
  out += text;
  for (size_t i = left; i < space; ++i) {
    out += spec.fill;
  }
  return out;
}

/// Sign, padding between sign and digits, digits.
std::string assemble_number(bool negative, std::string digits, const FormatSpec& spec) {
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const bool zeros = spec.zero && spec.align == 0;
  if (spec.grouping != 0) {
    std::string grouped = group_digits(digits, spec);
    while (zeros && grouped.size() + sign.size() < spec.width) {
      digits.insert(0, 1, '0');
      grouped = group_digits(digits, spec);
    }
    digits = std::move(grouped);
  }
  if (!zeros && spec.align != '=') {
    return pad(sign + digits, spec, spec.align == 0 ? '>' : spec.align);
  }
  FormatSpec inner = spec;
  inner.width -= std::min(spec.width, sign.size());
  inner.fill = zeros ? "0" : spec.fill;
  const size_t prefix = spec.alternate && digits.size() > 2 && digits[0] == '0' ? 2 : 0;
  inner.width -= std::min(inner.width, prefix);
  return sign + digits.substr(0, prefix) + pad(digits.substr(prefix), inner, '>');
}

std::string format_character(const Value& value, const FormatSpec& spec) {
  const auto integer = as_integer(value);
  if (!integer || *integer < 0 || *integer > 0x10FFFF) {
    fail("%c arg not in range(0x110000)");
  }
  std::string text;
  text::append_utf8(text, static_cast<char32_t>(*integer));
  return pad(text, spec, spec.align == 0 ? '<' : spec.align);
}

[[noreturn]] void fail_code(const Value& value, char type) {
  fail(std::string("Unknown format code '") + type + "' for object of type '" +
       std::string(type_name(value)) + "'");
}

}  // namespace

size_t read_format_count(std::string_view text, size_t& at) {
  size_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min(kWidthMax + 1, value * 10 + static_cast<size_t>(text[at++] - '0'));
  }
  if (value > kWidthMax) {
    fail("a format width is larger than 10000");
  }
  return value;
}

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto peek = [&](size_t i) { return i < text.size() ? text[i] : '\0'; };
  size_t after_fill = 0;
  if (!text.empty()) {
    next_code_point(text, after_fill);
  }
  if (after_fill > 0 && is_one_of(peek(after_fill), "<>^=")) {
    spec.fill = text.substr(0, after_fill);
    spec.align = text[after_fill];
    at = after_fill + 1;
  } else if (is_one_of(peek(0), "<>^=")) {
    spec.align = text[0];
    at = 1;
  }
  if (is_one_of(peek(at), "+- ")) {
    spec.sign = text[at++];
  }
  if (peek(at) == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek(at) == '0') {
    spec.zero = true;
    ++at;
    if (spec.align != 0 && at > 1 && spec.fill == " ") {
      spec.fill = "0";
    }
  }
  spec.width = read_format_count(text, at);
  if (is_one_of(peek(at), ",_")) {
    spec.grouping = text[at++];
  }
  if (peek(at) == '.') {
    const size_t digits = ++at;
    spec.precision = static_cast<int>(read_format_count(text, at));
    if (at == digits) {
      fail("Format specifier missing precision");
    }
  }
  if (at < text.size()) {
    spec.type = text[at++];
  }
  if (at != text.size()) {
    fail("Invalid format specifier");
  }
  return spec;
}

std::string format_text(std::string_view text, const FormatSpec& spec) {
  if (spec.precision >= 0) {
    text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  }
  return pad(std::string(text), spec, spec.align == 0 ? '<' : spec.align);
}

std::string format_number(const Value& value, const FormatSpec& spec) {
  const bool is_real = value.kind() == Kind::kDouble || is_one_of(spec.type, "eEfFgG%");
  if (is_real) {
    const auto number = as_number(value);
    if (!number) {
      fail_operand("must be real number, not", value);
    }
    return assemble_number(std::signbit(*number) && !std::isnan(*number),
                           format_real(std::fabs(*number), spec), spec);
  }
  const bool big = value.kind() == Kind::kBigInt;
  if (!big && !as_integer(value)) {
    fail_operand("a number is required, not", value);
  }
  const bool negative = big ? value.text().starts_with('-') : value.as_int() < 0;
  return assemble_number(negative, format_integer(value, spec), spec);
}

std::string format_value(const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) {
    std::string text;
    write_str(value, text);
    return text;
  }
  FormatSpec spec = parse_format_spec(spec_text);
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') {
      fail_code(value, spec.type);
    }
    if (spec.sign != '-' || spec.alternate || spec.align == '=' || spec.grouping != 0) {
      fail("this format specifier is not allowed for a string");
    }
    spec.fill = spec.zero && spec.fill == " " ? "0" : spec.fill;
    return format_text(value.text(), spec);
  }
  if (value.kind() == Kind::kDouble) {
    if (spec.type != 0 && !is_one_of(spec.type, "eEfFgGn%")) {
      fail_code(value, spec.type);
    }
    spec.type = spec.type == 'n' ? 'g' : spec.type;
    return format_number(value, spec);
  }
  if (!value.is_int() && !value.is_bool() && value.kind() != Kind::kBigInt) {
    fail("unsupported format string passed to " + std::string(type_name(value)) + ".__format__");
  }
  if (spec.type != 0 && !is_one_of(spec.type, "bcdeEfFgGnoxX%")) {
    fail_code(value, spec.type);
  }
  if (spec.precision >= 0 && !is_one_of(spec.type, "eEfFgG%")) {
    fail("Precision not allowed in integer format specifier");
  }
  if (spec.grouping == ',' && is_one_of(spec.type, "bcnoxX")) {
    fail("Cannot specify ',' with this format code");
  }
  return spec.type == 'c' ? format_character(value, spec) : format_number(value, spec);
}

}  // namespace stator::chat_template::detail
