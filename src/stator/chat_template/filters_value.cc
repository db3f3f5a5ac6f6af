// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "stator/chat_template/detail/big_integer.h"
#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/strings.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

using Args = const CallArguments&;

Value filter_tojson(Interpreter& interpreter, Value input, Args arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments.get_bool(0, "ensure_ascii", false);
  std::string indent;
  const Value* width = arguments.get(1, "indent");
  if (width != nullptr && !width->is_none()) {
    style.indented = true;
    style.item_separator = ",";
    if (width->is_string()) {
      indent = width->text();
    } else {
      const auto spaces = as_integer(*width);
      if (!spaces || *spaces > 1000) {
        fail("tojson needs an indent of at most 1000");
      }
      indent.assign(static_cast<size_t>(std::max<int64_t>(*spaces, 0)), ' ');
    }
    style.indent = indent;
  }
  const Value* separators = arguments.get(2, "separators");
  if (separators != nullptr && !separators->is_none()) {
    const ListData& pair = *interpreter.iterate(*separators);
    if (pair.size != 2 || !pair.items[0].is_string() || !pair.items[1].is_string()) {
      fail("tojson needs two separators");
    }
    style.item_separator = pair.items[0].text();
    style.key_separator = pair.items[1].text();
  }
  style.sort_keys = arguments.get_bool(3, "sort_keys", false);
  std::string text;
  write_json(input, style, text);
  interpreter.charge(text.size() / 64);
  return interpreter.make_string(text);
}

Value filter_fromjson(Interpreter& interpreter, Value input, Args) {
  if (!input.is_string()) {
    fail_operand("the JSON object must be str, not", input);
  }
  return parse_json_text(interpreter, input.text());
}

Value filter_default(Interpreter&, Value input, Args arguments) {
  const Value* otherwise = arguments.get(0, "default_value");
  if (otherwise == nullptr) {
    otherwise = arguments.get(0, "default");
  }
  const bool falsy_too = arguments.get_bool(1, "boolean", false);
  if (input.is_undefined() || (falsy_too && !input.truthy())) {
    return otherwise == nullptr ? Value::string("") : *otherwise;
  }
  return input;
}

Value filter_string(Interpreter& interpreter, Value input, Args) {
  return input.is_string() ? input : Value::string(interpreter.text_of(input));
}

/// The text of a number in ASCII, without '_' between its digits, which may be letters.
std::string plain_number(std::string_view text, bool letters) {
  const std::string ascii = with_ascii_digits(strip(text, Side::kBoth));
  const auto is_part = [&](size_t at) {
    return at < ascii.size() && (letters ? ascii[at] != '_' : ascii[at] >= '0' && ascii[at] <= '9');
  };
  std::string digits;
  for (size_t i = 0; i < ascii.size(); ++i) {
    const bool separates = ascii[i] == '_' && is_part(i - 1) && is_part(i + 1);
    if (!separates) {
      digits += ascii[i];
    }
  }
  return digits;
}

/// int(text, base): missing when the text is no integer.
Value parse_integer(Interpreter& interpreter, std::string_view text, unsigned base) {
  std::string digits = plain_number(text, true);
  const size_t sign = digits.starts_with('+') || digits.starts_with('-') ? 1 : 0;
  static constexpr std::pair<unsigned, char> kPrefixes[] = {{16, 'x'}, {8, 'o'}, {2, 'b'}};
  for (const auto& [prefix_base, letter] : kPrefixes) {
    if (base == prefix_base && digits.size() > sign + 2 && digits[sign] == '0' &&
        (digits[sign + 1] | 0x20) == letter) {
      digits.erase(sign, 2);
    }
  }
  const uint64_t long_part = std::min(digits.size(), 4 * BigInteger::kDigitsMax) / 32;
  interpreter.charge(long_part * long_part / 8);
  const auto value = BigInteger::parse(digits, base);
  return value ? value->to_value(interpreter.arena()) : Value::missing();
}

std::optional<double> parse_real(std::string_view text) {
  const std::string digits = plain_number(text, false);
  text = digits;
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return error == std::errc{} ? value : std::numeric_limits<double>::infinity();
}

/// int(value) of a float; `otherwise` for infinity and NaN.
Value truncate_real(Arena& arena, double value, const Value& otherwise) {
  if (!std::isfinite(value)) {
    return otherwise;
  }
  char digits[400];
  const auto written = std::to_chars(digits, digits + sizeof(digits), std::trunc(value),
                                     std::chars_format::fixed, 0);
  return BigInteger::parse({digits, written.ptr})->to_value(arena);
}

Value filter_int(Interpreter& interpreter, Value input, Args arguments) {
  Arena& arena = interpreter.arena();
  const Value* given = arguments.get(0, "default");
  const Value otherwise = given == nullptr ? Value::integer(0) : *given;
  const int64_t base = arguments.get_int(1, "base", 10);
  if (base == 0) {
    fail("int() base must be between 2 and 36");
  }
  switch (input.kind()) {
    case Kind::kUndefined:
      fail_undefined(input);
    case Kind::kBool:
    case Kind::kInt:
      return Value::integer(input.as_int());
    case Kind::kBigInt:
      return input;
    case Kind::kDouble:
      return truncate_real(arena, input.as_double(), otherwise);
    case Kind::kString: {
      const bool has_digits = base >= 2 && base <= 36;
      const Value parsed =
          has_digits ? parse_integer(interpreter, input.text(), static_cast<unsigned>(base))
                     : Value::missing();
      if (!parsed.is_missing()) {
        return parsed;
      }
      const auto real = parse_real(input.text());
      return real ? truncate_real(arena, *real, otherwise) : otherwise;
    }
    default:
      return otherwise;
  }
}

Value filter_float(Interpreter&, Value input, Args arguments) {
  const Value* given = arguments.get(0, "default");
  const Value otherwise = given == nullptr ? Value::number(0.0) : *given;
  if (input.is_undefined()) {
    fail_undefined(input);
  }
  if (const auto number = as_number(input)) {
    return Value::number(*number);
  }
  if (input.is_string() || input.kind() == Kind::kBigInt) {
    const auto real = parse_real(input.text());
    return real ? Value::number(*real) : otherwise;
  }
  return otherwise;
}

Value filter_abs(Interpreter& interpreter, Value input, Args) {
  if (const auto integer = BigInteger::from(input)) {
    return (integer->is_negative() ? -*integer : *integer).to_value(interpreter.arena());
  }
  if (input.kind() == Kind::kDouble) {
    return Value::number(std::fabs(input.as_double()));
  }
  fail_operand("bad operand type for abs():", input);
}

/// round(value, digits) of Python: correctly rounded on the exact binary value.
double round_common(double value, int64_t digits) {
  if (!std::isfinite(value)) {
    return value;
  }
  if (digits <= 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[400];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                     std::chars_format::fixed, static_cast<int>(digits));
  double rounded = value;
  if (written.ec == std::errc{}) {
    std::from_chars(buffer, written.ptr, rounded);
  }
  return rounded;
}

/// round(integer, digits): to tens, hundreds …, halves to even.
Value round_integer(Arena& arena, const BigInteger& value, int64_t digits) {
  if (digits >= 0) {
    return value.to_value(arena);
  }
  const BigInteger unit = BigInteger(10).power(static_cast<uint64_t>(-digits));
  const auto [whole, rest] = value.divide_floor(unit);
  const auto half = rest + rest <=> unit;
  const bool up = half > 0 || (half == 0 && whole.is_odd());
  return ((up ? whole + BigInteger(1) : whole) * unit).to_value(arena);
}

/// As for the division that rounding to tens and hundreds is.
void charge_rounding(Interpreter& interpreter, const Value& integer, int64_t digits) {
  const uint64_t places = digits < 0 ? static_cast<uint64_t>(-digits) : 0;
  interpreter.charge(steps_of(integer) * (1 + places / 4));
}

Value filter_round(Interpreter& interpreter, Value input, Args arguments) {
  const int64_t digits = arguments.get_int(0, "precision", 0);
  const std::string_view method = arguments.get_text(1, "method", "common");
  if (digits < -300 || digits > 50) {
    fail("round needs a precision between -300 and 50");
  }
  const auto number = as_number(input);
  if (!number) {
    fail_operand("round needs a number, not", input);
  }
  if (method == "common") {
    if (const auto integer = BigInteger::from(input)) {  // stays an integer in Python
      charge_rounding(interpreter, input, digits);
      return round_integer(interpreter.arena(), *integer, digits);
    }
    return Value::number(round_common(*number, digits));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") {
    return Value::number(std::ceil(*number * scale) / scale + 0.0);  // Python has no -0 here
  }
  if (method == "floor") {
    return Value::number(std::floor(*number * scale) / scale);
  }
  fail("method must be common, ceil or floor");
}

Value filter_pprint(Interpreter& interpreter, Value input, Args) {
  // Sorts keys as Python's pprint does, but never breaks lines.
  std::string text;
  write_repr(input, text, kTextBytesMax, KeyOrder::kSorted);
  interpreter.charge(text.size() / 64);
  return interpreter.make_string(text);
}

Value filter_attr(Interpreter& interpreter, Value input, Args arguments) {
  const std::string_view name = arguments.get_text(0, "name", "");
  // Unlike `.`, never looks into a mapping.
  const MethodSet methods = find_methods(name);
  if (input.is_dict() && methods.on_dict == nullptr) {
    return Value::undefined(name, Kind::kDict);
  }
  return interpreter.get_attribute(input, name, methods);
}

constexpr Filter kFilters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr, "name"},
    {"d", filter_default, "default_value= boolean="},
    {"default", filter_default, "default_value= boolean="},
    {"float", filter_float, "default="},
    {"from_json", filter_fromjson},
    {"fromjson", filter_fromjson},
    {"int", filter_int, "default= base="},
    {"pprint", filter_pprint},
    {"round", filter_round, "precision= method="},
    {"string", filter_string},
    {"tojson", filter_tojson, "ensure_ascii= indent= separators= sort_keys="},
};

}  // namespace

std::span<const Filter> value_filters() {
  return kFilters;
}

}  // namespace stator::chat_template::detail
