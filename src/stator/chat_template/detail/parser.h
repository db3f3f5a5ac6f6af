// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/detail/ast.h"
#include "stator/chat_template/detail/lexer.h"

namespace stator::chat_template::detail {

/// Compiles a normalised template; the program aliases `source` and `arena`. Throws Failure.
Program parse_template(std::string_view source, Arena& arena);

/// Where a name is assigned decides what a reader of it sees, and macros see assignments that come
/// after them; so names are collected while parsing and bound to slots at the end.
class Scopes {
 public:
  struct Function {
    Function* parent = nullptr;
    uint32_t slots = 0;
  };
  struct Scope {
    Scope* parent = nullptr;
    Function* function = nullptr;
    std::map<std::string_view, uint16_t> names;
    std::vector<std::string_view> read;  ///< names bound to this scope, filled by bind()
  };

  explicit Scopes(Arena& arena) : arena_(arena) { enter_function(); }

  Scope* enter_scope();
  Scope* enter_function();
  ScopeSlots leave();
  /// Goes back into a scope that was left.
  void resume(Scope* scope) { current_ = scope; }
  Scope* current() const { return current_; }

  /// The slot of `name` in the current scope, made if new.
  uint16_t declare(std::string_view name, uint32_t line);
  NameExpr* read(std::string_view name, uint32_t line);
  /// Binds every name read so far. Call once, at the end.
  std::vector<std::string_view> bind();
  static bool is_read(const Scope& scope, std::string_view name);

 private:
  struct Read {
    NameExpr* expr;
    Scope* scope;
  };
  Arena& arena_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<std::unique_ptr<Function>> functions_;
  Scope* current_ = nullptr;
  std::vector<Read> reads_;
};

class Parser {
 public:
  Parser(std::vector<Token> tokens, Arena& arena)
      : tokens_(std::move(tokens)), arena_(arena), scopes_(arena) {}
  Program parse();

 private:
  class Nesting;
  using Names = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next() {
    const Token token = peek();
    at_ += at_ + 1 < tokens_.size() ? 1 : 0;
    return token;
  }
  bool at_operator(std::string_view text) const { return peek().is(TokenType::kOperator, text); }
  bool at_name(std::string_view text) const { return peek().is(TokenType::kName, text); }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  Token expect(TokenType type, std::string_view what);
  Token expect_dotted_name(std::string_view what);
  void note_unknown(std::string_view what, const Token& name);

  template <typename T>
  T* make(T node) {
    return arena_.make<T>(node);
  }

  // Statements (parser_statements.cc).
  Block parse_block(Names ends);
  Block parse_body(Names ends);
  Stmt* parse_statement();
  Stmt* parse_named_statement(const Token& tag);
  Stmt* parse_if(uint32_t line);
  Stmt* parse_for(uint32_t line);
  Stmt* parse_set(uint32_t line);
  Stmt* parse_macro(uint32_t line);
  Stmt* parse_call_block(uint32_t line);
  Stmt* parse_filter_block(uint32_t line);
  Stmt* parse_with(uint32_t line);
  Stmt* parse_scope(uint32_t line, std::string_view end);
  Stmt* parse_print(uint32_t line);
  void parse_signature(FunctionSyntax& function);
  void parse_function_body(MacroStmt& macro, std::string_view end, bool has_signature);
  Target parse_target(bool allow_attribute);
  Target parse_single_target(bool allow_attribute);

  // Expressions (parser.cc).
  Expr* parse_expression(bool with_conditional = true);
  Expr* parse_tuple(bool with_conditional, Names extra_ends);
  Expr* parse_or();
  Expr* parse_and();
  Expr* parse_not();
  Expr* parse_compare();
  bool parse_compare_operator(CompareOperator& op);
  Expr* parse_sum();
  Expr* parse_concat();
  Expr* parse_product();
  Expr* parse_power();
  Expr* parse_unary(bool with_filter = true);
  Expr* parse_primary();
  Expr* parse_name_or_constant(const Token& token);
  Expr* parse_parenthesis(uint32_t line);
  Expr* parse_list(uint32_t line);
  Expr* parse_dict(uint32_t line);
  Expr* parse_postfix(Expr* node);
  Expr* parse_filters(Expr* node);
  Expr* parse_attribute(Expr* object);
  Expr* parse_subscript(Expr* object);
  Expr* parse_subscript_part();
  FilterExpr* parse_filter(Expr* input);
  Expr* parse_test(Expr* input);
  CallSyntax parse_call_arguments();
  Expr* integer_constant(const Token& token);
  Expr* binary(ExprKind kind, BinaryOperator op, Expr* left, Expr* right);

  std::vector<Token> tokens_;
  Arena& arena_;
  Scopes scopes_;
  size_t at_ = 0;
  std::vector<std::pair<MacroStmt*, Scopes::Scope*>> functions_;
  int depth_ = 0;
  int conditional_depth_ = 0;  // inside `if`, an unknown filter is an error only when reached
  std::vector<std::pair<uint32_t, std::string>> unknown_;  // line and message of those outside
  int loop_depth_ = 0;
  bool autoescape_ = false;
};

}  // namespace stator::chat_template::detail
