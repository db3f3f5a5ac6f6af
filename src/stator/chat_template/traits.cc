// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/traits.h"

#include <set>
#include <string_view>

namespace stator::chat_template::detail {
namespace {

// Left-nested chains can be as long as the template; what lies deeper than this is not looked at.
constexpr int kDepthMax = 300;

class ContentWalker {
 public:
  explicit ContentWalker(const Program& program) : program_(program) {}

  ContentUse run() {
    // Names that hold content are found by repeating until nothing new turns up; a chain of n
    // assignments against their order takes n rounds, and templates have one or two.
    constexpr int kRoundsMax = 8;
    size_t known = SIZE_MAX;
    for (int round = 0; round < kRoundsMax && known != names_.size(); ++round) {
      known = names_.size();
      walk(program_.body, 0);
    }
    return use_;
  }

 private:
  void walk(Block block, int depth);
  void walk(const Stmt& statement, int depth);
  void walk_function(const MacroStmt& macro, int depth);
  void walk(const Expr* expr, int depth);
  void walk(const CallSyntax& call, int depth);
  void walk_member(const Expr* expr, int depth);
  void walk_all(std::span<Expr*> exprs, int depth) {
    for (const Expr* expr : exprs) {
      walk(expr, depth);
    }
  }
  bool is_content(const Expr* expr, int depth) const;
  void note_assignment(const Target& target, const Expr* value, int depth);
  void note_call(const CallExpr& call, int depth);
  void note_test(const TestExpr& test, int depth);
  static const Value* constant(const Expr* expr) {
    return expr->kind == ExprKind::kConst ? &static_cast<const ConstExpr*>(expr)->value : nullptr;
  }

  const Program& program_;
  ContentUse use_;
  std::set<std::string_view> names_;  // variables that may hold content
  std::set<const MacroStmt*> macros_;
};

bool ContentWalker::is_content(const Expr* expr, int depth) const {
  if (expr == nullptr || depth > kDepthMax) {
    return false;
  }
  switch (expr->kind) {
    case ExprKind::kName:
      return names_.contains(static_cast<const NameExpr*>(expr)->name);
    case ExprKind::kGetattr:
      return static_cast<const GetattrExpr*>(expr)->name == "content";
    case ExprKind::kGetitem: {
      const Value* index = constant(static_cast<const GetitemExpr*>(expr)->index);
      return index != nullptr && index->is_string() && index->text() == "content";
    }
    case ExprKind::kFilter: {
      const auto& filter = *static_cast<const FilterExpr*>(expr);
      static const std::set<std::string_view> kKeepsParts = {
          "list", "select", "reject", "selectattr", "rejectattr", "default", "d", "reverse"};
      return kKeepsParts.contains(filter.name) && is_content(filter.input, depth + 1);
    }
    case ExprKind::kOr:
    case ExprKind::kAnd: {
      const auto& both = *static_cast<const BinaryExpr*>(expr);
      return is_content(both.left, depth + 1) || is_content(both.right, depth + 1);
    }
    case ExprKind::kConditional: {
      const auto& choice = *static_cast<const ConditionalExpr*>(expr);
      return is_content(choice.yes, depth + 1) || is_content(choice.no, depth + 1);
    }
    case ExprKind::kCall: {  // message.get('content')
      const auto& call = *static_cast<const CallExpr*>(expr);
      if (call.callee->kind != ExprKind::kGetattr || call.arguments.positional.empty()) {
        return false;
      }
      const Value* key = constant(call.arguments.positional[0]);
      return static_cast<const GetattrExpr*>(call.callee)->name == "get" && key != nullptr &&
             key->is_string() && key->text() == "content";
    }
    default:
      return false;
  }
}

void ContentWalker::note_assignment(const Target& target, const Expr* value, int depth) {
  if (target.kind == Target::Kind::kSlot && is_content(value, depth)) {
    names_.insert(target.variable);
  }
}

/// A macro called with content somewhere holds it in the parameter at that place.
void ContentWalker::note_call(const CallExpr& call, int depth) {
  if (call.callee->kind != ExprKind::kName) {
    return;
  }
  const std::string_view name = static_cast<const NameExpr*>(call.callee)->name;
  for (const MacroStmt* macro : macros_) {
    if (macro->name != name) {
      continue;
    }
    const auto parameters = macro->function.parameter_names;
    for (size_t i = 0; i < call.arguments.positional.size() && i < parameters.size(); ++i) {
      if (is_content(call.arguments.positional[i], depth)) {
        names_.insert(parameters[i]);
      }
    }
    for (size_t i = 0; i < call.arguments.named.size(); ++i) {
      if (is_content(call.arguments.named[i], depth)) {
        names_.insert(call.arguments.names[i]);
      }
    }
  }
}

void ContentWalker::note_test(const TestExpr& test, int depth) {
  use_.tests_string |= test.name == "string" && is_content(test.input, depth);
  if (test.input->kind == ExprKind::kName &&
      static_cast<const NameExpr*>(test.input)->name == "tools") {
    use_.tools_none |= test.name == "none";
    use_.tools_defined |= test.name == "defined" || test.name == "undefined";
  }
}

void ContentWalker::walk(const CallSyntax& call, int depth) {
  walk_all(call.positional, depth);
  walk_all(call.named, depth);
  walk(call.star, depth);
  walk(call.star_star, depth);
}

/// content[0].type and content[0]['type'] read parts.
void ContentWalker::walk_member(const Expr* expr, int depth) {
  const bool by_name = expr->kind == ExprKind::kGetattr;
  const Expr* object = by_name ? static_cast<const GetattrExpr*>(expr)->object
                               : static_cast<const GetitemExpr*>(expr)->object;
  const Value* key = by_name ? nullptr : constant(static_cast<const GetitemExpr*>(expr)->index);
  const bool reads_member = by_name || (key != nullptr && key->is_string());
  if (reads_member && object->kind == ExprKind::kGetitem) {
    const auto& inner = *static_cast<const GetitemExpr*>(object);
    const Value* index = constant(inner.index);
    use_.walks_parts |= index != nullptr && index->is_int() && is_content(inner.object, depth);
  }
  walk(object, depth);
}

void ContentWalker::walk(const Expr* expr, int depth) {
  if (expr == nullptr || ++depth > kDepthMax) {
    return;
  }
  switch (expr->kind) {
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kSum:
    case ExprKind::kConcat:
      walk_all(static_cast<const ItemsExpr*>(expr)->items, depth);
      break;
    case ExprKind::kDict:
      walk_all(static_cast<const DictExpr*>(expr)->values, depth);
      break;
    case ExprKind::kGetattr:
    case ExprKind::kGetitem:
      walk_member(expr, depth);
      break;
    case ExprKind::kCall: {
      const auto& call = *static_cast<const CallExpr*>(expr);
      note_call(call, depth);
      walk(call.callee, depth);
      walk(call.arguments, depth);
      break;
    }
    case ExprKind::kFilter: {
      const auto& filter = *static_cast<const FilterExpr*>(expr);
      const bool per_part =
          filter.name == "selectattr" || filter.name == "rejectattr" || filter.name == "map";
      use_.walks_parts |= per_part && is_content(filter.input, depth);
      walk(filter.input, depth);
      walk(filter.arguments, depth);
      break;
    }
    case ExprKind::kTest: {
      const auto& test = *static_cast<const TestExpr*>(expr);
      note_test(test, depth);
      walk(test.input, depth);
      walk(test.arguments, depth);
      break;
    }
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      walk(static_cast<const UnaryExpr*>(expr)->operand, depth);
      break;
    case ExprKind::kBinary:
    case ExprKind::kAnd:
    case ExprKind::kOr:
      walk(static_cast<const BinaryExpr*>(expr)->left, depth);
      walk(static_cast<const BinaryExpr*>(expr)->right, depth);
      break;
    case ExprKind::kCompare:
      walk(static_cast<const CompareExpr*>(expr)->first, depth);
      walk_all(static_cast<const CompareExpr*>(expr)->operands, depth);
      break;
    case ExprKind::kConditional:
      walk(static_cast<const ConditionalExpr*>(expr)->test, depth);
      walk(static_cast<const ConditionalExpr*>(expr)->yes, depth);
      walk(static_cast<const ConditionalExpr*>(expr)->no, depth);
      break;
    case ExprKind::kConst:
    case ExprKind::kName:
    case ExprKind::kSlice:
      break;
  }
}

void ContentWalker::walk(Block block, int depth) {
  if (depth > kDepthMax) {
    return;
  }
  for (const Stmt* statement : block) {
    walk(*statement, depth + 1);
  }
}

void ContentWalker::walk_function(const MacroStmt& macro, int depth) {
  macros_.insert(&macro);
  walk_all(macro.function.defaults, depth);
  walk(macro.body, depth);
}

void ContentWalker::walk(const Stmt& statement, int depth) {
  switch (statement.kind) {
    case StmtKind::kOutput:
      walk(static_cast<const OutputStmt&>(statement).value, depth);
      break;
    case StmtKind::kEvaluate:
      walk(static_cast<const EvaluateStmt&>(statement).value, depth);
      break;
    case StmtKind::kIf: {
      const auto& choice = static_cast<const IfStmt&>(statement);
      walk_all(choice.tests, depth);
      for (const Block body : choice.bodies) {
        walk(body, depth);
      }
      walk(choice.otherwise, depth);
      break;
    }
    case StmtKind::kFor: {
      const auto& loop = static_cast<const ForStmt&>(statement);
      use_.walks_parts |= is_content(loop.items, depth);
      walk(loop.items, depth);
      walk(loop.filter, depth);
      walk(loop.body, depth);
      walk(loop.otherwise, depth);
      break;
    }
    case StmtKind::kSet: {
      const auto& set = static_cast<const SetStmt&>(statement);
      note_assignment(set.target, set.value, depth);
      walk(set.value, depth);
      break;
    }
    case StmtKind::kSetBlock:
      walk(static_cast<const SetBlockStmt&>(statement).body, depth);
      break;
    case StmtKind::kMacro:
      walk_function(static_cast<const MacroStmt&>(statement), depth);
      break;
    case StmtKind::kCallBlock: {
      const auto& block = static_cast<const CallBlockStmt&>(statement);
      walk(block.call, depth);
      walk_function(*block.caller, depth);
      break;
    }
    case StmtKind::kFilterBlock:
      walk(static_cast<const FilterBlockStmt&>(statement).body, depth);
      break;
    case StmtKind::kWith: {
      const auto& with = static_cast<const WithStmt&>(statement);
      for (size_t i = 0; i < with.values.size(); ++i) {
        note_assignment(with.targets[i], with.values[i], depth);
        walk(with.values[i], depth);
      }
      walk(with.body, depth);
      break;
    }
    case StmtKind::kText:
    case StmtKind::kBreak:
    case StmtKind::kContinue:
      break;
  }
}

}  // namespace

ContentUse find_content_use(const Program& program) {
  return ContentWalker(program).run();
}

}  // namespace stator::chat_template::detail
