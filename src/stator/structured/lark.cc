// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/structured/detail/grammar_scan.h"
#include "stator/structured/grammar.h"
#include "stator/structured/regex.h"

namespace stator::structured {
namespace {

constexpr std::string_view kEscapes = "nrtfvab0\\\"'/.*+?()[]{}|^$-";

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return is_lower(c) || is_upper(c) || is_digit(c) || c == '_';
}

/// Words, then statements: a rule or terminal `name: …` or a directive `%import …`, each beginning
/// on a line of its own. A statement goes on over line ends as long as the next line does not begin
/// one.
class LarkParser {
 public:
  explicit LarkParser(std::string_view text) : scan_(text) {}

  Outcome<LarkText> parse() {
    if (!tokenize() || !define_all() || !parse_statements() || !check_names()) {
      return scan_.take_refusal();
    }
    return LarkText{std::move(tokens_), std::move(statements_)};
  }

 private:
  using Token = GrammarToken;

  bool tokenize();
  bool tokenize_one(char c, size_t begin);
  bool tokenize_regex(size_t begin);
  bool tokenize_special(size_t begin);
  bool tokenize_directive(size_t begin);
  bool tokenize_body();
  bool tokenize_bounds(size_t begin);
  void take_name();
  void push(char kind, size_t begin) {
    tokens_.push_back({kind, scan_.text().substr(begin, scan_.position() - begin), begin});
  }

  bool define_all();
  bool define(size_t name);
  void define_directive(size_t directive);

  bool parse_statements();
  bool parse_definition();
  bool parse_alternatives(uint32_t depth);
  bool parse_sequence(uint32_t depth);
  bool parse_item(uint32_t depth, bool& may_repeat);
  bool parse_group(uint32_t depth);
  bool parse_count();
  bool check_names();

  const Token& current() const { return tokens_[next_]; }
  bool statement_begins(size_t at) const;
  void skip_newlines() {
    while (current().kind == Token::kNewline && !statement_begins(next_ + 1)) {
      ++next_;
    }
  }

  GrammarScanner scan_;
  std::vector<Token> tokens_;
  std::vector<size_t> statements_;
  size_t next_ = 0;
  GrammarNames names_;
};

bool LarkParser::tokenize() {
  while (true) {
    scan_.take_while([](char c) { return c == ' ' || c == '\t' || c == '\r'; });
    const size_t begin = scan_.position();
    if (scan_.at_end()) {
      push(Token::kNewline, begin);
      push(Token::kEnd, begin);
      return true;
    }
    const char c = scan_.peek();
    if (c == '#' || (c == '/' && scan_.peek(1) == '/')) {
      scan_.skip_line();
    } else if (!tokenize_one(c, begin)) {
      return false;
    }
  }
}

bool LarkParser::tokenize_one(char c, size_t begin) {
  if (scan_.skip("\n")) {
    push(Token::kNewline, begin);
  } else if (is_lower(c) || is_upper(c) || c == '_') {
    take_name();
    push(Token::kName, begin);
  } else if (is_digit(c)) {
    scan_.take_while(is_digit);
    push(Token::kNumber, begin);
  } else if (c == '"') {
    if (!scan_.take_quoted('"', "the string") || !scan_.check_escapes(begin, kEscapes)) {
      return false;
    }
    scan_.skip("i");
    push(Token::kString, begin);
  } else if (c == '/') {
    return tokenize_regex(begin);
  } else if (c == '<') {
    return tokenize_special(begin);
  } else if (c == '%') {
    return tokenize_directive(begin);
  } else if (scan_.skip("..")) {
    push(Token::kRange, begin);
  } else if (scan_.skip("->")) {
    push(Token::kArrow, begin);
  } else if (c == '{') {
    return tokenize_bounds(begin);
  } else if (std::string_view("()[]|*+?:!.,~=").contains(c)) {
    scan_.advance(1);
    push(c, begin);
  } else {
    return scan_.fail(begin,
                      fmt::format("unexpected character {}", static_cast<unsigned char>(c) < 0x80
                                                                 ? fmt::format("`{}`", c)
                                                                 : "outside of a string"));
  }
  return true;
}

/// Letters, digits, _ and, between them, -.
void LarkParser::take_name() {
  do {
    scan_.take_while(is_name);
  } while (scan_.peek() == '-' && is_name(scan_.peek(1)) && scan_.skip("-"));
}

/// {n}, {n,}, {,n}, {m,n}
bool LarkParser::tokenize_bounds(size_t begin) {
  const std::string_view rest = scan_.text().substr(begin + 1);
  const std::string_view inside = rest.substr(0, rest.find('}'));
  const bool counts = inside.size() < rest.size() &&
                      inside.find_first_not_of("0123456789, \t") == std::string_view::npos &&
                      inside.find_first_of("0123456789") != std::string_view::npos &&
                      std::ranges::count(inside, ',') <= 1;
  if (!counts) {
    return scan_.fail(begin, "templates are not supported: write the rule out for each use");
  }
  scan_.advance(inside.size() + 2);
  push('{', begin);
  return true;
}

bool LarkParser::tokenize_regex(size_t begin) {
  if (!scan_.take_quoted('/', "the regular expression")) {
    return false;
  }
  const std::string_view body = scan_.text().substr(begin + 1, scan_.position() - begin - 2);
  if (const auto facts = check_regex(body); !facts.has_value()) {
    return scan_.fail(begin, "the regular expression " + facts.error().text);
  }
  scan_.take_while([](char c) { return std::string_view("imslux").contains(c); });
  push(Token::kRegex, begin);
  return true;
}

// <|end|>, <think>, <[128000]>
bool LarkParser::tokenize_special(size_t begin) {
  scan_.take_while([](char c) { return c != '>' && c != '\n' && c != ' '; });
  if (!scan_.skip(">")) {
    return scan_.fail(begin, "the special token does not end: <name>");
  }
  push(Token::kSpecial, begin);
  return true;
}

bool LarkParser::tokenize_directive(size_t begin) {
  scan_.advance(1);
  const std::string_view word = scan_.take_while(is_name);
  push(Token::kDirective, begin);
  if (word == "json" || word == "llguidance" || word == "regex") {
    return tokenize_body();
  }
  if (word == "import" || word == "ignore" || word == "declare") {
    return true;
  }
  return scan_.fail(begin, fmt::format("%{} is not supported", word));
}

// The JSON after %json and its like: up to the brace that closes it.
bool LarkParser::tokenize_body() {
  scan_.take_while([](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
  const size_t begin = scan_.position();
  if (scan_.peek() != '{') {
    return scan_.fail(begin, "expected an object {…}");
  }
  size_t depth = 0;
  do {
    const char c = scan_.peek();
    if (c == '\0') {
      return scan_.fail(begin, "`{` without `}`");
    }
    if (c == '"') {
      if (!scan_.take_quoted('"', "the string")) {
        return false;
      }
      continue;
    }
    depth += c == '{' ? 1 : 0;
    depth -= c == '}' ? 1 : 0;
    scan_.advance(1);
  } while (depth > 0);
  push(Token::kBody, begin);
  return true;
}

// Whether a definition or directive stands at `at`: ?name, name.1, name[attributes] and a colon.
bool LarkParser::statement_begins(size_t at) const {
  if (tokens_[at].kind == Token::kDirective) {
    return tokens_[at].text != "%json" && tokens_[at].text != "%regex";
  }
  if (tokens_[at].kind == '?' || tokens_[at].kind == '!') {
    ++at;
  }
  if (tokens_[at].kind != Token::kName) {
    return false;
  }
  ++at;
  if (tokens_[at].kind == '.') {
    at += tokens_[at + 1].kind == Token::kNumber ? 2 : 1;
  }
  if (tokens_[at].kind == '[') {
    while (tokens_[at].kind != ']' && tokens_[at].kind != Token::kNewline) {
      ++at;
    }
    at += tokens_[at].kind == ']' ? 1 : 0;
  }
  return tokens_[at].kind == ':';
}

// A first pass over the beginnings of lines, since names may be used before they are defined.
bool LarkParser::define_all() {
  bool line_begins = true;
  for (size_t i = 0; tokens_[i].kind != Token::kEnd; ++i) {
    if (line_begins && statement_begins(i)) {
      const bool prefixed = tokens_[i].kind == '?' || tokens_[i].kind == '!';
      const size_t name = prefixed ? i + 1 : i;
      if (tokens_[name].kind == Token::kDirective) {
        define_directive(name);
      } else if (!define(name)) {
        return false;
      }
    }
    line_begins = tokens_[i].kind == Token::kNewline;
  }
  return true;
}

bool LarkParser::define(size_t name) {
  const Token& token = tokens_[name];
  if (!names_.define(token.text)) {
    return scan_.fail(token.at, fmt::format("{} is defined twice", token.text));
  }
  return names_.count() <= kGrammarRulesMax ||
         scan_.fail(token.at, fmt::format("more than {} rules", kGrammarRulesMax));
}

// %import common.INT, %import common (INT, WS), %import common.WS -> SPACE, %declare A B: whatever
// name stands there becomes known. Twice the same import is harmless.
void LarkParser::define_directive(size_t directive) {
  const std::string_view word = tokens_[directive].text;
  if (word != "%import" && word != "%declare") {
    return;
  }
  for (size_t i = directive + 1; tokens_[i].kind != Token::kNewline; ++i) {
    const bool is_library = tokens_[i + 1].kind == '.' || tokens_[i + 1].kind == '(';
    if (tokens_[i].kind == Token::kName && !is_library) {
      names_.define(tokens_[i].text);
    }
  }
}

bool LarkParser::parse_statements() {
  while (current().kind != Token::kEnd) {
    if (current().kind == Token::kNewline) {
      ++next_;
      continue;
    }
    if (!statement_begins(next_)) {
      return scan_.fail(current().at, "expected a rule `name: …`, a terminal `NAME: …` or %import");
    }
    statements_.push_back(next_);
    if (current().kind != Token::kDirective) {
      if (!parse_definition()) {
        return false;
      }
    } else if (current().text == "%ignore") {
      ++next_;
      if (!parse_alternatives(0)) {
        return false;
      }
    } else {
      while (current().kind != Token::kNewline) {
        ++next_;
      }
    }
  }
  return true;
}

bool LarkParser::parse_definition() {
  while (current().kind != ':') {
    ++next_;  // statement_begins has seen the colon
  }
  ++next_;
  return parse_alternatives(0);
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
bool LarkParser::parse_alternatives(uint32_t depth) {
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
bool LarkParser::parse_sequence(uint32_t depth) {
  bool may_repeat = false;
  while (true) {
    skip_newlines();
    const Token& token = current();
    switch (token.kind) {
      case Token::kEnd:
      case Token::kNewline:
        return depth == 0 || scan_.fail(token.at, "a group is not closed");
      case '|':
        return true;
      case ')':
      case ']':
        return depth > 0 || scan_.fail(token.at, fmt::format("`{}` closes nothing", token.kind));
      case Token::kArrow:
        ++next_;
        if (current().kind != Token::kName) {
          return scan_.fail(current().at, "expected a name after `->`");
        }
        ++next_;
        may_repeat = false;
        break;
      case '*':
      case '+':
      case '?':
      case '~':
      case '{':
        if (!may_repeat) {
          return scan_.fail(token.at, "nothing to repeat");
        }
        may_repeat = false;
        ++next_;
        if (token.kind == '~' && !parse_count()) {
          return false;
        }
        break;
      default:
        if (!parse_item(depth, may_repeat)) {
          return false;
        }
    }
  }
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
bool LarkParser::parse_item(uint32_t depth, bool& may_repeat) {
  const Token& token = current();
  may_repeat = true;
  switch (token.kind) {
    case Token::kName:
      names_.use(token);
      ++next_;
      return true;
    case Token::kString:
      ++next_;
      if (current().kind == Token::kRange) {
        ++next_;
        if (current().kind != Token::kString) {
          return scan_.fail(current().at, "expected a string after `..`");
        }
        ++next_;
      }
      return true;
    case Token::kRegex:
    case Token::kSpecial:
      ++next_;
      return true;
    case Token::kDirective:  // %json {…}, %regex {…}
      ++next_;
      if (current().kind != Token::kBody) {
        return scan_.fail(token.at, "a directive must begin its line");
      }
      ++next_;
      return true;
    case '(':
    case '[':
      return parse_group(depth);
    default:
      return scan_.fail(token.at, fmt::format("unexpected `{}`", token.text));
  }
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
bool LarkParser::parse_group(uint32_t depth) {
  const Token& open = current();
  const char close = open.kind == '(' ? ')' : ']';
  if (depth == kGrammarDepthMax) {
    return scan_.fail(open.at, fmt::format("groups are nested deeper than {}", kGrammarDepthMax));
  }
  ++next_;
  if (!parse_alternatives(depth + 1)) {
    return false;
  }
  if (current().kind != close) {
    return scan_.fail(open.at, fmt::format("`{}` without `{}`", open.kind, close));
  }
  ++next_;
  return true;
}

// ~3 or ~2..5
bool LarkParser::parse_count() {
  if (current().kind != Token::kNumber) {
    return scan_.fail(current().at, "expected a number after `~`");
  }
  ++next_;
  if (current().kind == Token::kRange) {
    ++next_;
    if (current().kind != Token::kNumber) {
      return scan_.fail(current().at, "expected a number after `..`");
    }
    ++next_;
  }
  return true;
}

bool LarkParser::check_names() {
  if (names_.count() == 0) {
    return scan_.fail(0, "there is no rule: write start: … (Lark) or root ::= … (EBNF)");
  }
  if (const Token* name = names_.find_undefined()) {
    return scan_.fail(name->at, fmt::format("{} is not defined", name->text));
  }
  return names_.defines("start") ||
         scan_.fail(0, "there is no rule named start, with which the output begins");
}

}  // namespace

Outcome<LarkText> parse_lark(std::string_view text) {
  return LarkParser(text).parse();
}

Check check_lark(std::string_view text) {
  STATOR_CHECK(parse_lark(text));
  return {};
}

}  // namespace stator::structured
