// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/strings.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

constexpr size_t kWidthMax = 10'000;

/// What % and {} formatting share: how one value is written and padded.
struct Spec {
  std::string_view fill = " ";
  char align = 0;  // '<', '>', '^' or by type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  bool grouped = false;
  size_t width = 0;
  int precision = -1;
  char type = 0;
};

size_t read_count(std::string_view text, size_t& at) {
  size_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min(kWidthMax + 1, value * 10 + static_cast<size_t>(text[at++] - '0'));
  }
  if (value > kWidthMax) {
    fail("a format width is larger than 10000");
  }
  return value;
}

std::string format_real(double value, const Spec& spec) {
  const char type = spec.type == 0 ? 'r' : static_cast<char>(spec.type | 0x20);
  if (type == 'r' && spec.precision < 0) {
    std::string out;
    write_double(value, out);
    return out;
  }
  const int precision = std::min(spec.precision < 0 ? 6 : spec.precision, 400);
  const auto format = type == 'e'                  ? std::chars_format::scientific
                      : type == 'f' || type == '%' ? std::chars_format::fixed
                                                   : std::chars_format::general;
  std::string buffer(800, '\0');
  const double scaled = type == '%' || spec.type == '%' ? value * 100 : value;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), scaled, format, precision).ptr;
  buffer.resize(static_cast<size_t>(end - buffer.data()));
  return spec.type == '%' ? buffer + "%" : buffer;
}

void group_thousands(std::string& digits) {
  const size_t start = digits.starts_with('-') ? 1 : 0;
  const size_t end = std::min(digits.find('.'), digits.size());
  for (size_t at = end; at > start + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
}

std::string format_integer(int64_t value, const Spec& spec) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, base).ptr;
  std::string digits(buffer, end);
  if (spec.type == 'X') {
    digits = to_upper(digits);
  }
  if (spec.alternate && base != 10) {
    digits.insert(digits.starts_with('-') ? 1 : 0, base == 16 ? "0x" : base == 8 ? "0o" : "0b");
  }
  return digits;
}

std::string pad(std::string text, const Spec& spec, bool is_number) {
  if (is_number && spec.sign != '-' && !text.starts_with('-')) {
    text.insert(0, 1, spec.sign);
  }
  const size_t length = count_code_points(text);
  if (length >= spec.width) {
    return text;
  }
  const size_t space = spec.width - length;
  if (spec.zero && is_number && spec.align == 0) {
    const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    return text.insert(sign, space, '0');
  }
  const char align = spec.align != 0 ? spec.align : is_number ? '>' : '<';
  const size_t left = align == '<' ? 0 : align == '>' ? space : space / 2;
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

std::string cut(std::string_view text, int precision) {
  return std::string(
      precision < 0 ? text : text.substr(0, byte_offset(text, static_cast<size_t>(precision))));
}

std::string format_number(const Value& value, Spec spec) {
  const bool real_type =
      spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  std::string digits;
  const auto integer = as_integer(value);
  if (integer && !real_type) {
    digits = format_integer(*integer, spec);
  } else if (value.kind() == Kind::kBigInt && !real_type) {
    digits = value.text();
  } else {
    const auto number = as_number(value);
    if (!number) {
      fail_operand("a number is required, not", value);
    }
    digits = format_real(*number, spec);
  }
  if (spec.grouped) {
    group_thousands(digits);
  }
  return pad(std::move(digits), spec, true);
}

/// The values of text % values, in the order asked for.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& values) : values_(values) {}
  Value next() {
    if (values_.kind() != Kind::kTuple) {
      if (used_++ > 0) {
        fail("not enough arguments for format string");
      }
      return values_;
    }
    if (used_ >= values_.as_list().size) {
      fail("not enough arguments for format string");
    }
    return values_.as_list().items[used_++];
  }
  Value named(std::string_view name) const {
    const Value* found = values_.find(name);
    if (found == nullptr) {
      fail("format needs a mapping with the key '" + std::string(name) + "'");
    }
    return *found;
  }
  void check_all_used() const {
    const bool unused = values_.kind() == Kind::kTuple
                            ? used_ < values_.as_list().size
                            : used_ == 0 && !values_.is_dict() && !values_.is_list();
    if (unused) {
      fail("not all arguments converted during string formatting");
    }
  }

 private:
  const Value& values_;
  uint32_t used_ = 0;
};

std::string format_one_percent(const Value& value, const Spec& spec) {
  std::string text;
  switch (spec.type) {
    case 's':
      write_str(value, text);
      return pad(cut(text, spec.precision), spec, false);
    case 'r':
    case 'a':
      write_repr(value, text);
      return pad(cut(text, spec.precision), spec, false);
    case 'd':
    case 'i':
    case 'u': {
      Spec decimal = spec;
      decimal.type = 'd';
      const bool is_real = value.kind() == Kind::kDouble && std::fabs(value.as_double()) < 9e18;
      return format_number(
          is_real ? Value::integer(static_cast<int64_t>(value.as_double())) : value, decimal);
    }
    case 'c':
      if (value.is_int() && value.as_int() >= 0 && value.as_int() < 0x110000) {
        append_code_point(text, static_cast<char32_t>(value.as_int()));
      } else {
        write_str(value, text);
      }
      return pad(text, spec, false);
    case 'x':
    case 'X':
    case 'o':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return format_number(value, spec);
    default:
      fail(std::string("unsupported format character '") + spec.type + "'");
  }
}

/// Flags, width and precision of a % conversion up to its type.
Spec parse_percent(std::string_view format, size_t& at) {
  Spec spec;
  spec.align = '>';
  for (; at < format.size(); ++at) {
    const char flag = format[at];
    if (flag == '-') {
      spec.align = '<';
    } else if (flag == '+' || flag == ' ') {
      spec.sign = flag;
    } else if (flag == '0') {
      spec.zero = true;
    } else if (flag == '#') {
      spec.alternate = true;
    } else {
      break;
    }
  }
  if (spec.zero && spec.align == '>') {
    spec.align = 0;
  }
  spec.width = read_count(format, at);
  if (at < format.size() && format[at] == '.') {
    spec.precision = static_cast<int>(read_count(format, ++at));
  }
  if (at >= format.size()) {
    fail("incomplete format");
  }
  spec.type = format[at++];
  return spec;
}

/// [[fill]align][sign][#][0][width][,][.precision][type]
Spec parse_brace_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && (text[i] == '<' || text[i] == '>' || text[i] == '^');
  };
  size_t after_fill = 0;
  if (!text.empty()) {
    next_code_point(text, after_fill);
  }
  if (after_fill > 0 && is_align(after_fill)) {
    spec.fill = text.substr(0, after_fill);
    spec.align = text[after_fill];
    at = after_fill + 1;
  } else if (is_align(0)) {
    spec.align = text[0];
    at = 1;
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) {
    spec.sign = text[at++];
  }
  if (at < text.size() && text[at] == '#') {
    spec.alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    spec.zero = true;
    ++at;
  }
  spec.width = read_count(text, at);
  if (at < text.size() && text[at] == ',') {
    spec.grouped = true;
    ++at;
  }
  if (at < text.size() && text[at] == '.') {
    spec.precision = static_cast<int>(read_count(text, ++at));
  }
  if (at < text.size()) {
    spec.type = text[at++];
  }
  if (at != text.size()) {
    fail("Invalid format specifier");
  }
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const CallArguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  /// One replacement field, without its braces.
  std::string format_field(std::string_view field) {
    const size_t colon = field.find(':');
    std::string_view name = field.substr(0, colon);
    const Spec spec =
        parse_brace_spec(colon == std::string_view::npos ? "" : field.substr(colon + 1));
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    const Value value = look_up(name);
    std::string text;
    if (conversion == 'r' || conversion == 'a') {
      write_repr(value, text);
      return pad(cut(text, spec.precision), spec, false);
    }
    const bool is_number = value.is_int() || value.kind() == Kind::kDouble ||
                           value.kind() == Kind::kBigInt || (value.is_bool() && spec.type != 0);
    if (is_number && conversion == 0 && spec.type != 's') {
      return format_number(value, spec);
    }
    write_str(value, text);
    return pad(cut(text, spec.precision), spec, false);
  }

 private:
  Value look_up(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    for (size_t at = end; at < name.size();) {
      const bool bracket = name[at] == '[';
      const size_t stop =
          bracket ? name.find(']', at) : std::min(name.find_first_of(".[", at + 1), name.size());
      if (stop == std::string_view::npos) {
        fail("expected ']' in a format string");
      }
      const std::string_view part = name.substr(at + 1, stop - at - 1);
      value = interpreter_.get_item(value, index_of(part));
      at = stop + (bracket ? 1 : 0);
    }
    return value;
  }
  static Value index_of(std::string_view part) {
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool numeric = error == std::errc{} && end == part.data() + part.size() && index >= 0;
    return numeric ? Value::integer(index) : Value::string(part);
  }
  Value first(std::string_view name) {
    const Value index = name.empty() ? Value::integer(next_++) : index_of(name);
    if (index.is_int()) {
      if (index.as_int() >= static_cast<int64_t>(arguments_.positional.size())) {
        fail("Replacement index " + std::to_string(index.as_int()) + " out of range");
      }
      return arguments_.positional[static_cast<size_t>(index.as_int())];
    }
    return arguments_.require(SIZE_MAX, name, "format");
  }

  Interpreter& interpreter_;
  const CallArguments& arguments_;
  int64_t next_ = 0;
};

}  // namespace

std::string format_percent(Interpreter& interpreter, std::string_view format, const Value& values) {
  PercentArguments arguments(values);
  std::string out;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    ++at;
    if (at < format.size() && format[at] == '%') {
      out += format[at++];
      continue;
    }
    std::optional<Value> named;
    if (at < format.size() && format[at] == '(') {
      const size_t close = format.find(')', at);
      if (close == std::string_view::npos) {
        fail("incomplete format key");
      }
      named = arguments.named(format.substr(at + 1, close - at - 1));
      at = close + 1;
    }
    const Spec spec = parse_percent(format, at);
    out += format_one_percent(named ? *named : arguments.next(), spec);
    interpreter.charge(1 + spec.width / 16);
    check_text_size(out);
  }
  arguments.check_all_used();
  return out;
}

std::string format_braces(Interpreter& interpreter, std::string_view text,
                          const CallArguments& arguments) {
  BraceFormatter formatter(interpreter, arguments);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    if (c == '}') {
      fail("Single '}' encountered in format string");
    }
    if (c != '{') {
      out += c;
      ++at;
      continue;
    }
    const size_t close = text.find('}', at);
    if (close == std::string_view::npos) {
      fail("Single '{' encountered in format string");
    }
    out += formatter.format_field(text.substr(at + 1, close - at - 1));
    interpreter.charge(1);
    check_text_size(out);
    at = close + 1;
  }
  return out;
}

Value parse_json_text(Interpreter& interpreter, std::string_view text) {
  auto value = Value::from_json(interpreter.arena().copy(text), interpreter.arena());
  interpreter.charge(text.size() / 8);
  if (!value) {
    fail(value.error().message(), value.error().code());
  }
  return *value;
}

}  // namespace stator::chat_template::detail
