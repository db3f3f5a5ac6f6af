// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/structured/detail/grammar_scan.h"
#include "stator/structured/grammar.h"

namespace stator::structured {
namespace {

constexpr std::string_view kEscapes = "nrtfvab0e\\\"'[]-^/";

bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name(char c) {
  return is_name_begin(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Words first, then rules over the words: `name ::=` ends the rule before it, wherever lines end.
class EbnfParser {
 public:
  explicit EbnfParser(std::string_view text) : scan_(text) {}

  Outcome<std::vector<GrammarToken>> parse() {
    if (!tokenize() || !parse_rules() || !check_names()) {
      return scan_.take_refusal();
    }
    tokens_.pop_back();  // kEnd
    return std::move(tokens_);
  }

 private:
  using Token = GrammarToken;

  bool tokenize();
  bool tokenize_bounds(size_t begin);
  bool tokenize_class(size_t begin);
  void push(char kind, size_t begin) {
    tokens_.push_back({kind, scan_.text().substr(begin, scan_.position() - begin), begin});
  }

  bool parse_rules();
  bool parse_alternatives(uint32_t depth);
  bool parse_sequence(uint32_t depth);
  bool check_names();

  const Token& current() const { return tokens_[next_]; }
  bool rule_begins() const {
    return current().kind == Token::kName && tokens_[next_ + 1].kind == Token::kDefine;
  }

  GrammarScanner scan_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  GrammarNames names_;
};

bool EbnfParser::tokenize() {
  while (true) {
    scan_.take_while([](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
    const size_t begin = scan_.position();
    if (scan_.at_end()) {
      push(Token::kEnd, begin);
      return true;
    }
    const char c = scan_.peek();
    if (c == '#') {
      scan_.skip_line();
    } else if (scan_.skip("::=")) {
      push(Token::kDefine, begin);
    } else if (is_name_begin(c)) {
      scan_.take_while(is_name);
      push(Token::kName, begin);
    } else if (c == '"') {
      if (!scan_.take_quoted('"', "the string") || !scan_.check_escapes(begin, kEscapes)) {
        return false;
      }
      push(Token::kString, begin);
    } else if (c == '[') {
      if (!tokenize_class(begin)) {
        return false;
      }
    } else if (c == '{') {
      if (!tokenize_bounds(begin)) {
        return false;
      }
    } else if (scan_.skip("(=")) {
      return scan_.fail(begin, "look-ahead is not supported: leave (= …) out");
    } else if (std::string_view("()|*+?.").contains(c)) {
      scan_.advance(1);
      push(c, begin);
    } else {
      return scan_.fail(begin, "expected a name, a \"string\", a [class], or one of ( ) | * + ?");
    }
  }
}

bool EbnfParser::tokenize_class(size_t begin) {
  if (scan_.peek(1) == ']' || (scan_.peek(1) == '^' && scan_.peek(2) == ']')) {
    return scan_.fail(begin, "the class is empty");
  }
  if (!scan_.take_quoted(']', "the class") || !scan_.check_escapes(begin, kEscapes)) {
    return false;
  }
  push(Token::kClass, begin);
  return true;
}

// {n}, {n,}, {m,n}
bool EbnfParser::tokenize_bounds(size_t begin) {
  constexpr size_t kDigitsMax = 6;
  const auto skip_space = [this] {
    scan_.take_while([](char c) { return c == ' ' || c == '\t'; });
  };
  scan_.advance(1);
  skip_space();
  const std::string_view low = scan_.take_while(is_digit);
  skip_space();
  const bool comma = scan_.skip(",");
  skip_space();
  const std::string_view high = comma ? scan_.take_while(is_digit) : low;
  skip_space();
  if (low.empty() || !scan_.skip("}")) {
    return scan_.fail(begin, "a repetition is {n}, {n,} or {m,n}");
  }
  const bool too_long = low.size() > kDigitsMax || high.size() > kDigitsMax;
  const bool swapped =
      !high.empty() && (low.size() > high.size() || (low.size() == high.size() && low > high));
  if (too_long || swapped) {
    return scan_.fail(begin, "the repetition's numbers must be below 1000000, the smaller first");
  }
  push('{', begin);
  return true;
}

bool EbnfParser::parse_rules() {
  while (current().kind != Token::kEnd) {
    if (!rule_begins()) {
      return scan_.fail(current().at, "expected a rule: name ::= …");
    }
    if (!names_.define(current().text)) {
      return scan_.fail(current().at, fmt::format("{} is defined twice", current().text));
    }
    if (names_.count() > kGrammarRulesMax) {
      return scan_.fail(current().at, fmt::format("more than {} rules", kGrammarRulesMax));
    }
    next_ += 2;
    if (!parse_alternatives(0)) {
      return false;
    }
  }
  return true;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
bool EbnfParser::parse_alternatives(uint32_t depth) {
  if (!parse_sequence(depth)) {
    return false;
  }
  while (current().kind == '|') {
    ++next_;
    if (!parse_sequence(depth)) {
      return false;
    }
  }
  return true;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
bool EbnfParser::parse_sequence(uint32_t depth) {
  for (bool may_repeat = false;; ++next_) {
    const Token& token = current();
    switch (token.kind) {
      case ')':
        if (depth == 0) {
          return scan_.fail(token.at, "`)` without `(`");
        }
        [[fallthrough]];
      case Token::kEnd:
      case '|':
        return true;
      case Token::kName:
        if (rule_begins()) {
          return true;
        }
        names_.use(token);
        may_repeat = true;
        break;
      case Token::kString:
      case Token::kClass:
      case '.':
        may_repeat = true;
        break;
      case '(':
        if (depth == kGrammarDepthMax) {
          return scan_.fail(token.at,
                            fmt::format("groups are nested deeper than {}", kGrammarDepthMax));
        }
        ++next_;
        if (!parse_alternatives(depth + 1)) {
          return false;
        }
        if (current().kind != ')') {
          return scan_.fail(token.at, "`(` without `)`");
        }
        may_repeat = true;
        break;
      case Token::kDefine:
        return scan_.fail(token.at, "`::=` without the name of a rule before it");
      default:  // a repetition
        if (!may_repeat) {
          return scan_.fail(token.at, "nothing to repeat");
        }
        may_repeat = false;
    }
  }
}

bool EbnfParser::check_names() {
  if (names_.count() == 0) {
    return scan_.fail(0, "there is no rule: write root ::= …");
  }
  if (const Token* name = names_.find_undefined()) {
    return scan_.fail(name->at, fmt::format("{} is not defined", name->text));
  }
  return names_.defines("root") ||
         scan_.fail(0, "there is no rule named root, with which the output begins");
}

}  // namespace

Outcome<std::vector<GrammarToken>> parse_ebnf(std::string_view text) {
  return EbnfParser(text).parse();
}

}  // namespace stator::structured
