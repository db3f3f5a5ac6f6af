// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/rule_set.h"

#include <fmt/format.h>

#include "stator/core/assert.h"
#include "stator/structured/detail/json_tree.h"
#include "stator/structured/detail/rule_builders.h"

namespace stator::structured {
namespace {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace

ExpressionId RuleSet::add(Expression expression) {
  if (expressions_.size() >= kExpressionsMax) {
    overflown_ = true;
    return 0;
  }
  expressions_.push_back(std::move(expression));
  return static_cast<ExpressionId>(expressions_.size() - 1);
}

ExpressionId RuleSet::literal(std::string_view bytes) {
  return bytes.empty() ? empty()
                       : add({.kind = Expression::Kind::kLiteral, .bytes = std::string(bytes)});
}

ExpressionId RuleSet::char_class(std::vector<std::pair<uint32_t, uint32_t>> ranges) {
  return ranges.empty() ? nothing()
                        : add({.kind = Expression::Kind::kClass, .ranges = std::move(ranges)});
}

ExpressionId RuleSet::sequence(std::vector<ExpressionId> children) {
  return children.size() == 1
             ? children.front()
             : add({.kind = Expression::Kind::kSequence, .children = std::move(children)});
}

ExpressionId RuleSet::alternate(std::vector<ExpressionId> children) {
  return children.size() == 1
             ? children.front()
             : add({.kind = Expression::Kind::kAlternate, .children = std::move(children)});
}

/// Long repetitions are cut into pieces of about √n: rules that are called keep the automaton small
/// where writing them out would not.
ExpressionId RuleSet::repeat(ExpressionId child, uint32_t min, uint32_t max) {
  constexpr uint32_t kWrittenOutMax = 2048;
  const auto plain = [&](ExpressionId of, uint32_t least, uint32_t most) {
    return add({.kind = Expression::Kind::kRepeat, .min = least, .max = most, .children = {of}});
  };
  const uint32_t largest = max == kNoLimit ? min : max;
  if (largest <= kWrittenOutMax) {
    return plain(child, min, max);
  }
  uint32_t piece = 32;
  while (uint64_t{piece} * piece < largest) {
    piece *= 2;
  }
  const RuleId whole = add_rule("a repetition");
  const RuleId part = add_rule("a repetition");
  set_body(whole, plain(child, piece, piece));
  set_body(part, plain(child, 0, piece - 1));
  std::vector<ExpressionId> out;
  if (min > 0) {
    out.push_back(plain(rule(whole), min / piece, min / piece));
    out.push_back(plain(child, min % piece, min % piece));
  }
  if (max == kNoLimit) {
    out.push_back(plain(child, 0, kNoLimit));
    return sequence(std::move(out));
  }
  const uint32_t rest = max - min;
  RuleGraph graph;
  for (uint32_t i = 0; i <= rest / piece; ++i) {
    const uint32_t next = graph.add_state();
    const uint32_t end = graph.add_state();
    if (i < rest / piece) {
      graph.add(next - (i == 0 ? 1 : 2), next, rule(whole));
      graph.add(next - (i == 0 ? 1 : 2), end, rule(part));
    } else {
      graph.add(next - (i == 0 ? 1 : 2), end, plain(child, 0, rest % piece));
    }
    graph.accepting.push_back(end);
  }
  out.push_back(this->graph(std::move(graph)));
  return sequence(std::move(out));
}

ExpressionId RuleSet::tokens(std::vector<TokenName> tokens, bool negated) {
  return add({.kind = Expression::Kind::kTokens, .negated = negated, .tokens = std::move(tokens)});
}

ExpressionId RuleSet::graph(RuleGraph graph) {
  graphs_.push_back(std::move(graph));
  return add(
      {.kind = Expression::Kind::kGraph, .index = static_cast<uint32_t>(graphs_.size() - 1)});
}

RuleId RuleSet::add_rule(std::string place) {
  if (rules_.size() >= kCompiledRulesMax) {
    overflown_ = true;
    return 0;
  }
  rules_.push_back({.place = std::move(place)});
  return static_cast<RuleId>(rules_.size() - 1);
}

Outcome<RuleSet> compile_rules(const StructuredOutput& output) {
  const JsonSpelling spelling{.any_whitespace = !output.disable_any_whitespace,
                              .whitespace_pattern = output.whitespace_pattern};
  RuleSet rules;
  const RuleId root = rules.add_rule("the whole");
  rules.set_root(root);
  auto body = std::visit(Overloaded{
                             [&](const JsonSchema& schema) -> Outcome<ExpressionId> {
                               STATOR_TRY(const JsonTree tree, JsonTree::parse(schema.text));
                               return add_schema(rules, tree, spelling);
                             },
                             [&](const Regex& regex) -> Outcome<ExpressionId> {
                               return add_pattern(rules, regex.pattern, CharacterForm::kPlain);
                             },
                             [&](const Choice& choice) -> Outcome<ExpressionId> {
                               std::vector<ExpressionId> options;
                               for (const std::string& option : choice.options) {
                                 options.push_back(rules.literal(option));
                               }
                               return rules.alternate(std::move(options));
                             },
                             [&](const Grammar& grammar) -> Outcome<ExpressionId> {
                               return grammar.syntax == Grammar::Syntax::kEbnf
                                          ? add_ebnf(rules, grammar.text)
                                          : add_lark(rules, grammar.text, spelling);
                             },
                             [&](const JsonObject&) -> Outcome<ExpressionId> {
                               return add_any_object(rules, spelling);
                             },
                             [&](const StructuralTag& tag) -> Outcome<ExpressionId> {
                               return add_structural_tag(rules, tag.text, spelling);
                             },
                         },
                         output.constraint);
  if (body.has_value()) {
    rules.set_body(root, *body);
    if (auto good = finish_rules(rules); good.has_value()) {
      return rules;
    } else {
      return std::move(good.error()).in_field(output.field);
    }
  }
  return std::move(body.error()).in_field(output.field);
}

}  // namespace stator::structured
