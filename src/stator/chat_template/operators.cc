// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/operators.h"

#include <algorithm>
#include <cmath>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

constexpr int kDepthMax = 100;

[[noreturn]] void fail_overflow() {
  fail("integers beyond 64 bits cannot be computed with");
}

[[noreturn]] void fail_operands(std::string_view op, const Value& left, const Value& right) {
  if (left.is_undefined()) {
    fail_undefined(left);
  }
  if (right.is_undefined()) {
    fail_undefined(right);
  }
  if (left.kind() == Kind::kBigInt || right.kind() == Kind::kBigInt) {
    fail_overflow();
  }
  fail("unsupported operand type(s) for " + std::string(op) + ": '" + std::string(type_name(left)) +
       "' and '" + std::string(type_name(right)) + "'");
}

/// Repeats a text or a list; memory is checked before it is taken.
Value repeat(Interpreter& interpreter, const Value& value, int64_t times) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  const uint64_t unit = value.is_string() ? value.text().size() : value.as_list().size;
  uint64_t total = 0;
  if (__builtin_mul_overflow(count, unit, &total) || total > kTextBytesMax) {
    fail("a repeated value is longer than " + std::to_string(kTextBytesMax), Code::kTooLarge);
  }
  interpreter.charge(total / 16 + (unit == 0 ? 0 : count / 16));
  Arena& arena = interpreter.arena();
  if (value.is_string()) {
    auto* target = arena.array<char>(total);
    for (uint64_t at = 0; at < total; at += unit) {
      std::ranges::copy(value.text(), target + at);
    }
    return Value::string({target, total});
  }
  auto* list = ListData::make(arena, total);
  for (uint64_t i = 0; i < total; ++i) {
    list->push(arena, value.as_list().items[i % unit]);
  }
  return Value::sequence(value.kind(), list);
}

bool repeatable(const Value& value) {
  return value.is_string() || value.kind() == Kind::kList || value.kind() == Kind::kTuple;
}

int64_t floor_divide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) {
      fail("0.0 cannot be raised to a negative power");
    }
    return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      fail_overflow();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      fail_overflow();
    }
  }
  return Value::integer(result);
}

Value compute_integers(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOperator::kPower:
      return integer_power(left, right);
    case BinaryOperator::kDivide:
      if (right == 0) {
        fail("division by zero");
      }
      return Value::number(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo:
      if (right == 0) {
        fail("integer division or modulo by zero");
      }
      if (right == -1) {  // INT64_MIN / -1 traps
        if (op == BinaryOperator::kModulo) {
          return Value::integer(0);
        }
        overflow = __builtin_sub_overflow(int64_t{0}, left, &result);
        break;
      }
      result = floor_divide(left, right);
      if (op == BinaryOperator::kModulo) {
        result = left - result * right;
      }
  }
  if (overflow) {
    fail_overflow();
  }
  return Value::integer(result);
}

Value compute_reals(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kSubtract:
      return Value::number(left - right);
    case BinaryOperator::kMultiply:
      return Value::number(left * right);
    case BinaryOperator::kPower:
      return Value::number(std::pow(left, right));
    default:
      break;
  }
  if (right == 0.0) {
    fail("float division by zero");
  }
  if (op == BinaryOperator::kDivide) {
    return Value::number(left / right);
  }
  double rest = std::fmod(left, right);
  if (rest != 0.0 && (rest < 0.0) != (right < 0.0)) {
    rest += right;
  }
  return Value::number(op == BinaryOperator::kModulo ? rest
                                                     : std::floor((left - rest) / right + 0.5));
}

bool less_at(const Value& left, const Value& right, int depth) {
  if (depth > kDepthMax) {
    fail("comparing values that are nested too deeply");
  }
  const auto left_integer = as_integer(left);
  const auto right_integer = as_integer(right);
  if (left_integer && right_integer) {
    return *left_integer < *right_integer;
  }
  const auto left_number = as_number(left);
  const auto right_number = as_number(right);
  if (left_number && right_number) {
    return *left_number < *right_number;
  }
  if (left.is_string() && right.is_string()) {
    return left.text() < right.text();
  }
  const bool both_lists =
      left.kind() == right.kind() && (left.kind() == Kind::kList || left.kind() == Kind::kTuple);
  if (!both_lists) {
    fail_operands("<", left, right);
  }
  const auto left_items = left.as_list().values();
  const auto right_items = right.as_list().values();
  const size_t common = std::min(left_items.size(), right_items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equals(left_items[i], right_items[i])) {
      return less_at(left_items[i], right_items[i], depth + 1);
    }
  }
  return left_items.size() < right_items.size();
}

}  // namespace

void fail_undefined(const Value& undefined) {
  const std::string name(undefined.text());
  if (undefined.undefined_owner() == Kind::kMissing) {
    fail("'" + name + "' is undefined");
  }
  if (undefined.undefined_owner() == Kind::kNone) {
    fail("'None' has no attribute '" + name + "'");
  }
  fail("'" + std::string(type_name(undefined.undefined_owner())) + " object' has no attribute '" +
       name + "'");
}

void fail_operand(std::string_view what, const Value& value) {
  if (value.is_undefined()) {
    fail_undefined(value);
  }
  fail(std::string(what) + " '" + std::string(type_name(value)) + "'");
}

std::optional<double> as_number(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return static_cast<double>(value.as_int());
    case Kind::kDouble:
      return value.as_double();
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> as_integer(const Value& value) {
  if (value.is_int() || value.is_bool()) {
    return value.as_int();
  }
  return std::nullopt;
}

Value add(Interpreter& interpreter, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    const bool markup = left.is_markup() || right.is_markup();
    std::string text(markup && !left.is_markup() ? escape_html(left.text()) : left.text());
    text += markup && !right.is_markup() ? escape_html(right.text()) : right.text();
    if (text.size() > kTextBytesMax) {
      fail("a text is longer than " + std::to_string(kTextBytesMax) + " bytes", Code::kTooLarge);
    }
    interpreter.charge(text.size() / 64);
    const Value joined = interpreter.make_string(text);
    return markup ? Value::markup(joined.text()) : joined;
  }
  const auto left_integer = as_integer(left);
  const auto right_integer = as_integer(right);
  if (left_integer && right_integer) {
    int64_t sum = 0;
    if (__builtin_add_overflow(*left_integer, *right_integer, &sum)) {
      fail_overflow();
    }
    return Value::integer(sum);
  }
  const auto left_number = as_number(left);
  const auto right_number = as_number(right);
  if (left_number && right_number) {
    return Value::number(*left_number + *right_number);
  }
  const bool both_lists =
      left.kind() == right.kind() && (left.kind() == Kind::kList || left.kind() == Kind::kTuple);
  if (!both_lists) {
    fail_operands("+", left, right);
  }
  Arena& arena = interpreter.arena();
  auto* joined = ListData::make(arena, size_t{left.as_list().size} + right.as_list().size);
  for (const Value& part : {left, right}) {
    for (const Value& item : part.as_list().values()) {
      joined->push(arena, item);
    }
  }
  interpreter.charge(joined->size / 16);
  return Value::sequence(left.kind(), joined);
}

Value compute(Interpreter& interpreter, BinaryOperator op, const Value& left, const Value& right) {
  static constexpr std::string_view kNames[] = {"-", "*", "/", "//", "%", "**"};
  const auto left_integer = as_integer(left);
  const auto right_integer = as_integer(right);
  if (left_integer && right_integer) {
    return compute_integers(op, *left_integer, *right_integer);
  }
  const auto left_number = as_number(left);
  const auto right_number = as_number(right);
  if (left_number && right_number) {
    return compute_reals(op, *left_number, *right_number);
  }
  if (op == BinaryOperator::kMultiply && repeatable(left) && right_integer) {
    return repeat(interpreter, left, *right_integer);
  }
  if (op == BinaryOperator::kMultiply && left_integer && repeatable(right)) {
    return repeat(interpreter, right, *left_integer);
  }
  if (op == BinaryOperator::kModulo && left.is_string()) {
    return interpreter.make_string(format_percent(interpreter, left.text(), right));
  }
  fail_operands(kNames[static_cast<size_t>(op)], left, right);
}

Value negate(const Value& value) {
  if (const auto integer = as_integer(value)) {
    return compute_integers(BinaryOperator::kSubtract, 0, *integer);
  }
  if (value.kind() == Kind::kDouble) {
    return Value::number(-value.as_double());
  }
  fail_operand("bad operand type for unary -:", value);
}

Value plus(const Value& value) {
  if (const auto integer = as_integer(value)) {
    return Value::integer(*integer);
  }
  if (value.kind() == Kind::kDouble) {
    return value;
  }
  fail_operand("bad operand type for unary +:", value);
}

bool less(const Value& left, const Value& right) {
  return less_at(left, right, 0);
}

bool contains(Interpreter& interpreter, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        fail_operand("'in <string>' requires string as left operand, not", item);
      }
      interpreter.charge(container.text().size() / 64);
      return container.text().find(item.text()) != std::string_view::npos;
    case Kind::kDict:
      return container.as_dict().find(item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kGenerator: {
      const ListData& list = *interpreter.iterate(container);
      interpreter.charge(list.size / 4);
      return std::ranges::any_of(list.values(),
                                 [&](const Value& value) { return equals(value, item); });
    }
    default:
      fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t length) {
  const auto part = [](const Value& value, int64_t otherwise) {
    if (value.is_none()) {
      return otherwise;
    }
    const auto integer = as_integer(value);
    if (!integer) {
      fail_operand("slice indices must be integers or None, not", value);
    }
    return *integer;
  };
  const int64_t by = part(step, 1);
  if (by == 0) {
    fail("slice step cannot be zero");
  }
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? length : length - 1;
  const auto clip = [&](int64_t index) {
    return std::clamp(index < 0 ? index + length : index, low, high);
  };
  const int64_t from = start.is_none() ? (by > 0 ? low : high) : clip(part(start, 0));
  const int64_t to = stop.is_none() ? (by > 0 ? high : low) : clip(part(stop, 0));
  const int64_t distance = by > 0 ? to - from : from - to;
  const uint64_t stride = by > 0 ? static_cast<uint64_t>(by) : 0 - static_cast<uint64_t>(by);
  const int64_t count =
      distance <= 0 ? 0 : static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride + 1);
  return {from, by, count};
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace stator::chat_template::detail
