// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/operators.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "stator/chat_template/detail/big_integer.h"
#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/text.h"
#include "stator/text/html.h"

namespace stator::chat_template::detail {
namespace {

constexpr int kDepthMax = 100;

[[noreturn]] void fail_operands(std::string_view op, const Value& left, const Value& right) {
  if (left.is_undefined()) {
    fail_undefined(left);
  }
  if (right.is_undefined()) {
    fail_undefined(right);
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

bool is_whole(const Value& value) {
  return value.is_int() || value.is_bool() || value.kind() == Kind::kBigInt;
}

/// left / right of integers, rounded once.
double divide_exactly(const Value& left, const Value& right) {
  const auto wide = [](const Value& value) -> long double {
    return value.kind() == Kind::kBigInt ? static_cast<long double>(*as_number(value))
                                         : static_cast<long double>(value.as_int());
  };
  return static_cast<double>(wide(left) / wide(right));
}

std::optional<int64_t> integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return std::nullopt;
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return std::nullopt;
    }
  }
  return result;
}

/// What two 64-bit integers make when that is one, too; `right` is not zero where it divides.
std::optional<int64_t> compute_integers(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kSubtract:
      return __builtin_sub_overflow(left, right, &result) ? std::nullopt : std::optional(result);
    case BinaryOperator::kMultiply:
      return __builtin_mul_overflow(left, right, &result) ? std::nullopt : std::optional(result);
    case BinaryOperator::kPower:
      return integer_power(left, right);
    case BinaryOperator::kFloorDivide:
      if (right == -1) {  // INT64_MIN / -1 traps
        return compute_integers(BinaryOperator::kSubtract, 0, left);
      }
      return floor_divide(left, right);
    case BinaryOperator::kModulo:
      return right == -1 ? 0 : left - floor_divide(left, right) * right;
    case BinaryOperator::kDivide:
      break;
  }
  return std::nullopt;
}

Value compute_big(Arena& arena, BinaryOperator op, const BigInteger& left,
                  const BigInteger& right) {
  switch (op) {
    case BinaryOperator::kSubtract:
      return (left - right).to_value(arena);
    case BinaryOperator::kMultiply:
      return (left * right).to_value(arena);
    case BinaryOperator::kFloorDivide:
      return left.divide_floor(right).first.to_value(arena);
    case BinaryOperator::kModulo:
      return left.divide_floor(right).second.to_value(arena);
    default:
      break;
  }
  // Power: a base beyond ±1 soon outgrows every bound.
  const Value exponent = right.to_value(arena);
  const bool small_base = left <= BigInteger(1) && left >= BigInteger(-1);
  if (!exponent.is_int() && !small_base) {
    fail("an integer has more than " + std::to_string(BigInteger::kDigitsMax) + " digits");
  }
  const auto times = exponent.is_int() ? static_cast<uint64_t>(exponent.as_int())
                                       : uint64_t{right.is_odd() ? 1U : 2U};
  return left.power(times).to_value(arena);
}

/// Operators on integers of any size. Division makes a float, as does a negative power.
Value compute_whole(Arena& arena, BinaryOperator op, const Value& left, const Value& right) {
  const bool right_is_zero = right.kind() != Kind::kBigInt && right.as_int() == 0;
  const bool divides = op == BinaryOperator::kDivide || op == BinaryOperator::kFloorDivide ||
                       op == BinaryOperator::kModulo;
  if (divides && right_is_zero) {
    fail(op == BinaryOperator::kDivide ? "division by zero" : "integer division or modulo by zero");
  }
  if (op == BinaryOperator::kDivide) {
    return Value::number(divide_exactly(left, right));
  }
  const auto exponent = as_integer(right);
  if (op == BinaryOperator::kPower && exponent && *exponent < 0) {
    if (!left.truthy()) {
      fail("0.0 cannot be raised to a negative power");
    }
    return Value::number(std::pow(*as_number(left), static_cast<double>(*exponent)));
  }
  const auto base = as_integer(left);
  if (base && exponent) {
    if (const auto result = compute_integers(op, *base, *exponent)) {
      return Value::integer(*result);
    }
  }
  return compute_big(arena, op, *BigInteger::from(left), *BigInteger::from(right));
}

/// Limbs of nine digits: 1 for every integer that is not long.
uint64_t limbs_of(const Value& value) {
  constexpr size_t kDigitsPerLimb = 9;
  return value.kind() == Kind::kBigInt ? value.text().size() / kDigitsPerLimb + 1 : 1;
}

/// Schoolbook arithmetic: products, and quotients by bisection, take the product of the sizes. One
/// step stands for about 50 ns.
void charge_whole(Interpreter& interpreter, BinaryOperator op, const Value& left,
                  const Value& right) {
  constexpr uint64_t kProductsPerStep = 16;
  constexpr uint64_t kStepsPerQuotient = 2;
  constexpr uint64_t kLimbsMax = BigInteger::kDigitsMax / 9 + 1;
  const uint64_t left_limbs = limbs_of(left);
  const uint64_t right_limbs = limbs_of(right);
  uint64_t steps = left_limbs + right_limbs - 1;
  if (op == BinaryOperator::kFloorDivide || op == BinaryOperator::kModulo) {
    const bool long_ones = left_limbs > 1 || right_limbs > 1;
    steps += long_ones ? kStepsPerQuotient * left_limbs * right_limbs : 0;
  } else if (op == BinaryOperator::kMultiply) {
    steps += left_limbs * right_limbs / kProductsPerStep;
  } else if (op == BinaryOperator::kPower) {
    const double digits = left.kind() == Kind::kBigInt
                              ? static_cast<double>(left.text().size())
                              : std::log10(std::fabs(static_cast<double>(left.as_int())) + 1);
    const double times = right.is_int() ? std::max(static_cast<double>(right.as_int()), 0.0) : 1e9;
    const auto limbs =
        static_cast<uint64_t>(std::min(digits * times / 9, static_cast<double>(kLimbsMax)));
    steps += limbs * limbs / kProductsPerStep * 2;
  }
  interpreter.charge(steps);
}

Value compute_reals(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kSubtract:
      return Value::number(left - right);
    case BinaryOperator::kMultiply:
      return Value::number(left * right);
    case BinaryOperator::kPower:
      if (left == 0.0 && right < 0.0) {
        fail("0.0 cannot be raised to a negative power");
      }
      if (left < 0.0 && right != std::floor(right)) {
        fail("a negative number to a fractional power is a complex number");
      }
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
  if (rest == 0.0) {
    rest = std::copysign(0.0, right);
  } else if ((rest < 0.0) != (right < 0.0)) {
    rest += right;
  }
  return Value::number(op == BinaryOperator::kModulo ? rest
                                                     : std::floor((left - rest) / right + 0.5));
}

/// What Markup % values formats: every text among them escaped.
Value escape_texts(Arena& arena, const Value& values) {
  const auto escape_one = [&](const Value& value) {
    return value.is_string() && !value.is_markup()
               ? Value::string(arena.copy(std::string_view(text::escape_html(value.text()))))
               : value;
  };
  if (values.kind() == Kind::kTuple) {
    auto* list = ListData::make(arena, values.as_list().size);
    for (const Value& value : values.as_list().values()) {
      list->push(arena, escape_one(value));
    }
    return Value::sequence(Kind::kTuple, list);
  }
  if (values.is_dict()) {
    auto* dict = DictData::make(arena, values.as_dict().size);
    for (const auto& entry : values.as_dict().items()) {
      dict->set(arena, entry.key, escape_one(entry.value));
    }
    return Value::dict(dict);
  }
  return escape_one(values);
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
  if (is_whole(left) && is_whole(right)) {
    return *BigInteger::from(left) < *BigInteger::from(right);
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
  const std::string owner = std::string(type_name(undefined.undefined_owner())) + " object";
  if (name.find_first_not_of("-0123456789") == name.npos) {  // as Jinja says it
    fail(owner + " has no element " + name);
  }
  fail("'" + owner + "' has no attribute '" + name + "'");
}

void fail_operand(std::string_view what, const Value& value) {
  if (value.is_undefined()) {
    fail_undefined(value);
  }
  fail(std::string(what) + " '" + std::string(type_name(value)) + "'");
}

uint64_t steps_of(const Value& value) {
  constexpr size_t kBytesPerStep = 64;
  constexpr size_t kPartsPerStep = 8;
  if (value.is_string()) {
    return value.text().size() / kBytesPerStep;
  }
  if (value.kind() == Kind::kBigInt) {
    return value.text().size() / kPartsPerStep;
  }
  return value.has_list() ? value.as_list().size / kPartsPerStep : 0;
}

std::optional<double> as_number(const Value& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return static_cast<double>(value.as_int());
    case Kind::kDouble:
      return value.as_double();
    case Kind::kBigInt: {
      double number = 0;
      const std::string_view digits = value.text();
      const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (parsed.ec != std::errc{}) {
        fail("int too large to convert to float");
      }
      return number;
    }
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
    std::string text(markup && !left.is_markup() ? text::escape_html(left.text()) : left.text());
    text += markup && !right.is_markup() ? text::escape_html(right.text()) : right.text();
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
    if (!__builtin_add_overflow(*left_integer, *right_integer, &sum)) {
      return Value::integer(sum);
    }
  }
  if (is_whole(left) && is_whole(right)) {
    interpreter.charge(steps_of(left) + steps_of(right));
    return (*BigInteger::from(left) + *BigInteger::from(right)).to_value(interpreter.arena());
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
  if (is_whole(left) && is_whole(right)) {
    charge_whole(interpreter, op, left, right);
    return compute_whole(interpreter.arena(), op, left, right);
  }
  const auto left_integer = as_integer(left);
  const auto right_integer = as_integer(right);
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
    if (!left.is_markup()) {
      return interpreter.make_string(format_percent(interpreter, left.text(), right));
    }
    const Value escaped = escape_texts(interpreter.arena(), right);
    return Value::markup(
        interpreter.make_string(format_percent(interpreter, left.text(), escaped)).text());
  }
  fail_operands(kNames[static_cast<size_t>(op)], left, right);
}

Value negate(Interpreter& interpreter, const Value& value) {
  if (is_whole(value)) {
    interpreter.charge(steps_of(value));
    return compute_whole(interpreter.arena(), BinaryOperator::kSubtract, Value::integer(0), value);
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
  if (value.kind() == Kind::kDouble || value.kind() == Kind::kBigInt) {
    return value;
  }
  fail_operand("bad operand type for unary +:", value);
}

bool less(const Value& left, const Value& right) {
  return less_at(left, right, 0);
}

bool less_equal(const Value& left, const Value& right) {
  return less(left, right) || equals(left, right);
}

bool contains(Interpreter& interpreter, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        fail_operand("'in <string>' requires string as left operand, not", item);
      }
      interpreter.charge(container.text().size() / 64);
      return find_text(container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict:
      if (!hashable(item)) {
        fail_operand("unhashable type:", item);
      }
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
    case Kind::kObject:
      if (container.as_object().type == Object::Type::kRange) {
        return std::ranges::any_of(interpreter.iterate(container)->values(),
                                   [&](const Value& value) { return equals(value, item); });
      }
      [[fallthrough]];
    default:
      fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t length) {
  const auto part = [](const Value& value, int64_t otherwise) {
    if (value.is_none()) {
      return otherwise;
    }
    if (value.kind() == Kind::kBigInt) {  // beyond both ends of anything
      constexpr int64_t kBeyond = std::numeric_limits<int64_t>::max();
      return value.text().starts_with('-') ? -kBeyond : kBeyond;
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
  return {from, to, by, count};
}

}  // namespace stator::chat_template::detail
