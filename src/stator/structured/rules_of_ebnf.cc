// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/core/flat_map.h"
#include "stator/structured/detail/grammar_scan.h"
#include "stator/structured/detail/grammar_text.h"
#include "stator/structured/detail/rule_builders.h"
#include "stator/structured/grammar.h"
#include "stator/text/utf8.h"

namespace stator::structured {
namespace {

uint32_t hex_value(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits) {
    value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

/// Reads the words that parse_ebnf accepted.
class EbnfRules {
 public:
  EbnfRules(RuleSet& rules, std::string_view text, std::vector<GrammarToken> tokens)
      : rules_(rules), text_(text), tokens_(std::move(tokens)) {}

  ExpressionId read() {
    for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (tokens_[i + 1].kind == GrammarToken::kDefine) {
        names_.emplace(std::string(tokens_[i].text),
                       rules_.add_rule(place_in(text_, tokens_[i].at)));
      }
    }
    while (current().kind != GrammarToken::kEnd) {
      const RuleId rule = names_.at(current().text);
      next_ += 2;
      rules_.set_body(rule, alternatives());
    }
    return rules_.rule(names_.at("root"));
  }

 private:
  const GrammarToken& current() const { return tokens_[next_]; }

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
      const GrammarToken& token = current();
      switch (token.kind) {
        case GrammarToken::kName:
          if (tokens_[next_ + 1].kind == GrammarToken::kDefine) {
            return together(std::move(out));
          }
          out.push_back(rules_.rule(names_.at(token.text)));
          break;
        case GrammarToken::kString:
          out.push_back(rules_.literal(unescape_text(token.text.substr(1, token.text.size() - 2))));
          break;
        case GrammarToken::kClass:
          out.push_back(char_class(token.text.substr(1, token.text.size() - 2)));
          break;
        case '(':
          ++next_;
          out.push_back(alternatives());
          break;  // at ')'
        case '*':
          out.back() = rules_.repeat(out.back(), 0, kNoLimit);
          break;
        case '+':
          out.back() = rules_.repeat(out.back(), 1, kNoLimit);
          break;
        case '?':
          out.back() = rules_.optional(out.back());
          break;
        case '{':
          out.back() = bounds(out.back(), token.text);
          break;
        case '.':
          out.push_back(rules_.char_class(normalize_ranges({}, true)));
          break;
        default:
          return together(std::move(out));
      }
      ++next_;
    }
  }

  ExpressionId together(std::vector<ExpressionId> parts) {
    return parts.empty() ? rules_.empty() : rules_.sequence(std::move(parts));
  }

  ExpressionId bounds(ExpressionId child, std::string_view text) {
    std::string inside(text.substr(1, text.size() - 2));
    std::erase_if(inside, [](char c) { return c == ' ' || c == '\t'; });
    const auto number = [](std::string_view digits) {
      uint32_t value = 0;
      for (const char c : digits) {
        value = value * 10 + static_cast<uint32_t>(c - '0');
      }
      return value;
    };
    const size_t comma = inside.find(',');
    const uint32_t least = number(std::string_view(inside).substr(0, comma));
    if (comma == std::string_view::npos) {
      return rules_.repeat(child, least, least);
    }
    const std::string_view high = std::string_view(inside).substr(comma + 1);
    return rules_.repeat(child, least, high.empty() ? kNoLimit : number(high));
  }

  ExpressionId char_class(std::string_view inside) {
    const bool negate = inside.starts_with('^');
    inside.remove_prefix(negate ? 1 : 0);
    std::vector<CodeRange> ranges;
    while (!inside.empty()) {
      const uint32_t first = take_character(inside);
      uint32_t last = first;
      if (inside.size() > 1 && inside.front() == '-') {
        inside.remove_prefix(1);
        last = take_character(inside);
      }
      ranges.emplace_back(std::min(first, last), std::max(first, last));
    }
    return rules_.char_class(normalize_ranges(std::move(ranges), negate));
  }

  RuleSet& rules_;
  std::string_view text_;
  std::vector<GrammarToken> tokens_;
  size_t next_ = 0;
  FlatMap<std::string, RuleId> names_;
};

}  // namespace

uint32_t take_character(std::string_view& text) {
  if (text.front() != '\\' || text.size() < 2) {
    const Character character = decode_utf8(text);
    text.remove_prefix(std::max(character.bytes, 1U));
    return character.code;
  }
  const char letter = text[1];
  const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
  if (digits > 0) {
    const uint32_t code = hex_value(text.substr(2, digits));
    text.remove_prefix(2 + digits);
    return code;
  }
  text.remove_prefix(2);
  constexpr std::string_view kLetters = "nrtfvab0e";
  constexpr std::string_view kValues("\n\r\t\f\v\a\b\0\x1B", 9);
  const size_t known = kLetters.find(letter);
  return known == std::string_view::npos ? static_cast<unsigned char>(letter)
                                         : static_cast<unsigned char>(kValues[known]);
}

std::string unescape_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    text::append_utf8(out, take_character(text));
  }
  return out;
}

Outcome<ExpressionId> add_ebnf(RuleSet& rules, std::string_view text) {
  STATOR_TRY(std::vector<GrammarToken> tokens, parse_ebnf(text));
  return EbnfRules(rules, text, std::move(tokens)).read();
}

}  // namespace stator::structured
