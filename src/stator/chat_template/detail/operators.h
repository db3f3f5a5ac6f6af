// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/chat_template/detail/ast.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template::detail {

class Interpreter;

// Python's operators. All throw Failure on types that Python refuses.

Value add(Interpreter& interpreter, const Value& left, const Value& right);
Value compute(Interpreter& interpreter, BinaryOperator op, const Value& left, const Value& right);
Value negate(Interpreter& interpreter, const Value& value);
Value plus(const Value& value);
/// left < right.
bool less(const Value& left, const Value& right);
/// left <= right.
bool less_equal(const Value& left, const Value& right);
bool contains(Interpreter& interpreter, const Value& container, const Value& item);

/// Steps that walking once over a value takes, as comparing, negating or printing it does: one per
/// 64 bytes of text, eight digits of a long integer, eight elements. Nothing for short ones.
uint64_t steps_of(const Value& value);

/// bool, int and float as double; nothing for other kinds. Throws for integers beyond a float.
std::optional<double> as_number(const Value& value);
/// bool and int.
std::optional<int64_t> as_integer(const Value& value);

/// Where a slice begins and how many elements it takes, clipped as Python clips.
struct SliceRange {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t count;
};
SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t length);

/// text % arguments.
std::string format_percent(Interpreter& interpreter, std::string_view format, const Value& values);

/// Throws "'x' is undefined" for undefined values, else "what: 'type'".
[[noreturn]] void fail_operand(std::string_view what, const Value& value);
[[noreturn]] void fail_undefined(const Value& undefined);

}  // namespace stator::chat_template::detail
