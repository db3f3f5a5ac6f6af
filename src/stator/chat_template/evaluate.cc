// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/ast.h"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {

/// What the conditions of `if` are made of, without a value for every step.
bool Interpreter::evaluate_truth(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kNot: {
      const Depth depth(*this);
      return !evaluate_truth(*static_cast<const UnaryExpr&>(expr).operand);
    }
    case ExprKind::kAnd: {
      const Depth depth(*this);
      const auto& both = static_cast<const BinaryExpr&>(expr);
      return evaluate_truth(*both.left) && evaluate_truth(*both.right);
    }
    case ExprKind::kOr: {
      const Depth depth(*this);
      const auto& either = static_cast<const BinaryExpr&>(expr);
      return evaluate_truth(*either.left) || evaluate_truth(*either.right);
    }
    case ExprKind::kCompare: {
      const Depth depth(*this);
      charge(1);
      return evaluate_compare(static_cast<const CompareExpr&>(expr));
    }
    case ExprKind::kTest: {
      const Depth depth(*this);
      charge(1);
      return evaluate_test(static_cast<const TestExpr&>(expr));
    }
    default:
      return evaluate(expr).truthy();
  }
}

Value Interpreter::evaluate_shallow(const Expr& expr) {
  return expr.kind == ExprKind::kGetattr ? evaluate_getattr(static_cast<const GetattrExpr&>(expr))
                                         : evaluate_getitem(static_cast<const GetitemExpr&>(expr));
}

Value Interpreter::evaluate_compound(const Expr& expr) {
  const Depth depth(*this);
  charge(1);
  switch (expr.kind) {
    case ExprKind::kGetattr:
      return evaluate_getattr(static_cast<const GetattrExpr&>(expr));
    case ExprKind::kGetitem:
      return evaluate_getitem(static_cast<const GetitemExpr&>(expr));
    case ExprKind::kCompare:
      return Value::boolean(evaluate_compare(static_cast<const CompareExpr&>(expr)));
    case ExprKind::kTest:
      return Value::boolean(evaluate_test(static_cast<const TestExpr&>(expr)));
    case ExprKind::kFilter:
      return evaluate_filter(static_cast<const FilterExpr&>(expr), nullptr);
    case ExprKind::kCall:
      return evaluate_call(static_cast<const CallExpr&>(expr));
    case ExprKind::kNot:
      return Value::boolean(!evaluate_truth(*static_cast<const UnaryExpr&>(expr).operand));
    case ExprKind::kAnd: {
      const auto& both = static_cast<const BinaryExpr&>(expr);
      const Value left = evaluate(*both.left);
      return left.truthy() ? evaluate(*both.right) : left;
    }
    case ExprKind::kOr: {
      const auto& either = static_cast<const BinaryExpr&>(expr);
      const Value left = evaluate(*either.left);
      return left.truthy() ? left : evaluate(*either.right);
    }
    case ExprKind::kSum:
      return evaluate_sum(static_cast<const ItemsExpr&>(expr));
    case ExprKind::kConcat:
      return evaluate_concat(static_cast<const ItemsExpr&>(expr));
    case ExprKind::kBinary: {
      const auto& binary = static_cast<const BinaryExpr&>(expr);
      const Value left = evaluate(*binary.left);
      return compute(*this, binary.op, left, evaluate(*binary.right));
    }
    case ExprKind::kNegate:
      return negate(*this, evaluate(*static_cast<const UnaryExpr&>(expr).operand));
    case ExprKind::kPlus:
      return plus(evaluate(*static_cast<const UnaryExpr&>(expr).operand));
    case ExprKind::kConditional: {
      const auto& choice = static_cast<const ConditionalExpr&>(expr);
      if (evaluate_truth(*choice.test)) {
        return evaluate(*choice.yes);
      }
      return choice.no == nullptr ? Value::undefined("the inline if-expression")
                                  : evaluate(*choice.no);
    }
    case ExprKind::kList:
      return evaluate_items(static_cast<const ItemsExpr&>(expr), Kind::kList);
    case ExprKind::kTuple:
      return evaluate_items(static_cast<const ItemsExpr&>(expr), Kind::kTuple);
    case ExprKind::kDict:
      return evaluate_dict(static_cast<const DictExpr&>(expr));
    default:
      fail("a slice outside of brackets");
  }
}

Value Interpreter::evaluate_name(const NameExpr& expr) {
  for (const SlotRef& ref : expr.slots) {
    const Frame* frame = frame_;
    for (uint16_t hops = ref.hops; hops > 0; --hops) {
      frame = frame->parent;
    }
    if (const Value& value = frame->slots[ref.slot]; !value.is_missing()) {
      return value;
    }
  }
  if (const Value& value = context_[expr.name_id]; !value.is_missing()) {
    return value;
  }
  if (expr.global != nullptr) {
    // Objects are shared read-only; the header has no const form of Value.
    return Value::object(const_cast<FunctionObject*>(expr.global));
  }
  return Value::undefined(expr.name);
}

std::span<Value> Interpreter::evaluate_all(std::span<Expr*> exprs, std::span<Value> room) {
  std::span<Value> values = exprs.size() <= room.size()
                                ? room.first(exprs.size())
                                : std::span<Value>(arena_.array<Value>(exprs.size()), exprs.size());
  for (size_t i = 0; i < exprs.size(); ++i) {
    values[i] = evaluate(*exprs[i]);
  }
  return values;
}

Value Interpreter::evaluate_items(const ItemsExpr& expr, Kind kind) {
  auto* list = ListData::make(arena_, expr.items.size());
  for (const Expr* item : expr.items) {
    list->push(arena_, evaluate(*item));
  }
  return Value::sequence(kind, list);
}

Value Interpreter::evaluate_dict(const DictExpr& expr) {
  auto* dict = DictData::make(arena_, expr.keys.size());
  for (size_t i = 0; i < expr.keys.size(); ++i) {
    const Value key = evaluate(*expr.keys[i]);
    if (!hashable(key)) {
      fail("unhashable type: '" + std::string(type_name(key)) + "'");
    }
    dict->set(arena_, key, evaluate(*expr.values[i]));
  }
  return Value::dict(dict);
}

Value Interpreter::evaluate_getattr(const GetattrExpr& expr) {
  const Value object = evaluate(*expr.object);
  if (object.is_dict() && expr.methods.on_dict == nullptr) {
    if (const Value* found = object.as_dict().find(expr.name)) {
      return *found;
    }
    return Value::undefined(expr.name, Kind::kDict);
  }
  return get_attribute(object, expr.name, expr.methods);
}

Value Interpreter::evaluate_getitem(const GetitemExpr& expr) {
  const Value object = evaluate(*expr.object);
  if (expr.key.data() != nullptr && object.is_dict()) {
    if (const Value* found = object.as_dict().find(expr.key)) {
      return *found;
    }
    return get_attribute(object, expr.key, expr.methods);
  }
  if (expr.index->kind == ExprKind::kSlice) {
    return evaluate_slice(object, static_cast<const SliceExpr&>(*expr.index));
  }
  return get_item(object, evaluate(*expr.index));
}

Value Interpreter::evaluate_slice(const Value& object, const SliceExpr& slice) {
  const auto part = [this](const Expr* expr) {
    return expr == nullptr ? Value::none() : evaluate(*expr);
  };
  const Value start = part(slice.start);
  const Value stop = part(slice.stop);
  const Value step = part(slice.step);
  if (object.is_undefined()) {
    fail_undefined(object);
  }
  if (object.kind() == Kind::kList || object.kind() == Kind::kTuple) {
    const ListData& list = object.as_list();
    const SliceRange range = resolve_slice(start, stop, step, list.size);
    auto* taken = ListData::make(arena_, static_cast<size_t>(range.count));
    for (int64_t i = 0; i < range.count; ++i) {
      taken->push(arena_, list.items[range.start + i * range.step]);
    }
    charge(static_cast<uint64_t>(range.count) / 16);
    return Value::sequence(object.kind(), taken);
  }
  if (object.is_object() && object.as_object().type == Object::Type::kRange) {
    const auto& whole = static_cast<const RangeObject&>(object.as_object());
    const SliceRange range = resolve_slice(start, stop, step, whole.size);
    const int64_t stride = whole.step * range.step;
    const int64_t first = whole.at(range.start);
    return Value::object(arena_.make<RangeObject>(RangeObject{{Object::Type::kRange},
                                                              first,
                                                              whole.at(range.stop),
                                                              stride,
                                                              static_cast<uint32_t>(range.count)}));
  }
  if (!object.is_string()) {
    fail("'" + std::string(type_name(object)) + "' object cannot be sliced");
  }
  const std::string_view text = object.text();
  charge(text.size() / 64);
  const auto length = static_cast<int64_t>(count_code_points(text));
  const SliceRange range = resolve_slice(start, stop, step, length);
  if (range.step == 1) {
    const size_t begin = byte_offset(text, static_cast<size_t>(range.start));
    const std::string_view rest = text.substr(begin);
    return Value::string(rest.substr(0, byte_offset(rest, static_cast<size_t>(range.count))));
  }
  const ListData& characters = *iterate(object);
  std::string out;
  for (int64_t i = 0; i < range.count; ++i) {
    out += characters.items[range.start + i * range.step].text();
  }
  return make_string(out);
}

CallArguments Interpreter::spread_arguments(const CallSyntax& syntax) {
  auto* positional = ListData::make(arena_, syntax.positional.size());
  for (const Expr* expr : syntax.positional) {
    positional->push(arena_, evaluate(*expr));
  }
  if (syntax.star != nullptr) {
    for (const Value& value : iterate(evaluate(*syntax.star))->values()) {
      positional->push(arena_, value);
    }
  }
  auto* named = DictData::make(arena_, syntax.names.size());
  for (size_t i = 0; i < syntax.names.size(); ++i) {
    named->set(arena_, Value::string(syntax.names[i]), evaluate(*syntax.named[i]));
  }
  if (syntax.star_star != nullptr) {
    const Value extra = evaluate(*syntax.star_star);
    if (!extra.is_dict()) {
      fail_operand("the argument after ** must be a mapping, not", extra);
    }
    for (const auto& entry : extra.as_dict().items()) {
      named->set(arena_, Value::string(text_of(entry.key)), entry.value);
    }
  }
  auto* names = arena_.array<std::string_view>(named->size);
  auto* values = arena_.array<Value>(named->size);
  for (uint32_t i = 0; i < named->size; ++i) {
    names[i] = named->entries[i].key.text();
    values[i] = named->entries[i].value;
  }
  return {positional->values(), {names, named->size}, {values, named->size}};
}

/// Evaluates arguments on the stack where they fit and hands them to `body`.
template <typename Body>
auto Interpreter::with_arguments(const CallSyntax& syntax, Body body) {
  if (!syntax.is_simple()) {
    return body(spread_arguments(syntax));
  }
  if (syntax.positional.empty() && syntax.named.empty()) {
    return body(CallArguments{});
  }
  std::array<Value, 4> room;
  std::array<Value, 4> named_room;
  const std::span<Value> positional = evaluate_all(syntax.positional, room);
  const std::span<Value> named = evaluate_all(syntax.named, named_room);
  return body(CallArguments{positional, syntax.names, named});
}

Value Interpreter::evaluate_call(const CallExpr& expr) {
  if (expr.callee->kind == ExprKind::kGetattr) {
    // A method of a text, the usual case, is called without making a bound method.
    const auto& attribute = static_cast<const GetattrExpr&>(*expr.callee);
    const Value self = evaluate(*attribute.object);
    const MethodSet& methods = attribute.methods;
    const Method* method = self.is_string() ? methods.on_string
                           : self.is_dict() ? methods.on_dict
                           : self.is_list() ? methods.on_list
                                            : nullptr;
    if (method != nullptr) {
      return with_arguments(expr.arguments, [&](const CallArguments& arguments) {
        return (*method)(*this, self, arguments);
      });
    }
    const Value callee = get_attribute(self, attribute.name, methods);
    return with_arguments(expr.arguments,
                          [&](const CallArguments& arguments) { return call(callee, arguments); });
  }
  const Value callee = evaluate(*expr.callee);
  return with_arguments(expr.arguments,
                        [&](const CallArguments& arguments) { return call(callee, arguments); });
}

Value Interpreter::evaluate_filter(const FilterExpr& expr, const Value* block_input) {
  if (expr.filter == nullptr) {
    fail("no filter named '" + std::string(expr.name) + "'");
  }
  Value input;
  if (expr.input == nullptr) {
    input = *block_input;
  } else if (block_input != nullptr && expr.input->kind == ExprKind::kFilter) {
    input = evaluate_filter(static_cast<const FilterExpr&>(*expr.input), block_input);
  } else {
    input = evaluate(*expr.input);
  }
  return with_arguments(expr.arguments, [&](const CallArguments& arguments) {
    return (*expr.filter)(*this, input, arguments);
  });
}

bool Interpreter::evaluate_test(const TestExpr& expr) {
  if (expr.test == nullptr) {
    fail("no test named '" + std::string(expr.name) + "'");
  }
  const Value input = evaluate(*expr.input);
  const bool result = with_arguments(expr.arguments, [&](const CallArguments& arguments) {
    return (*expr.test)(*this, input, arguments);
  });
  return result != expr.negated;
}

Value Interpreter::join_texts(std::span<const Value> parts) {
  size_t bytes = 0;
  for (const Value& part : parts) {
    bytes += part.text().size();
  }
  if (bytes > kTextBytesMax) {
    fail("a text is longer than " + std::to_string(kTextBytesMax) + " bytes", Code::kTooLarge);
  }
  charge(bytes / 64);
  auto* target = arena_.array<char>(bytes);
  char* end = target;
  for (const Value& part : parts) {
    end = std::ranges::copy(part.text(), end).out;
  }
  return Value::string({target, bytes});
}

Value Interpreter::evaluate_sum(const ItemsExpr& expr) {
  std::array<Value, 8> room;
  const std::span<Value> parts = evaluate_all(expr.items, room);
  const bool plain = std::ranges::all_of(
      parts, [](const Value& part) { return part.is_string() && !part.is_markup(); });
  if (plain) {
    return join_texts(parts);
  }
  Value total = parts.front();
  for (const Value& part : parts.subspan(1)) {
    total = add(*this, total, part);
  }
  return total;
}

Value Interpreter::evaluate_concat(const ItemsExpr& expr) {
  std::array<Value, 8> room;
  const std::span<Value> parts = evaluate_all(expr.items, room);
  for (Value& part : parts) {
    part = Value::string(text_of(part));
  }
  return join_texts(parts);
}

namespace {

bool compare(Interpreter& interpreter, CompareOperator op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOperator::kEq:
      return equals(left, right);
    case CompareOperator::kNe:
      return !equals(left, right);
    case CompareOperator::kLt:
      return less(left, right);
    case CompareOperator::kLe:
      return less_equal(left, right);
    case CompareOperator::kGt:
      return less(right, left);
    case CompareOperator::kGe:
      return less_equal(right, left);
    case CompareOperator::kIn:
      return contains(interpreter, right, left);
    case CompareOperator::kNotIn:
      return !contains(interpreter, right, left);
  }
  return false;
}

void charge_comparison(Interpreter& interpreter, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    const size_t bytes = std::min(left.text().size(), right.text().size());
    if (bytes > kFreeTextBytes) {
      charge_text(interpreter, bytes);
    }
  } else if (left.kind() == Kind::kBigInt || right.kind() == Kind::kBigInt) {
    interpreter.charge(steps_of(left) + steps_of(right));
  } else {
    interpreter.charge(std::min(steps_of(left), steps_of(right)));
  }
}

}  // namespace

bool Interpreter::evaluate_compare(const CompareExpr& expr) {
  Value left = evaluate(*expr.first);
  if (expr.text != nullptr) {
    return left.is_text(expr.text->text());
  }
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const Value right = evaluate(*expr.operands[i]);
    charge_comparison(*this, left, right);
    if (!compare(*this, expr.operators[i], left, right)) {
      return false;
    }
    left = right;
  }
  return true;
}

}  // namespace stator::chat_template::detail
