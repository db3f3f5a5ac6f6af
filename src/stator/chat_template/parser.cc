// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/parser.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "stator/chat_template/detail/big_integer.h"
#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/library.h"

namespace stator::chat_template::detail {
namespace {

// Each level costs about ten stack frames here and as many when it runs.
constexpr int kNestingMax = 150;

}  // namespace

/// Counts nested constructs while alive; too many end the compilation.
class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kNestingMax) {
      parser_.depth_ = 0;
      fail_at(parser_.peek().line, "nested deeper than " + std::to_string(kNestingMax) + " levels");
    }
  }
  ~Nesting() { --parser_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

bool Parser::skip_operator(std::string_view text) {
  const bool found = at_operator(text);
  at_ += found ? 1 : 0;
  return found;
}

bool Parser::skip_name(std::string_view text) {
  const bool found = at_name(text);
  at_ += found ? 1 : 0;
  return found;
}

void Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) {
    fail_at(peek().line,
            "expected '" + std::string(text) + "', got '" + std::string(peek().text) + "'");
  }
}

void Parser::expect_name(std::string_view text) {
  if (!skip_name(text)) {
    fail_at(peek().line,
            "expected '" + std::string(text) + "', got '" + std::string(peek().text) + "'");
  }
}

Token Parser::expect(TokenType type, std::string_view what) {
  if (peek().type != type) {
    fail_at(peek().line,
            "expected " + std::string(what) + ", got '" + std::string(peek().text) + "'");
  }
  return next();
}

Expr* Parser::binary(ExprKind kind, BinaryOperator op, Expr* left, Expr* right) {
  return make(BinaryExpr{{kind, left->line}, op, left, right});
}

Expr* Parser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  if (!with_conditional) {
    return parse_or();
  }
  const size_t known = unknown_.size();
  Expr* value = parse_or();
  while (skip_name("if")) {
    unknown_.resize(known);  // `value` may never run
    ++conditional_depth_;
    Expr* test = parse_or();
    Expr* no = skip_name("else") ? parse_expression() : nullptr;
    --conditional_depth_;
    value = make(ConditionalExpr{{ExprKind::kConditional, value->line}, test, value, no});
  }
  return value;
}

Expr* Parser::parse_tuple(bool with_conditional, Names extra_ends) {
  const uint32_t line = peek().line;
  const auto at_end = [&] {
    return peek().type == TokenType::kVariableEnd || peek().type == TokenType::kBlockEnd ||
           at_operator(")") ||
           std::ranges::any_of(extra_ends, [&](auto end) { return at_name(end); });
  };
  std::vector<Expr*> items;
  bool is_tuple = false;
  while (!at_end()) {
    items.push_back(parse_expression(with_conditional));
    if (!skip_operator(",")) {
      break;
    }
    is_tuple = true;
  }
  if (is_tuple) {
    return make(ItemsExpr{{ExprKind::kTuple, line}, arena_.copy(items)});
  }
  if (items.empty()) {
    fail_at(line, "expected an expression, got '" + std::string(peek().text) + "'");
  }
  return items.front();
}

Expr* Parser::parse_or() {
  Expr* left = parse_and();
  while (skip_name("or")) {
    left = binary(ExprKind::kOr, BinaryOperator::kSubtract, left, parse_and());
  }
  return left;
}

Expr* Parser::parse_and() {
  Expr* left = parse_not();
  while (skip_name("and")) {
    left = binary(ExprKind::kAnd, BinaryOperator::kSubtract, left, parse_not());
  }
  return left;
}

Expr* Parser::parse_not() {
  if (!at_name("not")) {
    return parse_compare();
  }
  const Nesting nesting(*this);
  const uint32_t line = next().line;
  return make(UnaryExpr{{ExprKind::kNot, line}, parse_not()});
}

bool Parser::parse_compare_operator(CompareOperator& op) {
  static constexpr std::pair<std::string_view, CompareOperator> kOperators[] = {
      {"==", CompareOperator::kEq}, {"!=", CompareOperator::kNe}, {"<", CompareOperator::kLt},
      {"<=", CompareOperator::kLe}, {">", CompareOperator::kGt},  {">=", CompareOperator::kGe},
  };
  for (const auto& [text, candidate] : kOperators) {
    if (skip_operator(text)) {
      op = candidate;
      return true;
    }
  }
  if (skip_name("in")) {
    op = CompareOperator::kIn;
    return true;
  }
  if (at_name("not") && peek(1).is(TokenType::kName, "in")) {
    at_ += 2;
    op = CompareOperator::kNotIn;
    return true;
  }
  return false;
}

Expr* Parser::parse_compare() {
  Expr* first = parse_sum();
  std::vector<CompareOperator> operators;
  std::vector<Expr*> operands;
  for (CompareOperator op{}; parse_compare_operator(op);) {
    operators.push_back(op);
    operands.push_back(parse_sum());
  }
  if (operators.empty()) {
    return first;
  }
  const Value* text = nullptr;
  if (operators.size() == 1 && operators[0] == CompareOperator::kEq &&
      operands[0]->kind == ExprKind::kConst) {
    const Value& constant = static_cast<const ConstExpr*>(operands[0])->value;
    text = constant.is_string() ? &constant : nullptr;
  }
  return make(CompareExpr{{ExprKind::kCompare, first->line},
                          first,
                          arena_.copy(operators),
                          arena_.copy(operands),
                          text});
}

Expr* Parser::parse_sum() {
  Expr* left = parse_concat();
  std::vector<Expr*> sum;  // left and all that is added to it
  const auto close = [&] {
    if (!sum.empty()) {
      left = make(ItemsExpr{{ExprKind::kSum, left->line}, arena_.copy(sum)});
      sum.clear();
    }
  };
  while (at_operator("+") || at_operator("-")) {
    if (next().text == "+") {
      if (sum.empty()) {
        sum.push_back(left);
      }
      sum.push_back(parse_concat());
    } else {
      close();
      left = binary(ExprKind::kBinary, BinaryOperator::kSubtract, left, parse_concat());
    }
  }
  close();
  return left;
}

Expr* Parser::parse_concat() {
  Expr* first = parse_product();
  if (!at_operator("~")) {
    return first;
  }
  std::vector<Expr*> parts{first};
  while (skip_operator("~")) {
    parts.push_back(parse_product());
  }
  return make(ItemsExpr{{ExprKind::kConcat, first->line}, arena_.copy(parts)});
}

Expr* Parser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo},
  };
  Expr* left = parse_power();
  while (true) {
    const auto* op =
        std::ranges::find_if(kOperators, [&](const auto& row) { return at_operator(row.first); });
    if (op == std::end(kOperators)) {
      return left;
    }
    next();
    left = binary(ExprKind::kBinary, op->second, left, parse_power());
  }
}

Expr* Parser::parse_power() {
  Expr* left = parse_unary();
  while (skip_operator("**")) {
    left = binary(ExprKind::kBinary, BinaryOperator::kPower, left, parse_unary());
  }
  return left;
}

Expr* Parser::parse_unary(bool with_filter) {
  const Nesting nesting(*this);
  Expr* node = nullptr;
  if (at_operator("-") || at_operator("+")) {
    const Token sign = next();
    const ExprKind kind = sign.text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    node = make(UnaryExpr{{kind, sign.line}, parse_unary(false)});
  } else {
    node = parse_primary();
  }
  node = parse_postfix(node);
  return with_filter ? parse_filters(node) : node;
}

Expr* Parser::integer_constant(const Token& token) {
  unsigned base = 10;
  std::string_view digits = token.text;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  const auto value = BigInteger::parse(digits, base);
  if (!value) {
    fail_at(token.line, "'" + std::string(token.text.substr(0, 40)) + "' is not a number");
  }
  return make(ConstExpr{{ExprKind::kConst, token.line}, value->to_value(arena_)});
}

Expr* Parser::parse_name_or_constant(const Token& token) {
  const std::string_view text = token.text;
  if (text == "true" || text == "True") {
    return make(ConstExpr{{ExprKind::kConst, token.line}, Value::boolean(true)});
  }
  if (text == "false" || text == "False") {
    return make(ConstExpr{{ExprKind::kConst, token.line}, Value::boolean(false)});
  }
  if (text == "none" || text == "None") {
    return make(ConstExpr{{ExprKind::kConst, token.line}, Value::none()});
  }
  return scopes_.read(text, token.line);
}

Expr* Parser::parse_primary() {
  const Token token = next();
  switch (token.type) {
    case TokenType::kName:
      return parse_name_or_constant(token);
    case TokenType::kString: {
      std::string_view text = token.text;
      while (peek().type == TokenType::kString) {
        text = arena_.copy(std::string_view(std::string(text) + std::string(next().text)));
      }
      return make(ConstExpr{{ExprKind::kConst, token.line}, Value::string(text)});
    }
    case TokenType::kInteger:
      return integer_constant(token);
    case TokenType::kFloat: {
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      return make(ConstExpr{{ExprKind::kConst, token.line}, Value::number(value)});
    }
    case TokenType::kOperator:
      if (token.text == "(") {
        return parse_parenthesis(token.line);
      }
      if (token.text == "[") {
        return parse_list(token.line);
      }
      if (token.text == "{") {
        return parse_dict(token.line);
      }
      [[fallthrough]];
    default:
      fail_at(token.line, "unexpected '" + std::string(token.text) + "'");
  }
}

Expr* Parser::parse_parenthesis(uint32_t line) {
  if (skip_operator(")")) {
    return make(ItemsExpr{{ExprKind::kTuple, line}, {}});
  }
  Expr* inner = parse_tuple(true, {});
  expect_operator(")");
  return inner;
}

Expr* Parser::parse_list(uint32_t line) {
  std::vector<Expr*> items;
  while (!at_operator("]")) {
    items.push_back(parse_expression());
    if (!skip_operator(",")) {
      break;
    }
  }
  expect_operator("]");
  return make(ItemsExpr{{ExprKind::kList, line}, arena_.copy(items)});
}

Expr* Parser::parse_dict(uint32_t line) {
  std::vector<Expr*> keys;
  std::vector<Expr*> values;
  while (!at_operator("}")) {
    keys.push_back(parse_expression());
    expect_operator(":");
    values.push_back(parse_expression());
    if (!skip_operator(",")) {
      break;
    }
  }
  expect_operator("}");
  return make(DictExpr{{ExprKind::kDict, line}, arena_.copy(keys), arena_.copy(values)});
}

Expr* Parser::parse_postfix(Expr* node) {
  while (true) {
    const uint32_t line = peek().line;
    if (skip_operator(".")) {
      node = parse_attribute(node);
    } else if (skip_operator("[")) {
      node = parse_subscript(node);
    } else if (at_operator("(")) {
      node = make(CallExpr{{ExprKind::kCall, line}, node, parse_call_arguments()});
    } else {
      return node;
    }
  }
}

Expr* Parser::parse_filters(Expr* node) {
  while (true) {
    const uint32_t line = peek().line;
    if (skip_operator("|")) {
      node = parse_filter(node);
    } else if (skip_name("is")) {
      node = parse_test(node);
    } else if (at_operator("(")) {
      node = make(CallExpr{{ExprKind::kCall, line}, node, parse_call_arguments()});
    } else {
      return node;
    }
  }
}

Expr* Parser::parse_attribute(Expr* object) {
  const Token token = next();
  if (token.type == TokenType::kName) {
    const bool shallow = object->kind == ExprKind::kName;
    return make(GetattrExpr{
        {ExprKind::kGetattr, token.line, shallow}, object, token.text, find_methods(token.text)});
  }
  if (token.type != TokenType::kInteger) {
    fail_at(token.line, "expected a name or a number after '.'");
  }
  return make(
      GetitemExpr{{ExprKind::kGetitem, token.line}, object, integer_constant(token), {}, {}});
}

Expr* Parser::parse_subscript_part() {
  const uint32_t line = peek().line;
  const auto at_part_end = [&] { return at_operator("]") || at_operator(",") || at_operator(":"); };
  Expr* start = at_operator(":") ? nullptr : parse_expression();
  if (!skip_operator(":")) {
    return start;
  }
  Expr* stop = at_part_end() ? nullptr : parse_expression();
  Expr* step = nullptr;
  if (skip_operator(":")) {
    step = at_part_end() ? nullptr : parse_expression();
  }
  return make(SliceExpr{{ExprKind::kSlice, line}, start, stop, step});
}

Expr* Parser::parse_subscript(Expr* object) {
  const uint32_t line = peek().line;
  std::vector<Expr*> parts;
  while (!at_operator("]")) {
    parts.push_back(parse_subscript_part());
    if (!skip_operator(",")) {
      break;
    }
  }
  expect_operator("]");
  if (parts.empty()) {
    fail_at(line, "expected an expression in '[]'");
  }
  Expr* index = parts.front();
  if (parts.size() > 1) {
    index = make(ItemsExpr{{ExprKind::kTuple, line}, arena_.copy(parts)});
  }
  GetitemExpr item{{ExprKind::kGetitem, line}, object, index, {}, {}};
  if (index->kind == ExprKind::kConst) {
    const Value& key = static_cast<const ConstExpr*>(index)->value;
    if (key.is_string() && !key.text().empty()) {
      item.key = key.text();
      item.methods = find_methods(item.key);
      item.shallow = object->kind == ExprKind::kName;
    }
  }
  return make(item);
}

CallSyntax Parser::parse_call_arguments() {
  const uint32_t line = peek().line;
  expect_operator("(");
  std::vector<Expr*> positional;
  std::vector<std::string_view> names;
  std::vector<Expr*> named;
  CallSyntax call;
  while (!at_operator(")")) {
    if (skip_operator("**")) {
      call.star_star = parse_expression();
    } else if (skip_operator("*")) {
      call.star = parse_expression();
    } else if (peek().type == TokenType::kName && peek(1).is(TokenType::kOperator, "=")) {
      names.push_back(next().text);
      next();
      named.push_back(parse_expression());
    } else {
      if (!names.empty() || !call.is_simple()) {
        fail_at(line, "a positional argument after a named one");
      }
      positional.push_back(parse_expression());
    }
    if (!skip_operator(",")) {
      break;
    }
  }
  expect_operator(")");
  call.positional = arena_.copy(positional);
  call.names = arena_.copy(names);
  call.named = arena_.copy(named);
  return call;
}

/// Names of filters and tests may have dots; none of ours do, but what never runs may be unknown.
Token Parser::expect_dotted_name(std::string_view what) {
  Token name = expect(TokenType::kName, what);
  while (skip_operator(".")) {
    const Token part = expect(TokenType::kName, what);
    name.text =
        arena_.copy(std::string_view(std::string(name.text) + "." + std::string(part.text)));
  }
  return name;
}

void Parser::note_unknown(std::string_view what, const Token& name) {
  if (conditional_depth_ == 0) {
    unknown_.push_back(
        {name.line, "no " + std::string(what) + " named '" + std::string(name.text) + "'"});
  }
}

FilterExpr* Parser::parse_filter(Expr* input) {
  const Token name = expect_dotted_name("the name of a filter");
  const Filter* filter = find_filter(name.text);
  if (filter == nullptr) {
    note_unknown("filter", name);
  }
  CallSyntax arguments;
  if (at_operator("(")) {
    arguments = parse_call_arguments();
  }
  return make(FilterExpr{{ExprKind::kFilter, name.line}, input, name.text, filter, arguments});
}

Expr* Parser::parse_test(Expr* input) {
  const bool negated = skip_name("not");
  const Token name = expect_dotted_name("the name of a test");
  const Test* test = find_test(name.text);
  if (test == nullptr) {
    note_unknown("test", name);
  }
  CallSyntax arguments;
  const TokenType type = peek().type;
  const bool at_keyword = at_name("else") || at_name("or") || at_name("and");
  if (at_operator("(")) {
    arguments = parse_call_arguments();
  } else if (!at_keyword && (type == TokenType::kName || type == TokenType::kString ||
                             type == TokenType::kInteger || type == TokenType::kFloat ||
                             at_operator("[") || at_operator("{"))) {
    if (at_name("is")) {
      fail_at(peek().line, "tests with 'is' cannot be chained");
    }
    const std::vector<Expr*> operand{parse_postfix(parse_primary())};
    arguments.positional = arena_.copy(operand);
  }
  return make(TestExpr{{ExprKind::kTest, name.line}, input, name.text, test, arguments, negated});
}

}  // namespace stator::chat_template::detail
