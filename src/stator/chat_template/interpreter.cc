// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/interpreter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/text/html.h"

namespace stator::chat_template::detail {

std::string Interpreter::run(std::span<const Value> context, size_t expected_bytes) {
  context_ = context;
  Frame root{nullptr, {arena_.array<Value>(program_.slot_count), program_.slot_count}};
  std::ranges::fill(root.slots, Value::missing());
  frame_ = &root;
  out_.reserve(std::min(expected_bytes, limits_.output_bytes_max));
  run_block(program_.body);
  return std::move(out_);
}

void Interpreter::fail_depth() {
  --depth_;  // this level's guard is not there yet to count it off
  fail("recursion deeper than " + std::to_string(limits_.depth_max) + " levels");
}

void Interpreter::fail_output() const {
  fail("the prompt is longer than " + std::to_string(limits_.output_bytes_max) + " bytes",
       Code::kTooLarge);
}

/// Runs `body`, taking what it printed as a value.
template <typename Body>
Value Interpreter::capture(Body body) {
  const size_t start = out_.size();
  body();
  const Value text = make_string(std::string_view(out_).substr(start));
  out_.resize(start);
  return text;
}

void Interpreter::enter(const ScopeSlots& scope) {
  for (const uint16_t slot : scope.slots) {
    frame_->slots[slot] = Value::missing();
  }
}

Interpreter::Flow Interpreter::run_block(Block block) {
  for (const Stmt* statement : block) {
    if (statement->kind == StmtKind::kText) {
      append(static_cast<const TextStmt*>(statement)->text);
      continue;
    }
    if (const Flow flow = run_statement(*statement); flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& statement) {
  charge(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::kText:
      append(static_cast<const TextStmt&>(statement).text);
      return Flow::kNext;
    case StmtKind::kOutput:
      run_output(static_cast<const OutputStmt&>(statement));
      return Flow::kNext;
    case StmtKind::kIf:
      return run_if(static_cast<const IfStmt&>(statement));
    case StmtKind::kFor:
      return run_for(static_cast<const ForStmt&>(statement));
    case StmtKind::kSet: {
      const auto& set = static_cast<const SetStmt&>(statement);
      assign(set.target, evaluate(*set.value));
      return Flow::kNext;
    }
    case StmtKind::kSetBlock: {
      const auto& set = static_cast<const SetBlockStmt&>(statement);
      enter(set.scope);
      Value text = capture([&] { run_block(set.body); });
      assign(set.target, set.filter == nullptr ? text : evaluate_filter(*set.filter, &text));
      return Flow::kNext;
    }
    case StmtKind::kMacro: {
      const auto& macro = static_cast<const MacroStmt&>(statement);
      frame_->slots[macro.slot] = Value::object(
          arena_.make<MacroObject>(MacroObject{{Object::Type::kMacro}, &macro, frame_}));
      return Flow::kNext;
    }
    case StmtKind::kCallBlock:
      run_call_block(static_cast<const CallBlockStmt&>(statement));
      return Flow::kNext;
    case StmtKind::kFilterBlock: {
      const auto& block = static_cast<const FilterBlockStmt&>(statement);
      enter(block.scope);
      const Value text = capture([&] { run_block(block.body); });
      emit_text(evaluate_filter(*block.filter, &text), "'filter' block");
      return Flow::kNext;
    }
    case StmtKind::kWith:
      return run_with(static_cast<const WithStmt&>(statement));
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kEvaluate:
      evaluate(*static_cast<const EvaluateStmt&>(statement).value);
      return Flow::kNext;
  }
  return Flow::kNext;
}

void Interpreter::run_output(const OutputStmt& statement) {
  if (!statement.escape) {
    emit(*statement.value);
    return;
  }
  const Value value = evaluate(*statement.value);
  append(value.is_markup() ? std::string(value.text()) : text::escape_html(text_of(value)));
}

Interpreter::Flow Interpreter::run_if(const IfStmt& statement) {
  const Depth depth(*this);
  for (size_t i = 0; i < statement.tests.size(); ++i) {
    if (evaluate_truth(*statement.tests[i])) {
      return run_block(statement.bodies[i]);
    }
  }
  return run_block(statement.otherwise);
}

Interpreter::Flow Interpreter::run_with(const WithStmt& statement) {
  const Depth depth(*this);
  std::array<Value, 8> room;
  const std::span<Value> values = evaluate_all(statement.values, room);
  enter(statement.scope);
  for (size_t i = 0; i < values.size(); ++i) {
    assign(statement.targets[i], values[i]);
  }
  return run_block(statement.body);
}

Interpreter::Flow Interpreter::run_for(const ForStmt& statement) {
  return run_loop(statement, iterate(evaluate(*statement.items)), 0);
}

ListData* Interpreter::filter_items(const ForStmt& statement, ListData* items) {
  auto* kept = ListData::make(arena_, 0);
  for (uint32_t i = 0; i < items->size; ++i) {
    const Value item = items->items[i];
    enter(statement.scope);
    assign(statement.target, item);
    if (evaluate_truth(*statement.filter)) {
      kept->push(arena_, item);
    }
  }
  return kept;
}

Interpreter::Flow Interpreter::run_loop(const ForStmt& statement, ListData* items,
                                        uint32_t depth0) {
  const Depth depth(*this);
  if (statement.filter != nullptr) {
    items = filter_items(statement, items);
  }
  if (items->size == 0) {
    return run_block(statement.otherwise);
  }
  auto* loop = arena_.make<LoopObject>(
      LoopObject{{Object::Type::kLoop}, items, 0, depth0, Value::missing(), &statement, frame_});
  bool completed = false;
  // The list may grow while it is walked, as in Python; the step limit ends that.
  for (uint32_t i = 0; i < items->size; ++i) {
    charge(1);
    loop->index0 = i;
    enter(statement.scope);
    frame_->slots[statement.loop_slot] = Value::object(loop);
    assign(statement.target, items->items[i]);
    const Flow flow = run_block(statement.body);
    completed = completed || flow == Flow::kNext;
    if (flow == Flow::kBreak) {
      break;
    }
  }
  // As in Jinja: `else` is for loops of which no pass reached its end, whatever cut them short.
  return completed ? Flow::kNext : run_block(statement.otherwise);
}

void Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kSlot:
      frame_->slots[target.slot] = value;
      return;
    case Target::Kind::kAttribute: {
      const Value space = evaluate_name(*target.name);
      if (!space.is_object() || space.as_object().type != Object::Type::kNamespace) {
        fail("cannot assign attribute on non-namespace object");
      }
      static_cast<NamespaceObject&>(space.as_object())
          .attributes->set_text(arena_, target.attribute, value);
      return;
    }
    case Target::Kind::kTuple: {
      const ListData& values = *iterate(value);
      if (values.size != target.parts.size()) {
        fail("cannot unpack " + std::to_string(values.size) + " values into " +
             std::to_string(target.parts.size()) + " names");
      }
      for (uint32_t i = 0; i < values.size; ++i) {
        assign(target.parts[i], values.items[i]);
      }
    }
  }
}

void Interpreter::run_call_block(const CallBlockStmt& statement) {
  auto* caller =
      arena_.make<MacroObject>(MacroObject{{Object::Type::kMacro}, statement.caller, frame_});
  const CallExpr& expr = *statement.call;
  const Value callee = evaluate(*expr.callee);
  const CallArguments given = spread_arguments(expr.arguments);
  auto* names = arena_.array<std::string_view>(given.names.size() + 1);
  auto* named = arena_.array<Value>(given.named.size() + 1);
  std::ranges::copy(given.names, names);
  std::ranges::copy(given.named, named);
  names[given.names.size()] = "caller";
  named[given.named.size()] = Value::object(caller);
  const CallArguments arguments{
      given.positional, {names, given.names.size() + 1}, {named, given.named.size() + 1}};
  emit_text(call(callee, arguments), "'call' block");
}

/// Jinja2 joins what these blocks answer as it is, so anything but text fails there, too.
void Interpreter::emit_text(const Value& value, std::string_view block) {
  if (!value.is_string()) {
    fail_operand("a " + std::string(block) + " must answer text, not", value);
  }
  append(value.text());
}

void Interpreter::emit_value(const Value& value) {
  if (value.is_string()) {
    append(value.text());
    return;
  }
  write_str(value, out_, limits_.output_bytes_max);
}

void Interpreter::emit(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      emit_value(static_cast<const ConstExpr&>(expr).value);
      return;
    case ExprKind::kSum:
      emit_sum(static_cast<const ItemsExpr&>(expr));
      return;
    case ExprKind::kFilter:
      if (emit_json(static_cast<const FilterExpr&>(expr))) {
        return;
      }
      [[fallthrough]];
    default:
      emit_value(evaluate(expr));
  }
}

/// Printing a sum of texts, the commonest output, needs no joined copy of it.
void Interpreter::emit_sum(const ItemsExpr& sum) {
  const Depth depth(*this);
  const size_t start = out_.size();
  for (size_t i = 0; i < sum.items.size(); ++i) {
    const Value part = evaluate(*sum.items[i]);
    if (!part.is_string() || part.is_markup()) {
      emit_general_sum(sum, i, part, start);
      return;
    }
    append(part.text());
  }
}

/// Takes over at the first part, number `at`, that is no plain text; what was printed of the sum
/// since `start` is its left operand.
void Interpreter::emit_general_sum(const ItemsExpr& sum, size_t at, const Value& part,
                                   size_t start) {
  Value total = part;
  if (at > 0) {
    const Value printed = make_string(std::string_view(out_).substr(start));
    out_.resize(start);
    total = add(*this, printed, part);
  }
  for (const Expr* item : sum.items.subspan(at + 1)) {
    total = add(*this, total, evaluate(*item));
  }
  emit_value(total);
}

/// `{{ value | tojson }}` without arguments writes straight into the output.
bool Interpreter::emit_json(const FilterExpr& filter) {
  const bool plain = filter.name == "tojson" && filter.input != nullptr &&
                     filter.arguments.is_simple() && filter.arguments.positional.empty() &&
                     filter.arguments.named.empty();
  if (!plain) {
    return false;
  }
  const Depth depth(*this);
  const Value value = evaluate(*filter.input);
  JsonStyle style;
  style.bytes_max = limits_.output_bytes_max;
  const size_t before = out_.size();
  write_json(value, style, out_);
  charge((out_.size() - before) / 64);
  return true;
}

}  // namespace stator::chat_template::detail
