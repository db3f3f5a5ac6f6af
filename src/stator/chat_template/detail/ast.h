// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "stator/chat_template/detail/object.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template::detail {

// The syntax tree is also what runs: nodes live in the template's arena, names are resolved to
// slots and filters, tests and methods to function pointers when the template is compiled.

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,
  kGetattr,
  kGetitem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kSum,     ///< a + b + c, kept flat so that texts are joined once
  kConcat,  ///< a ~ b ~ c
  kCompare,
  kAnd,
  kOr,
  kConditional,
};

struct Expr {
  ExprKind kind;
  uint32_t line;
  bool shallow = false;  ///< a named member of a variable: nothing below it can recurse
};

/// A variable's place: `hops` function frames outwards, then the slot there.
struct SlotRef {
  uint16_t hops;
  uint16_t slot;
};

struct ConstExpr : Expr {
  Value value;
};
struct NameExpr : Expr {
  std::string_view name;
  uint32_t name_id;              ///< index into the context variables
  std::span<SlotRef> slots;      ///< scopes that assign it, innermost first
  const FunctionObject* global;  ///< built-in of this name, or null
};
struct ItemsExpr : Expr {  ///< kList, kTuple, kSum, kConcat
  std::span<Expr*> items;
};
struct DictExpr : Expr {
  std::span<Expr*> keys;
  std::span<Expr*> values;
};
/// Python methods of one name on the built-in types; null where the type has none.
struct MethodSet {
  const Method* on_string = nullptr;
  const Method* on_list = nullptr;
  const Method* on_dict = nullptr;
};
struct GetattrExpr : Expr {
  Expr* object;
  std::string_view name;
  MethodSet methods;
};
struct GetitemExpr : Expr {
  Expr* object;
  Expr* index;
  std::string_view key;  ///< the index when it is a constant text, the usual case; else null
  MethodSet methods;     ///< of that name
};
struct SliceExpr : Expr {  ///< parts may be null
  Expr* start;
  Expr* stop;
  Expr* step;
};
struct CallSyntax {
  std::span<Expr*> positional;
  std::span<std::string_view> names;
  std::span<Expr*> named;
  Expr* star = nullptr;
  Expr* star_star = nullptr;
  bool is_simple() const { return star == nullptr && star_star == nullptr; }
};
struct CallExpr : Expr {
  Expr* callee;
  CallSyntax arguments;
};
struct FilterExpr : Expr {
  Expr* input;  ///< null in the innermost filter of a filter block
  std::string_view name;
  const Filter* filter;  ///< null: no such filter, an error when reached
  CallSyntax arguments;
};
struct TestExpr : Expr {
  Expr* input;
  std::string_view name;
  const Test* test;
  CallSyntax arguments;
  bool negated;
};
struct UnaryExpr : Expr {
  Expr* operand;
};
enum class BinaryOperator : uint8_t {
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
struct BinaryExpr : Expr {  ///< kBinary, kAnd, kOr
  BinaryOperator op;
  Expr* left;
  Expr* right;
};
enum class CompareOperator : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct CompareExpr : Expr {
  Expr* first;
  std::span<CompareOperator> operators;
  std::span<Expr*> operands;
  const Value* text;  ///< of `first == 'text'`, the commonest condition; else null
};
struct ConditionalExpr : Expr {
  Expr* test;
  Expr* yes;
  Expr* no;  ///< null: undefined
};

enum class StmtKind : uint8_t {
  kText,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue,
  kEvaluate,
};

struct Stmt {
  StmtKind kind;
  uint32_t line;
};
using Block = std::span<Stmt*>;

/// The slots of one scope, cleared each time it is entered.
struct ScopeSlots {
  std::span<uint16_t> slots;
};

/// What can stand left of `=`: a name, a namespace attribute, or a tuple of those.
struct Target {
  enum class Kind : uint8_t { kSlot, kAttribute, kTuple };
  Kind kind;
  uint32_t line;
  uint16_t slot = 0;
  std::string_view variable;  ///< the name behind the slot
  NameExpr* name = nullptr;   ///< the namespace
  std::string_view attribute;
  std::span<Target> parts;
};

struct TextStmt : Stmt {
  std::string_view text;
};
struct OutputStmt : Stmt {
  Expr* value;
  bool escape;  ///< inside {% autoescape true %}
};
struct IfStmt : Stmt {
  std::span<Expr*> tests;
  std::span<Block> bodies;
  Block otherwise;
};
struct ForStmt : Stmt {
  Target target;
  Expr* items;
  Expr* filter;  ///< null without `if`
  bool recursive;
  uint16_t loop_slot;
  ScopeSlots scope;
  Block body;
  Block otherwise;
};
struct SetStmt : Stmt {
  Target target;
  Expr* value;
};
struct SetBlockStmt : Stmt {
  Target target;
  FilterExpr* filter;  ///< null without
  ScopeSlots scope;
  Block body;
};
struct FunctionSyntax {
  std::span<uint16_t> parameter_slots;
  std::span<std::string_view> parameter_names;
  std::span<Expr*> defaults;  ///< of the last parameters
  uint16_t slot_count = 0;
  uint16_t caller_slot = 0;
  uint16_t varargs_slot = 0;
  uint16_t kwargs_slot = 0;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};
struct MacroStmt : Stmt {
  std::string_view name;
  uint16_t slot;  ///< where the macro itself is stored
  FunctionSyntax function;
  Block body;
};
struct CallBlockStmt : Stmt {
  CallExpr* call;
  MacroStmt* caller;
};
struct FilterBlockStmt : Stmt {
  FilterExpr* filter;
  ScopeSlots scope;
  Block body;
};
struct WithStmt : Stmt {  ///< also generation, autoescape and block: a scope without targets
  std::span<Target> targets;
  std::span<Expr*> values;
  ScopeSlots scope;
  Block body;
};
struct EvaluateStmt : Stmt {
  Expr* value;
};

/// A compiled template.
struct Program {
  Block body;
  uint16_t slot_count = 0;
  std::span<std::string_view> names;  ///< context variables by name_id
};

}  // namespace stator::chat_template::detail
