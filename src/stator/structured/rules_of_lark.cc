// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "stator/core/flat_map.h"
#include "stator/structured/detail/grammar_scan.h"
#include "stator/structured/detail/grammar_text.h"
#include "stator/structured/detail/rule_builders.h"
#include "stator/structured/grammar.h"
#include "stator/structured/json_schema.h"
#include "stator/text/utf8.h"

namespace stator::structured {
namespace {

struct Common {
  std::string_view name;
  std::string_view pattern;
};
/// Lark's library of terminals.
constexpr auto kCommon = std::to_array<Common>({
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "[0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER",
     "[+-]?([0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\.)*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"_EXP", "[eE][+-]?[0-9]+"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
});

/// What stands in brackets behind the name of a rule.
struct LarkAttributes {
  bool lazy = false;
  std::optional<std::string> until;  ///< stop, suffix
};

/// Reads the words that parse_lark accepted.
class LarkRules {
 public:
  LarkRules(RuleSet& rules, std::string_view text, LarkText words, const JsonSpelling& spelling)
      : rules_(rules), text_(text), words_(std::move(words)), spelling_(spelling) {}

  Outcome<ExpressionId> read() {
    for (const size_t statement : words_.statements) {
      define(statement);
    }
    read_ignored();
    for (const size_t statement : words_.statements) {
      if (token(statement).kind != Token::kDirective && !refusal_) {
        read_definition(statement);
      }
    }
    if (refusal_) {
      return std::move(*refusal_);
    }
    const ExpressionId start = rules_.rule(names_.at("start"));
    return ignored_ ? rules_.sequence({*ignored_, start}) : start;
  }

 private:
  using Token = GrammarToken;
  const Token& token(size_t at) const { return words_.tokens[at]; }
  const Token& current() const { return token(next_); }

  ExpressionId fail(size_t at, std::string_view why) {
    if (!refusal_) {
      refusal_ = refuse_at(place_in(text_, at), why);
      refusal_->code = Code::kUnsupported;
    }
    return rules_.empty();
  }

  void define(size_t statement) {
    const Token& first = token(statement);
    if (first.kind != Token::kDirective) {
      const Token& name = token(first.kind == '?' || first.kind == '!' ? statement + 1 : statement);
      names_.try_emplace(std::string(name.text), rules_.add_rule(place_in(text_, name.at)));
    } else if (first.text == "%import") {
      read_import(statement + 1);
    } else if (first.text == "%declare") {
      fail(first.at, "%declare needs a lexer: define the terminal");
    }
  }

  /// common.INT, common.WS -> SPACE, common (INT, WS)
  void read_import(size_t at) {
    for (; token(at).kind != Token::kNewline; ++at) {
      const Token& name = token(at);
      const bool is_library = token(at + 1).kind == '.' || token(at + 1).kind == '(';
      if (name.kind != Token::kName || is_library) {
        continue;
      }
      const auto* known = std::ranges::find(kCommon, name.text, &Common::name);
      if (known == kCommon.end()) {
        fail(name.at, fmt::format("{} is not in the library of common terminals: define it",
                                  name.text.substr(0, 64)));
        return;
      }
      const RuleId rule = rules_.add_rule(place_in(text_, name.at));
      rules_.set_body(rule, add_pattern(rules_, known->pattern, CharacterForm::kPlain));
      std::string_view called = name.text;
      if (token(at + 1).kind == Token::kArrow && token(at + 2).kind == Token::kName) {
        called = token(at + 2).text;
        at += 2;
      }
      names_.try_emplace(std::string(called), rule);
    }
  }

  void read_ignored() {
    std::vector<ExpressionId> ignored;
    for (const size_t statement : words_.statements) {
      if (token(statement).text == "%ignore") {
        next_ = statement + 1;
        in_terminal_ = true;
        ignored.push_back(alternatives());
      }
    }
    if (!ignored.empty()) {
      ignored_ = rules_.repeat(rules_.alternate(std::move(ignored)), 0, kNoLimit);
    }
  }

  void read_definition(size_t statement) {
    next_ = statement;
    if (current().kind == '?' || current().kind == '!') {
      ++next_;
    }
    const std::string_view name = current().text;
    in_terminal_ = name.front() >= 'A' && name.front() <= 'Z';
    const RuleId rule = names_.at(name);
    const LarkAttributes attributes = read_attributes();
    if (refusal_) {
      return;
    }
    ++next_;
    rules_.set_body(rule,
                    attributes.lazy || attributes.until ? lazy_text(attributes) : alternatives());
  }

  /// Behind a name: [capture, stop="…"], up to the colon.
  LarkAttributes read_attributes() {
    LarkAttributes out;
    for (++next_; current().kind != ':'; ++next_) {
      const Token& name = current();
      const char before = token(next_ - 1).kind;
      if (name.kind != Token::kName || (before != '[' && before != ',')) {
        continue;
      }
      const bool has_value = token(next_ + 1).kind == '=';
      const Token& value = token(next_ + 2);
      if (name.text == "lazy") {
        out.lazy = true;
      } else if ((name.text == "stop" || name.text == "suffix") && has_value) {
        if (value.kind != Token::kString || value.text.ends_with('i') || value.text.size() < 3 ||
            out.until) {
          fail(name.at, fmt::format("{} is enforced with one text in quotes only", name.text));
          return {};
        }
        out.until = unescape_text(value.text.substr(1, value.text.size() - 2));
      } else if (name.text != "capture" && name.text != "temperature") {
        fail(name.at, fmt::format("the attribute {} is not enforced: leave it out",
                                  name.text.substr(0, 64)));
        return {};
      }
    }
    return out;
  }

  /// Text up to the first occurrence of what ends it: /.*/ with stop or suffix, a lazy /.*end/.
  ExpressionId lazy_text(const LarkAttributes& attributes) {
    const Token& here = current();
    const bool alone = here.kind == Token::kRegex && token(next_ + 1).kind == Token::kNewline;
    if (!alone) {
      return fail(here.at, "a lazy rule is enforced where it is one regular expression only");
    }
    ++next_;
    const size_t end = here.text.rfind('/');
    const auto tree = parse_regex(here.text.substr(1, end - 1));
    const bool dotall = here.text.substr(end + 1).contains('s');
    std::string last = attributes.until.value_or("");
    if (!tree.has_value() || !is_anything_then(*tree, last)) {
      return fail(here.at, "a lazy rule is enforced for /.*/ and /.*text/ only");
    }
    std::vector<std::string> blockers{last};
    if (!dotall) {
      blockers.emplace_back("\n");
    }
    return add_text_until(rules_, blockers, 0);
  }

  /// Whether a pattern is .*, or .* and a text, which goes before `last`.
  static bool is_anything_then(const RegexTree& tree, std::string& last) {
    const RegexNode& root = tree.nodes[tree.root];
    const std::vector<uint32_t> parts =
        root.kind == RegexNode::Kind::kSequence ? root.children : std::vector{tree.root};
    const RegexNode& first = tree.nodes[parts.front()];
    if (first.kind != RegexNode::Kind::kRepeat || first.min != 0 || first.max != kUnbounded ||
        tree.nodes[first.children.front()].kind != RegexNode::Kind::kAny) {
      return false;
    }
    std::string text;
    for (size_t i = 1; i < parts.size(); ++i) {
      const RegexNode& node = tree.nodes[parts[i]];
      if (node.kind != RegexNode::Kind::kLiteral) {
        return false;
      }
      text::append_utf8(text, node.code);
    }
    last.insert(0, text);
    return !last.empty();
  }

  bool statement_begins(size_t at) const {
    return std::ranges::binary_search(words_.statements, at);
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
  ExpressionId alternatives() {
    std::vector<ExpressionId> out{sequence()};
    while (current().kind == '|') {
      ++next_;
      out.push_back(sequence());
    }
    return rules_.alternate(std::move(out));
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
  ExpressionId sequence() {
    std::vector<ExpressionId> out;
    while (true) {
      while (current().kind == Token::kNewline && token(next_ + 1).kind != Token::kEnd &&
             !statement_begins(next_ + 1)) {
        ++next_;
      }
      switch (current().kind) {
        case Token::kEnd:
        case Token::kNewline:
        case '|':
        case ')':
        case ']':
          return out.empty() ? rules_.empty() : rules_.sequence(std::move(out));
        case Token::kArrow:
          next_ += 2;
          break;
        case '*':
          out.back() = rules_.repeat(out.back(), 0, kNoLimit);
          ++next_;
          break;
        case '+':
          out.back() = rules_.repeat(out.back(), 1, kNoLimit);
          ++next_;
          break;
        case '?':
          out.back() = rules_.optional(out.back());
          ++next_;
          break;
        case '~':
          out.back() = count(out.back());
          break;
        case '{':
          out.back() = bounds(out.back());
          break;
        default:
          out.push_back(item());
      }
    }
  }

  /// {n}, {n,}, {,n}, {m,n}
  ExpressionId bounds(ExpressionId child) {
    const Token& here = current();
    ++next_;
    const auto number = [](std::string_view text) {
      uint32_t value = 0;
      const size_t begin = std::min(text.find_first_of("0123456789"), text.size());
      std::from_chars(text.data() + begin, text.data() + text.size(), value);
      return value;
    };
    const std::string_view inside = here.text.substr(1, here.text.size() - 2);
    const size_t comma = inside.find(',');
    const uint32_t least = number(inside.substr(0, comma));
    const bool open = comma != std::string_view::npos &&
                      inside.substr(comma).find_first_of("0123456789") == std::string_view::npos;
    const uint32_t most = comma == std::string_view::npos ? least : number(inside.substr(comma));
    return repeat(child, least, open ? kNoLimit : most, here.at);
  }

  ExpressionId repeat(ExpressionId child, uint32_t least, uint32_t most, size_t at) {
    constexpr uint32_t kTimesMax = 1'000'000;
    const bool good =
        least <= kTimesMax && (most == kNoLimit || most <= kTimesMax) && least <= most;
    return good ? rules_.repeat(child, least, most)
                : fail(at, "the repetition's numbers must be below 1000000, the smaller first");
  }

  ExpressionId count(ExpressionId child) {
    const size_t at = current().at;
    ++next_;
    const auto number = [this] {
      uint32_t value = UINT32_MAX;
      const std::string_view digits = current().text;
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      ++next_;
      return value;
    };
    const uint32_t least = number();
    uint32_t most = least;
    if (current().kind == Token::kRange) {
      ++next_;
      most = number();
    }
    return most == kNoLimit ? repeat(child, 1, 0, at) : repeat(child, least, most, at);
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kGrammarDepthMax
  ExpressionId item() {
    const Token& here = current();
    switch (here.kind) {
      case Token::kName: {
        ++next_;
        const auto known = names_.find(here.text);
        if (known == names_.end()) {
          return fail(here.at, fmt::format("{} is not defined", here.text));
        }
        const bool is_rule = here.text.front() < 'A' || here.text.front() > 'Z';
        const ExpressionId out = rules_.rule(known->second);
        return is_rule ? out : terminal(out);
      }
      case Token::kString:
        return terminal(string());
      case Token::kRegex:
        return terminal(regex());
      case Token::kSpecial:
        return terminal(special());
      case Token::kDirective:
        return terminal(directive());
      default:
        break;
    }
    const bool optional = here.kind == '[';
    ++next_;
    const ExpressionId inside = alternatives();
    ++next_;
    return optional ? rules_.optional(inside) : inside;
  }

  /// What is ignored may follow every terminal of a rule.
  ExpressionId terminal(ExpressionId text) {
    return in_terminal_ || !ignored_ ? text : rules_.sequence({text, *ignored_});
  }

  ExpressionId string() {
    const auto inside = [](std::string_view quoted) {
      return quoted.substr(1, quoted.rfind('"') - 1);
    };
    const std::string_view text = current().text;
    const std::string first = unescape_text(inside(text));
    ++next_;
    if (current().kind == Token::kRange) {
      ++next_;
      const size_t at = current().at;
      const std::string last = unescape_text(inside(current().text));
      ++next_;
      const Character low = decode_utf8(first);
      const Character high = decode_utf8(last);
      if (low.bytes == 0 || low.bytes != first.size() || high.bytes == 0 ||
          high.bytes != last.size() || low.code > high.code) {
        return fail(at, "a range goes from one character to a later one");
      }
      return rules_.char_class({{low.code, high.code}});
    }
    if (!text.ends_with('i')) {
      return rules_.literal(first);
    }
    std::vector<ExpressionId> out;
    for (std::string_view rest = first; !rest.empty();) {
      const Character character = decode_utf8(rest);
      std::vector<CodeRange> ranges{{character.code, character.code}};
      if ((character.code | 0x20U) >= 'a' && (character.code | 0x20U) <= 'z') {
        ranges.emplace_back(character.code ^ 0x20U, character.code ^ 0x20U);
      }
      out.push_back(rules_.char_class(normalize_ranges(std::move(ranges), false)));
      rest.remove_prefix(std::max(character.bytes, 1U));
    }
    return out.empty() ? rules_.empty() : rules_.sequence(std::move(out));
  }

  ExpressionId regex() {
    const Token& here = current();
    ++next_;
    const size_t end = here.text.rfind('/');
    RegexFlags flags;
    for (const char flag : here.text.substr(end + 1)) {
      flags.ignore_case = flags.ignore_case || flag == 'i';
      flags.dot_matches_newline = flags.dot_matches_newline || flag == 's';
      if (flag == 'x') {
        return fail(here.at, "the flag x is not supported: write the expression without spaces");
      }
    }
    return add_pattern(rules_, here.text.substr(1, end - 1), CharacterForm::kPlain, flags);
  }

  /// <|end|>, <[128000]>, <[1,2,10-20]>
  ExpressionId special() {
    const Token& here = current();
    ++next_;
    if (!here.text.starts_with("<[")) {
      return rules_.tokens({{.text = std::string(here.text)}}, false);
    }
    std::vector<TokenName> ids;
    const bool negated = here.text.starts_with("<[^");
    std::string_view list = here.text.substr(negated ? 3 : 2);
    list = list.substr(0, list.find(']'));
    while (!list.empty()) {
      TokenId first = 0;
      const auto low = std::from_chars(list.data(), list.data() + list.size(), first);
      list.remove_prefix(static_cast<size_t>(low.ptr - list.data()));
      TokenId last = first;
      if (list.starts_with('-')) {
        const auto high = std::from_chars(list.data() + 1, list.data() + list.size(), last);
        list.remove_prefix(static_cast<size_t>(high.ptr - list.data()));
      }
      if (low.ec != std::errc() || last < first || last - first > 100'000 ||
          (!list.empty() && !list.starts_with(','))) {
        return fail(here.at, "a list of token ids is <[1,2,10-20]>");
      }
      for (TokenId id = first; id <= last; ++id) {
        ids.push_back({.text = {}, .id = id});
      }
      list.remove_prefix(list.empty() ? 0 : 1);
    }
    return rules_.tokens(std::move(ids), negated);
  }

  ExpressionId directive() {
    const Token& here = current();
    const Token& body = token(next_ + 1);
    next_ += 2;
    if (here.text != "%json") {
      return fail(here.at, fmt::format("{} is not supported here", here.text));
    }
    const std::string_view schema = body.text;
    if (auto check = check_json_schema(schema); !check.has_value()) {
      return fail(body.at, check.error().text);
    }
    auto tree = JsonTree::parse(schema);
    auto out = tree.has_value() ? add_schema(rules_, *tree, spelling_)
                                : Outcome<ExpressionId>(std::move(tree.error()));
    return out.has_value() ? *out : fail(body.at, out.error().text);
  }

  RuleSet& rules_;
  std::string_view text_;
  LarkText words_;
  const JsonSpelling& spelling_;
  size_t next_ = 0;
  bool in_terminal_ = false;
  std::optional<ExpressionId> ignored_;
  FlatMap<std::string, RuleId> names_;
  std::optional<Refusal> refusal_;
};

}  // namespace

Outcome<ExpressionId> add_lark(RuleSet& rules, std::string_view text,
                               const JsonSpelling& spelling) {
  STATOR_TRY(LarkText words, parse_lark(text));
  return LarkRules(rules, text, std::move(words), spelling).read();
}

}  // namespace stator::structured
