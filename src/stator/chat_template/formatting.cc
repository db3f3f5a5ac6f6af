// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "stator/chat_template/detail/big_integer.h"
#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/format_spec.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/strings.h"
#include "stator/chat_template/detail/text.h"
#include "stator/text/utf8.h"

namespace stator::chat_template::detail {
namespace {

bool is_range(const Value& value) {
  return value.is_object() && value.as_object().type == Object::Type::kRange;
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
                            : used_ == 0 && !values_.is_dict() && !values_.is_list() &&
                                  !is_range(values_) && !values_.is_undefined();
    if (unused) {
      fail("not all arguments converted during string formatting");
    }
  }

 private:
  const Value& values_;
  uint32_t used_ = 0;
};

/// int(value) for %d, exact for whole floats of any size; others pass through.
Value truncated(const Value& value, Arena& arena) {
  if (value.kind() != Kind::kDouble) {
    return value;
  }
  if (!std::isfinite(value.as_double())) {
    fail("cannot convert float infinity or NaN to integer");
  }
  FormatSpec whole;
  whole.type = 'f';
  whole.precision = 0;
  return BigInteger::parse(format_number(Value::number(std::trunc(value.as_double())), whole))
      ->to_value(arena);
}

std::string format_character(const Value& value, const FormatSpec& spec) {
  std::string text;
  const auto integer = as_integer(value);
  if (integer && *integer >= 0 && *integer < 0x110000) {
    text::append_utf8(text, static_cast<char32_t>(*integer));
  } else if (value.is_string() && count_code_points(value.text()) == 1) {
    text = value.text();
  } else {
    fail("%c requires int or char");
  }
  return format_text(text, spec);
}

/// repr with \\x, \\u and \\U for everything beyond ASCII.
std::string ascii_repr(const Value& value) {
  std::string text;
  write_repr(value, text);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    if (point < 0x80) {
      out += static_cast<char>(point);
      continue;
    }
    const int digits = point < 0x100 ? 2 : point < 0x10000 ? 4 : 8;
    out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
    for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
      out += "0123456789abcdef"[(point >> static_cast<unsigned>(shift)) & 15U];
    }
  }
  return out;
}

std::string format_percent_integer(const Value& value, const FormatSpec& spec, Arena& arena) {
  FormatSpec integer = spec;
  integer.precision = -1;
  const Value whole = spec.type == 'd' ? truncated(value, arena) : value;
  if (whole.kind() == Kind::kDouble) {
    fail_operand(std::string("%") + spec.type + " format: an integer is required, not", value);
  }
  if (spec.precision < 0) {
    return format_number(whole, integer);
  }
  // %.5d: at least so many digits.
  integer.width = 0;
  std::string text = format_number(whole, integer);
  const size_t sign = text.find_first_not_of("+- ");
  const size_t digits = text.size() - sign;
  const auto wanted = static_cast<size_t>(spec.precision);
  text.insert(sign, wanted > digits ? wanted - digits : 0, '0');
  FormatSpec padding = spec;
  padding.precision = -1;
  padding.align = spec.align == 0 ? '>' : spec.align;
  return format_text(text, padding);
}

std::string format_one_percent(const Value& value, FormatSpec spec, Arena& arena) {
  std::string text;
  switch (spec.type) {
    case 's':
      write_str(value, text);
      break;
    case 'r':
      write_repr(value, text);
      break;
    case 'a':
      text = ascii_repr(value);
      break;
    case 'i':
    case 'u':
      spec.type = 'd';
      [[fallthrough]];
    case 'd':
    case 'x':
    case 'X':
    case 'o':
      return format_percent_integer(value, spec, arena);
    case 'c':
      spec.align = spec.align == 0 ? '>' : spec.align;
      return format_character(value, spec);
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
  spec.align = spec.align == 0 ? '>' : spec.align;
  return format_text(text, spec);
}

bool is_length_modifier(char c) {
  return c == 'h' || c == 'l' || c == 'L';
}

/// Flags, width and precision of a % conversion up to its type; `*` takes the next argument.
FormatSpec parse_percent(std::string_view format, size_t& at, PercentArguments& arguments) {
  FormatSpec spec;
  bool left = false;
  for (; at < format.size(); ++at) {
    const char flag = format[at];
    if (flag == '-') {
      left = true;
    } else if (flag == '+' || (flag == ' ' && spec.sign != '+')) {
      spec.sign = flag;
    } else if (flag == '0') {
      spec.zero = true;
    } else if (flag == '#') {
      spec.alternate = true;
    } else if (flag != ' ') {
      break;
    }
  }
  const auto count = [&]() -> int64_t {
    if (at < format.size() && format[at] == '*') {
      ++at;
      const auto given = as_integer(arguments.next());
      if (!given || *given > 10'000 || *given < -10'000) {
        fail("* wants an int of at most 10000");
      }
      return *given;
    }
    return static_cast<int64_t>(read_format_count(format, at));
  };
  const int64_t width = count();
  left = left || width < 0;
  spec.width = static_cast<size_t>(std::abs(width));
  spec.align = left ? '<' : 0;
  if (at < format.size() && format[at] == '.') {
    ++at;
    spec.precision = static_cast<int>(std::max<int64_t>(count(), 0));
  }
  if (at < format.size() && is_length_modifier(format[at])) {
    ++at;
  }
  if (at >= format.size()) {
    fail("incomplete format");
  }
  spec.type = format[at++];
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const CallArguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  /// One replacement field, without its braces; its spec may hold fields of its own.
  std::string format_field(std::string_view field) {
    const size_t colon = find_colon(field);
    std::string_view name = field.substr(0, colon);
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    const Value value = look_up(name);
    const std::string spec =
        colon == std::string_view::npos ? "" : expand_spec(field.substr(colon + 1));
    switch (conversion) {
      case 0:
        return format_value(value, spec);
      case 's':
        return format_value(Value::string(interpreter_.text_of(value)), spec);
      case 'r': {
        std::string text;
        write_repr(value, text);
        return format_value(Value::string(text), spec);
      }
      case 'a':
        return format_value(Value::string(ascii_repr(value)), spec);
      default:
        fail("Unknown conversion specifier " + std::string(1, conversion));
    }
  }

 private:
  /// The ':' before the spec: not one inside brackets.
  static size_t find_colon(std::string_view field) {
    bool in_brackets = false;
    for (size_t at = 0; at < field.size(); ++at) {
      if (field[at] == '[' || field[at] == ']') {
        in_brackets = field[at] == '[';
      } else if (field[at] == ':' && !in_brackets) {
        return at;
      }
    }
    return std::string_view::npos;
  }
  std::string expand_spec(std::string_view spec) {
    std::string out;
    for (size_t at = 0; at < spec.size();) {
      if (spec[at] != '{') {
        out += spec[at++];
        continue;
      }
      const size_t close = spec.find('}', at);
      if (close == std::string_view::npos) {
        fail("expected '}' before end of string");
      }
      out += interpreter_.text_of(look_up(spec.substr(at + 1, close - at - 1)));
      at = close + 1;
    }
    return out;
  }
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
      const Numbering numbering = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kUnknown && numbering_ != numbering) {
        fail("cannot switch between manual and automatic field numbering");
      }
      numbering_ = numbering;
      if (index.as_int() >= static_cast<int64_t>(arguments_.positional.size())) {
        fail("Replacement index " + std::to_string(index.as_int()) + " out of range");
      }
      return arguments_.positional[static_cast<size_t>(index.as_int())];
    }
    return arguments_.require(SIZE_MAX, name, "format");
  }

  Interpreter& interpreter_;
  const CallArguments& arguments_;
  enum class Numbering : uint8_t { kUnknown, kAutomatic, kManual };
  int64_t next_ = 0;
  Numbering numbering_ = Numbering::kUnknown;
};

/// The '}' that closes the field opened at `open`; npos when there is none.
size_t find_field_end(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    depth += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
    if (depth == 0) {
      return at;
    }
  }
  return std::string_view::npos;
}

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
    const FormatSpec spec = parse_percent(format, at, arguments);
    out += format_one_percent(named ? *named : arguments.next(), spec, interpreter.arena());
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
    const size_t close = find_field_end(text, at);
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
