// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/detail/ast.h"
#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/meter.h"
#include "stator/chat_template/value.h"
#include "stator/core/clock.h"

namespace stator::chat_template::detail {

/// Variables of one call of a function (the template itself, a macro, a call block).
struct Frame {
  Frame* parent;
  std::span<Value> slots;
};

/// Runs one program once. Recursive; bounded by steps, depth, memory and output. Every operation
/// may throw Failure.
class Interpreter {
 public:
  /// `arena` has a meter: it counts the steps.
  Interpreter(const Program& program, Arena& arena, const RenderLimits& limits, WallTime now)
      : program_(program), arena_(arena), meter_(*arena.meter()), limits_(limits), now_(now) {}

  /// `context` has one value per program.names, missing where there is no such variable.
  /// `expected_bytes` of output are made room for at the start.
  std::string run(std::span<const Value> context, size_t expected_bytes);
  /// Of the statement being run, for error messages.
  uint32_t line() const { return line_; }

  // What filters, tests, methods and globals are made of.
  Arena& arena() { return arena_; }
  WallTime now() const { return now_; }
  /// Counts work that one step does in bulk.
  void charge(uint64_t steps) { meter_.charge(steps); }
  Value make_string(std::string_view text) { return Value::string(arena_.copy(text)); }
  /// str(value), in the arena unless it is a string already.
  std::string_view text_of(const Value& value);
  /// The elements of anything iterable. May be the value's own list: do not change it.
  ListData* iterate(const Value& value);
  Value call(const Value& callee, const CallArguments& arguments);
  Value get_attribute(const Value& object, std::string_view name, const MethodSet& methods);
  Value get_item(const Value& object, const Value& index);
  Value bind_method(const Value& self, const Method& method);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class Depth;

  // Statements (interpreter.cc).
  Flow run_block(Block block);
  Flow run_statement(const Stmt& statement);
  void run_output(const OutputStmt& statement);
  Flow run_if(const IfStmt& statement);
  Flow run_for(const ForStmt& statement);
  Flow run_loop(const ForStmt& statement, ListData* items, uint32_t depth0);
  Flow run_with(const WithStmt& statement);
  void run_call_block(const CallBlockStmt& statement);
  ListData* filter_items(const ForStmt& statement, ListData* items);
  void assign(const Target& target, const Value& value);
  void enter(const ScopeSlots& scope);
  template <typename Body>
  Value capture(Body body);
  void emit(const Expr& expr);
  void emit_sum(const ItemsExpr& sum);
  void emit_general_sum(const ItemsExpr& sum, size_t at, const Value& part, size_t start);
  void emit_value(const Value& value);
  void emit_text(const Value& value, std::string_view block);
  void append(std::string_view text) {
    if (text.size() > limits_.output_bytes_max - out_.size()) [[unlikely]] {
      fail_output();
    }
    out_ += text;
  }
  [[noreturn]] void fail_output() const;
  [[noreturn]] void fail_depth();
  bool emit_json(const FilterExpr& filter);

  // Expressions (evaluate.cc).
  Value evaluate(const Expr& expr) {
    if (expr.kind == ExprKind::kConst) {
      return static_cast<const ConstExpr&>(expr).value;
    }
    if (expr.kind == ExprKind::kName) {
      return evaluate_name(static_cast<const NameExpr&>(expr));
    }
    return expr.shallow ? evaluate_shallow(expr) : evaluate_compound(expr);
  }
  bool evaluate_truth(const Expr& expr);
  Value evaluate_shallow(const Expr& expr);
  Value evaluate_compound(const Expr& expr);
  Value evaluate_name(const NameExpr& expr);
  Value evaluate_items(const ItemsExpr& expr, Kind kind);
  Value evaluate_dict(const DictExpr& expr);
  Value evaluate_getattr(const GetattrExpr& expr);
  Value evaluate_getitem(const GetitemExpr& expr);
  Value evaluate_slice(const Value& object, const SliceExpr& slice);
  Value evaluate_call(const CallExpr& expr);
  Value evaluate_filter(const FilterExpr& expr, const Value* block_input);
  bool evaluate_test(const TestExpr& expr);
  Value evaluate_sum(const ItemsExpr& expr);
  Value evaluate_concat(const ItemsExpr& expr);
  bool evaluate_compare(const CompareExpr& expr);
  std::span<Value> evaluate_all(std::span<Expr*> exprs, std::span<Value> room);
  template <typename Body>
  auto with_arguments(const CallSyntax& syntax, Body body);
  CallArguments spread_arguments(const CallSyntax& syntax);
  Value join_texts(std::span<const Value> parts);

  // Calls (call.cc).
  Value call_macro(const MacroObject& macro, const CallArguments& arguments);
  void bind_parameters(const MacroStmt& macro, const CallArguments& arguments);
  Value call_loop(const LoopObject& loop, const CallArguments& arguments);
  Value call_object(Object& object, const CallArguments& arguments);
  Value get_object_attribute(const Value& value, std::string_view name);
  Value get_range_attribute(const Value& value, std::string_view name);
  Value get_macro_attribute(const MacroStmt& macro, std::string_view name);
  ListData* list_range(const RangeObject& range);
  Value get_loop_attribute(LoopObject& loop, const Value& self, std::string_view name);

  const Program& program_;
  Arena& arena_;
  Meter& meter_;
  const RenderLimits& limits_;
  WallTime now_;
  std::span<const Value> context_;
  Frame* frame_ = nullptr;
  std::string out_;
  uint32_t depth_ = 0;
  uint32_t line_ = 1;
};

/// Counts nested evaluation while alive.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ > interpreter_.limits_.depth_max) [[unlikely]] {
      interpreter_.fail_depth();
    }
  }
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter& interpreter_;
};

}  // namespace stator::chat_template::detail
