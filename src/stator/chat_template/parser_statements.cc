// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/parser.h"

namespace stator::chat_template::detail {
namespace {

constexpr int kBlockNestingMax = 100;

}  // namespace

Program parse_template(std::string_view source, Arena& arena) {
  return Parser(tokenize(source, arena), arena).parse();
}

Program Parser::parse() {
  Program program;
  program.body = parse_block({});
  if (!unknown_.empty()) {
    fail_at(unknown_.front().first, unknown_.front().second);
  }
  const auto names = scopes_.bind();
  program.names = arena_.copy(names);
  program.slot_count = static_cast<uint16_t>(scopes_.current()->function->slots);
  for (const auto& [macro, scope] : functions_) {
    macro->function.slot_count = static_cast<uint16_t>(scope->function->slots);
    macro->function.uses_caller = Scopes::is_read(*scope, "caller");
    macro->function.uses_varargs = Scopes::is_read(*scope, "varargs");
    macro->function.uses_kwargs = Scopes::is_read(*scope, "kwargs");
  }
  return program;
}

/// Statements up to a tag named in `ends`, whose name is left as the next token.
Block Parser::parse_block(Names ends) {
  std::vector<Stmt*> statements;
  while (peek().type != TokenType::kEnd) {
    const Token token = next();
    if (token.type == TokenType::kData) {
      statements.push_back(make(TextStmt{{StmtKind::kText, token.line}, token.text}));
    } else if (token.type == TokenType::kVariableBegin) {
      Expr* value = parse_tuple(true, {});
      expect(TokenType::kVariableEnd, "'}}'");
      statements.push_back(make(OutputStmt{{StmtKind::kOutput, token.line}, value, autoescape_}));
    } else {
      if (std::ranges::any_of(ends, [&](std::string_view end) { return at_name(end); })) {
        return arena_.copy(statements);
      }
      if (Stmt* statement = parse_statement()) {
        statements.push_back(statement);
      }
      expect(TokenType::kBlockEnd, "'%}'");
    }
  }
  if (ends.size() > 0) {
    fail_at(peek().line, "the template ends before '" + std::string(*ends.begin()) + "'");
  }
  return arena_.copy(statements);
}

/// The rest of an opening tag and the statements inside it.
Block Parser::parse_body(Names ends) {
  skip_operator(":");
  expect(TokenType::kBlockEnd, "'%}'");
  if (++depth_ > kBlockNestingMax) {
    fail_at(peek().line, "tags are nested too deeply");
  }
  const Block body = parse_block(ends);
  --depth_;
  return body;
}

Stmt* Parser::parse_statement() {
  const Token tag = expect(TokenType::kName, "the name of a tag");
  if (tag.text == "break" || tag.text == "continue") {
    if (loop_depth_ == 0) {
      fail_at(tag.line, "'" + std::string(tag.text) + "' outside of a loop");
    }
    return make(Stmt{tag.text == "break" ? StmtKind::kBreak : StmtKind::kContinue, tag.line});
  }
  if (tag.text == "do") {
    return make(EvaluateStmt{{StmtKind::kEvaluate, tag.line}, parse_tuple(true, {})});
  }
  return parse_named_statement(tag);
}

Stmt* Parser::parse_named_statement(const Token& tag) {
  const std::string_view name = tag.text;
  if (name == "if") {
    return parse_if(tag.line);
  }
  if (name == "for") {
    return parse_for(tag.line);
  }
  if (name == "set") {
    return parse_set(tag.line);
  }
  if (name == "macro") {
    return parse_macro(tag.line);
  }
  if (name == "call") {
    return parse_call_block(tag.line);
  }
  if (name == "filter") {
    return parse_filter_block(tag.line);
  }
  if (name == "with") {
    return parse_with(tag.line);
  }
  if (name == "print") {
    return parse_print(tag.line);
  }
  if (name == "generation") {
    return parse_scope(tag.line, "endgeneration");
  }
  if (name == "autoescape") {
    const Expr* on = parse_expression();
    if (on->kind != ExprKind::kConst) {
      fail_at(tag.line, "autoescape needs true or false");
    }
    const bool outer =
        std::exchange(autoescape_, static_cast<const ConstExpr*>(on)->value.truthy());
    Stmt* scope = parse_scope(tag.line, "endautoescape");
    autoescape_ = outer;
    return scope;
  }
  if (name == "block") {
    expect(TokenType::kName, "the name of the block");
    skip_name("scoped");
    return parse_scope(tag.line, "endblock");
  }
  if (name == "include" || name == "import" || name == "from" || name == "extends") {
    fail_at(tag.line,
            "'" + std::string(name) + "' needs other templates; a chat template has none");
  }
  fail_at(tag.line, "unknown or misplaced tag '" + std::string(name) + "'");
}

Stmt* Parser::parse_if(uint32_t line) {
  std::vector<Expr*> tests;
  std::vector<Block> bodies;
  Block otherwise;
  ++conditional_depth_;
  while (true) {
    tests.push_back(parse_tuple(false, {}));
    bodies.push_back(parse_body({"elif", "else", "endif"}));
    const Token end = next();
    if (end.text == "elif") {
      continue;
    }
    if (end.text == "else") {
      otherwise = parse_body({"endif"});
      next();
    }
    break;
  }
  --conditional_depth_;
  return make(IfStmt{{StmtKind::kIf, line}, arena_.copy(tests), arena_.copy(bodies), otherwise});
}

Stmt* Parser::parse_for(uint32_t line) {
  // The target belongs to the loop's scope but the items to the one around it.
  scopes_.enter_scope();
  ForStmt loop{};
  loop.kind = StmtKind::kFor;
  loop.line = line;
  loop.target = parse_target(false);
  Scopes::Scope* inner = scopes_.current();
  expect_name("in");
  scopes_.leave();
  loop.items = parse_tuple(false, {"recursive"});
  scopes_.resume(inner);
  loop.filter = skip_name("if") ? parse_expression() : nullptr;
  loop.recursive = skip_name("recursive");
  loop.loop_slot = scopes_.declare("loop", line);
  ++loop_depth_;
  loop.body = parse_body({"else", "endfor"});
  --loop_depth_;
  loop.scope = scopes_.leave();
  if (next().text == "else") {
    loop.otherwise = parse_body({"endfor"});
    next();
  }
  return make(loop);
}

Target Parser::parse_single_target(bool allow_attribute) {
  if (skip_operator("(")) {
    Target inner = parse_target(allow_attribute);
    expect_operator(")");
    return inner;
  }
  const Token name = expect(TokenType::kName, "a name to assign to");
  static constexpr std::string_view kReserved[] = {"true",  "True", "false",
                                                   "False", "none", "None"};
  if (std::ranges::find(kReserved, name.text) != std::end(kReserved)) {
    fail_at(name.line, "cannot assign to '" + std::string(name.text) + "'");
  }
  Target target{.kind = Target::Kind::kSlot,
                .line = name.line,
                .variable = name.text,
                .attribute = {},
                .parts = {}};
  if (allow_attribute && skip_operator(".")) {
    target.kind = Target::Kind::kAttribute;
    target.name = scopes_.read(name.text, name.line);
    target.attribute = expect(TokenType::kName, "an attribute").text;
    return target;
  }
  target.slot = scopes_.declare(name.text, name.line);
  return target;
}

Target Parser::parse_target(bool allow_attribute) {
  if (++depth_ > kBlockNestingMax) {
    fail_at(peek().line, "targets are nested too deeply");
  }
  Target first = parse_single_target(allow_attribute);
  --depth_;
  if (!at_operator(",")) {
    return first;
  }
  std::vector<Target> parts{first};
  while (skip_operator(",")) {
    if (peek().type != TokenType::kName && !at_operator("(")) {
      break;
    }
    if (at_name("in")) {
      break;
    }
    parts.push_back(parse_single_target(allow_attribute));
  }
  return Target{.kind = Target::Kind::kTuple,
                .line = first.line,
                .variable = {},
                .attribute = {},
                .parts = arena_.copy(parts)};
}

Stmt* Parser::parse_set(uint32_t line) {
  // The value is read before the name is declared only in time, not in scope: bind() runs later.
  const Target target = parse_target(true);
  if (skip_operator("=")) {
    Expr* value = parse_tuple(true, {});
    return make(SetStmt{{StmtKind::kSet, line}, target, value});
  }
  FilterExpr* filter = nullptr;
  while (skip_operator("|")) {
    filter = parse_filter(filter);
  }
  scopes_.enter_scope();
  const Block body = parse_body({"endset"});
  next();
  const ScopeSlots scope = scopes_.leave();
  return make(SetBlockStmt{{StmtKind::kSetBlock, line}, target, filter, scope, body});
}

void Parser::parse_signature(FunctionSyntax& function) {
  std::vector<uint16_t> slots;
  std::vector<std::string_view> names;
  std::vector<Expr*> defaults;
  expect_operator("(");
  while (!at_operator(")")) {
    const Token name = expect(TokenType::kName, "the name of a parameter");
    names.push_back(name.text);
    slots.push_back(scopes_.declare(name.text, name.line));
    if (skip_operator("=")) {
      defaults.push_back(parse_expression());
    } else if (!defaults.empty()) {
      fail_at(name.line, "a parameter without default after one with");
    }
    if (!skip_operator(",")) {
      break;
    }
  }
  expect_operator(")");
  function.parameter_slots = arena_.copy(slots);
  function.parameter_names = arena_.copy(names);
  function.defaults = arena_.copy(defaults);
}

/// `macro` is completed in parse(), when it is known which of the implicit names it reads.
void Parser::parse_function_body(MacroStmt& macro, std::string_view end, bool has_signature) {
  Scopes::Scope* scope = scopes_.enter_function();
  functions_.push_back({&macro, scope});
  const int outer_loops = std::exchange(loop_depth_, 0);
  if (has_signature) {
    parse_signature(macro.function);
  }
  macro.function.caller_slot = scopes_.declare("caller", macro.line);
  macro.function.varargs_slot = scopes_.declare("varargs", macro.line);
  macro.function.kwargs_slot = scopes_.declare("kwargs", macro.line);
  if (end == "endmacro") {
    macro.body = parse_body({end});
    next();
    scopes_.leave();
  }
  loop_depth_ = outer_loops;
}

Stmt* Parser::parse_macro(uint32_t line) {
  const Token name = expect(TokenType::kName, "the name of the macro");
  auto* macro = make(MacroStmt{});
  macro->kind = StmtKind::kMacro;
  macro->line = line;
  macro->name = name.text;
  macro->slot = scopes_.declare(name.text, line);
  parse_function_body(*macro, "endmacro", true);
  return macro;
}

Stmt* Parser::parse_call_block(uint32_t line) {
  auto* caller = make(MacroStmt{});
  caller->kind = StmtKind::kMacro;
  caller->line = line;
  parse_function_body(*caller, "endcall", at_operator("("));
  // The call itself is outside of the function that its body becomes.
  Scopes::Scope* inner = scopes_.current();
  scopes_.leave();
  Expr* call = parse_expression();
  if (call->kind != ExprKind::kCall) {
    fail_at(line, "'call' needs a call such as {% call name() %}");
  }
  scopes_.resume(inner);
  const int outer_loops = std::exchange(loop_depth_, 0);
  caller->body = parse_body({"endcall"});
  loop_depth_ = outer_loops;
  next();
  scopes_.leave();
  return make(CallBlockStmt{{StmtKind::kCallBlock, line}, static_cast<CallExpr*>(call), caller});
}

Stmt* Parser::parse_filter_block(uint32_t line) {
  FilterExpr* filter = parse_filter(nullptr);
  while (skip_operator("|")) {
    filter = parse_filter(filter);
  }
  scopes_.enter_scope();
  const Block body = parse_body({"endfilter"});
  next();
  const ScopeSlots scope = scopes_.leave();
  return make(FilterBlockStmt{{StmtKind::kFilterBlock, line}, filter, scope, body});
}

Stmt* Parser::parse_with(uint32_t line) {
  std::vector<Target> targets;
  std::vector<Expr*> values;
  Scopes::Scope* inner = scopes_.enter_scope();
  while (peek().type != TokenType::kBlockEnd) {
    if (!targets.empty()) {
      expect_operator(",");
    }
    targets.push_back(parse_single_target(false));
    expect_operator("=");
    scopes_.leave();
    values.push_back(parse_expression());
    scopes_.resume(inner);
  }
  const Block body = parse_body({"endwith"});
  next();
  const ScopeSlots scope = scopes_.leave();
  return make(
      WithStmt{{StmtKind::kWith, line}, arena_.copy(targets), arena_.copy(values), scope, body});
}

Stmt* Parser::parse_scope(uint32_t line, std::string_view end) {
  scopes_.enter_scope();
  const Block body = parse_body({end});
  next();
  if (end == "endblock" && peek().type == TokenType::kName) {
    next();
  }
  const ScopeSlots scope = scopes_.leave();
  return make(WithStmt{{StmtKind::kWith, line}, {}, {}, scope, body});
}

Stmt* Parser::parse_print(uint32_t line) {
  std::vector<Expr*> parts;
  while (peek().type != TokenType::kBlockEnd) {
    parts.push_back(parse_expression());
    if (!skip_operator(",")) {
      break;
    }
  }
  Expr* joined = make(ItemsExpr{{ExprKind::kConcat, line}, arena_.copy(parts)});
  return make(OutputStmt{{StmtKind::kOutput, line}, joined, autoescape_});
}

}  // namespace stator::chat_template::detail
