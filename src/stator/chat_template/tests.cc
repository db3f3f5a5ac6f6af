// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "stator/chat_template/detail/big_integer.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

using In = const Value&;
using Args = const CallArguments&;

bool is_integer(In value) {
  return value.is_int() || value.kind() == Kind::kBigInt;
}

bool is_callable(In value) {
  if (!value.is_object()) {
    return value.is_undefined();  // has a call operator, which fails
  }
  const Object::Type type = value.as_object().type;
  return type != Object::Type::kNamespace && type != Object::Type::kCycler &&
         type != Object::Type::kRange;
}

bool is_range(In value) {
  return value.is_object() && value.as_object().type == Object::Type::kRange;
}

bool is_iterable(In value) {
  return value.has_list() || value.is_dict() || value.is_string() || value.is_undefined() ||
         is_range(value) || (value.is_object() && value.as_object().type == Object::Type::kLoop);
}

bool is_sequence(In value) {
  return value.kind() == Kind::kList || value.kind() == Kind::kTuple || value.is_dict() ||
         value.is_string() || value.is_undefined() || is_range(value);
}

/// What `is filter` and `is test` look up.
std::string_view name_of(In value) {
  if (!hashable(value)) {
    fail_operand("unhashable type:", value);
  }
  return value.is_string() ? value.text() : std::string_view();
}

int64_t parity(In value) {
  if (const auto integer = BigInteger::from(value)) {
    return integer->is_odd() ? 1 : 0;
  }
  if (value.kind() == Kind::kDouble) {
    const double rest = std::fmod(value.as_double(), 2.0);
    return rest == 0.0 ? 0 : (rest == 1.0 || rest == -1.0 ? 1 : 2);
  }
  fail_operand("a number is needed, not", value);
}

bool divisible_by(Interpreter& interpreter, In value, Args arguments) {
  const Value rest = compute(interpreter, BinaryOperator::kModulo, value,
                             arguments.require(0, "num", "divisibleby"));
  return !rest.truthy();
}

bool same_as(In value, In other) {
  if (value.kind() != other.kind()) {
    return false;
  }
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
    case Kind::kGenerator:
      return &value.as_list() == &other.as_list();
    case Kind::kDict:
      return &value.as_dict() == &other.as_dict();
    default:
      return equals(value, other);
  }
}

/// str.islower / str.isupper: some cased letter, and all of them of this case.
bool all_cased(Interpreter& interpreter, In value, bool upper) {
  const std::string_view text = interpreter.text_of(value);
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    if (is_title_letter(point) || (upper ? is_lower(point) : is_upper(point))) {
      return false;
    }
    any = any || (upper ? is_upper(point) : is_lower(point));
  }
  return any;
}

bool starts_with(Interpreter& interpreter, In value, Args arguments) {
  return interpreter.text_of(value).starts_with(
      interpreter.text_of(arguments.require(0, "prefix", "startingwith")));
}

bool ends_with(Interpreter& interpreter, In value, Args arguments) {
  return interpreter.text_of(value).ends_with(
      interpreter.text_of(arguments.require(0, "suffix", "endingwith")));
}

bool test_eq(Interpreter&, In value, Args arguments) {
  return equals(value, arguments.require(0, "other", "equalto"));
}
bool test_ne(Interpreter&, In value, Args arguments) {
  return !equals(value, arguments.require(0, "other", "ne"));
}
bool test_lt(Interpreter&, In value, Args arguments) {
  return less(value, arguments.require(0, "other", "lt"));
}
bool test_le(Interpreter&, In value, Args arguments) {
  const Value& other = arguments.require(0, "other", "le");
  return less(value, other) || equals(value, other);
}
bool test_gt(Interpreter&, In value, Args arguments) {
  return less(arguments.require(0, "other", "gt"), value);
}
bool test_ge(Interpreter&, In value, Args arguments) {
  const Value& other = arguments.require(0, "other", "ge");
  return less(other, value) || equals(value, other);
}
bool test_in(Interpreter& interpreter, In value, Args arguments) {
  return contains(interpreter, arguments.require(0, "seq", "in"), value);
}

// clang-format off
constexpr Test kTests[] = {
    {"!=", test_ne, "other /"}, {"<", test_lt, "other /"}, {"<=", test_le, "other /"}, {"==", test_eq, "other /"}, {">", test_gt, "other /"}, {">=", test_ge, "other /"},
    {"boolean", [](Interpreter&, In value, Args) { return value.is_bool(); }},
    {"callable", [](Interpreter&, In value, Args) { return is_callable(value); }},
    {"defined", [](Interpreter&, In value, Args) { return !value.is_undefined(); }},
    {"divisibleby", divisible_by, "num"},
    {"endingwith", ends_with, "suffix"},
    {"eq", test_eq, "other /"}, {"equalto", test_eq, "other /"},
    {"escaped", [](Interpreter&, In value, Args) { return value.is_markup(); }},
    {"even", [](Interpreter&, In value, Args) { return parity(value) == 0; }},
    {"false", [](Interpreter&, In value, Args) { return value.is_bool() && !value.as_bool(); }},
    {"filter", [](Interpreter&, In value, Args) { return find_filter(name_of(value)) != nullptr; }},
    {"float", [](Interpreter&, In value, Args) { return value.kind() == Kind::kDouble; }},
    {"ge", test_ge, "other /"}, {"greaterthan", test_gt, "other /"}, {"gt", test_gt, "other /"}, {"in", test_in, "seq"},
    {"integer", [](Interpreter&, In value, Args) { return is_integer(value); }},
    {"iterable", [](Interpreter&, In value, Args) { return is_iterable(value); }},
    {"le", test_le, "other /"}, {"lessthan", test_lt, "other /"},
    {"lower", [](Interpreter& interpreter, In value, Args) { return all_cased(interpreter, value, false); }},
    {"lt", test_lt, "other /"},
    {"mapping", [](Interpreter&, In value, Args) { return value.is_dict(); }},
    {"ne", test_ne, "other /"},
    {"none", [](Interpreter&, In value, Args) { return value.is_none(); }},
    {"number", [](Interpreter&, In value, Args) { return is_integer(value) || value.is_bool() || value.kind() == Kind::kDouble; }},
    {"odd", [](Interpreter&, In value, Args) { return parity(value) == 1; }},
    {"sameas", [](Interpreter&, In value, Args arguments) { return same_as(value, arguments.require(0, "other", "sameas")); }, "other"},
    {"sequence", [](Interpreter&, In value, Args) { return is_sequence(value); }},
    {"startingwith", starts_with, "prefix"},
    {"string", [](Interpreter&, In value, Args) { return value.is_string(); }},
    {"test", [](Interpreter&, In value, Args) { return find_test(name_of(value)) != nullptr; }},
    {"true", [](Interpreter&, In value, Args) { return value.is_bool() && value.as_bool(); }},
    {"undefined", [](Interpreter&, In value, Args) { return value.is_undefined(); }},
    {"upper", [](Interpreter& interpreter, In value, Args) { return all_cased(interpreter, value, true); }},
};
// clang-format on
static_assert(std::ranges::is_sorted(kTests, {}, &Test::name));

template <typename Entry>
const Entry* find_entry(std::span<const Entry> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Entry::name);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Test* find_test(std::string_view name) {
  return find_entry<Test>(kTests, name);
}

const Filter* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), value_filters(), sequence_filters(), html_filters()}) {
    if (const Filter* found = find_entry(table, name)) {
      return found;
    }
  }
  return nullptr;
}

MethodSet find_methods(std::string_view name) {
  return {find_entry(string_methods(), name), find_entry(list_methods(), name),
          find_entry(dict_methods(), name)};
}

}  // namespace stator::chat_template::detail
