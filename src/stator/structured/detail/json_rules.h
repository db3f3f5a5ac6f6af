// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "stator/structured/detail/rule_builders.h"

namespace stator::structured {

/// The pieces every JSON grammar shares.
class JsonRules {
 public:
  JsonRules(RuleSet& rules, const JsonSpelling& spelling) : rules_(rules) {
    if (!spelling.any_whitespace) {
      space_ = rules.empty();
    } else if (!spelling.whitespace_pattern.empty()) {
      space_ = add_pattern(rules, spelling.whitespace_pattern, CharacterForm::kPlain);
    } else {
      // Enough to indent by; bounded, so that no model walks away in blanks.
      space_ = add_pattern(rules, "( |\\n[ \\t]{0,32})?", CharacterForm::kPlain);
    }
    character_ =
        add_pattern(rules,
                    R"([^"\\\x00-\x1f\x7f]|\\(["\\/bfnrt]|u([0-9a-cA-CefEF][0-9a-fA-F]{3}|)"
                    R"([dD][0-7][0-9a-fA-F]{2}|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F])"
                    R"([0-9a-fA-F]{2})))",
                    CharacterForm::kPlain);
    string_ = make_rule("a string", quoted(rules.repeat(character_, 0, kNoLimit)));
    key_ = make_rule(
        "a key", quoted(add_pattern(rules, R"([^"\\\x00-\x1f\x7f]{1,64})", CharacterForm::kPlain)));
  }

  ExpressionId space() const { return space_; }
  ExpressionId character() const { return character_; }
  ExpressionId string() const { return string_; }
  ExpressionId key() const { return key_; }
  ExpressionId quoted(ExpressionId inside) {
    return rules_.sequence({rules_.literal("\""), inside, rules_.literal("\"")});
  }
  ExpressionId make_rule(std::string place, ExpressionId body) {
    const RuleId rule = rules_.add_rule(std::move(place));
    rules_.set_body(rule, body);
    return rules_.rule(rule);
  }
  ExpressionId comma() { return rules_.sequence({rules_.literal(","), space_}); }
  ExpressionId member(ExpressionId key, ExpressionId value) {
    return rules_.sequence({key, rules_.literal(":"), space_, value});
  }
  ExpressionId in_braces(char open, ExpressionId inside, char close) {
    return rules_.sequence(
        {rules_.literal({&open, 1}), space_, inside, rules_.literal({&close, 1})});
  }

  ExpressionId number() {
    return number_ ? *number_ : *(number_ = make_rule("a number", *add_number(rules_, {})));
  }
  ExpressionId integer() {
    return integer_ ? *integer_
                    : *(integer_ = make_rule("an integer", *add_number(rules_, {.whole = true})));
  }
  ExpressionId any_value() {
    make_any();
    return *any_value_;
  }
  ExpressionId any_object() {
    make_any();
    return *any_object_;
  }
  ExpressionId any_array() {
    make_any();
    return *any_array_;
  }

 private:
  /// part (, part)* or nothing; the space before the closing bracket included.
  ExpressionId list_of(ExpressionId part) {
    return rules_.optional(rules_.sequence(
        {part, rules_.repeat(rules_.sequence({comma(), part}), 0, kNoLimit), space_}));
  }
  void make_any() {
    if (any_value_) {
      return;
    }
    const RuleId value = rules_.add_rule("any value");
    any_value_ = rules_.rule(value);
    any_object_ = make_rule("any object", in_braces('{', list_of(member(key_, *any_value_)), '}'));
    any_array_ = make_rule("any array", in_braces('[', list_of(*any_value_), ']'));
    rules_.set_body(value, rules_.alternate({*any_object_, *any_array_, string_, number(),
                                             rules_.literal("true"), rules_.literal("false"),
                                             rules_.literal("null")}));
  }

  RuleSet& rules_;
  ExpressionId space_ = 0;
  ExpressionId character_ = 0;
  ExpressionId string_ = 0;
  ExpressionId key_ = 0;
  std::optional<ExpressionId> number_;
  std::optional<ExpressionId> integer_;
  std::optional<ExpressionId> any_value_;
  std::optional<ExpressionId> any_object_;
  std::optional<ExpressionId> any_array_;
};

}  // namespace stator::structured
