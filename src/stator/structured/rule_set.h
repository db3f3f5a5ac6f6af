// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/structured/refusal.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

/// Index of an expression, a rule or a graph in its RuleSet.
using ExpressionId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kNoLimit = UINT32_MAX;          ///< of a repetition's maximum
inline constexpr size_t kExpressionsMax = 1U << 20U;      ///< of one grammar
inline constexpr size_t kCompiledRulesMax = 64U * 1024U;  ///< of one grammar

/// A token named by its id or, `id` unset, by its text ("<|end|>").
struct TokenName {
  std::string text;
  TokenId id = 0;
};

/// A finite automaton whose edges read one byte of a range, or a whole expression.
struct RuleGraph {
  struct Edge {
    uint32_t from = 0;
    uint32_t to = 0;
    uint8_t first = 0;  ///< a byte from `first` to `last`, unless …
    uint8_t last = 0;
    ExpressionId expression = UINT32_MAX;  ///< … this is set: text of it
  };
  uint32_t states = 1;  ///< 0 is where it begins
  std::vector<Edge> edges;
  std::vector<uint32_t> accepting;

  uint32_t add_state() { return states++; }
  void add_bytes(uint32_t from, uint32_t to, uint8_t first, uint8_t last) {
    edges.push_back({.from = from, .to = to, .first = first, .last = last});
  }
  void add(uint32_t from, uint32_t to, ExpressionId expression) {
    edges.push_back({.from = from, .to = to, .expression = expression});
  }
};

struct Expression {
  enum class Kind : uint8_t {
    kEmpty,      ///< the empty text
    kLiteral,    ///< these bytes
    kClass,      ///< one character of `ranges`, in UTF-8
    kSequence,   ///< `children` one after another
    kAlternate,  ///< one of `children`; without children nothing fits
    kRepeat,     ///< the only child, `min` to `max` times
    kRule,       ///< text of rule `index`
    kTokens,     ///< one token: of `tokens`, or with `negated` none of them
    kGraph,      ///< text of graph `index`
  };
  Kind kind = Kind::kEmpty;
  bool negated = false;
  uint32_t index = 0;
  uint32_t min = 0;
  uint32_t max = 0;
  std::string bytes;
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  std::vector<ExpressionId> children;
  std::vector<TokenName> tokens;
};

struct Rule {
  std::string place;  ///< for messages: "line 3, column 1", "#/properties/a"
  ExpressionId body = 0;
};

/// A constraint as a context-free grammar over bytes: what decoders follow byte by byte
/// (guided/automaton.h). Rules may refer to each other in any way but left recursion, which
/// compile_rules() has rewritten, and each can end.
class RuleSet {
 public:
  const std::vector<Expression>& expressions() const { return expressions_; }
  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<RuleGraph>& graphs() const { return graphs_; }
  const Expression& operator[](ExpressionId id) const { return expressions_[id]; }
  RuleId root() const { return root_; }
  /// More expressions or rules were added than there may be; what came later is missing.
  bool overflown() const { return overflown_; }

  ExpressionId empty() { return add({}); }
  ExpressionId nothing() { return add({.kind = Expression::Kind::kAlternate}); }
  ExpressionId literal(std::string_view bytes);
  ExpressionId char_class(std::vector<std::pair<uint32_t, uint32_t>> ranges);
  ExpressionId sequence(std::vector<ExpressionId> children);
  ExpressionId alternate(std::vector<ExpressionId> children);
  ExpressionId repeat(ExpressionId child, uint32_t min, uint32_t max);
  ExpressionId optional(ExpressionId child) { return repeat(child, 0, 1); }
  ExpressionId rule(RuleId rule) { return add({.kind = Expression::Kind::kRule, .index = rule}); }
  ExpressionId tokens(std::vector<TokenName> tokens, bool negated);
  ExpressionId graph(RuleGraph graph);

  /// A rule without a body yet.
  RuleId add_rule(std::string place);
  void set_body(RuleId rule, ExpressionId body) { rules_[rule].body = body; }
  void set_root(RuleId rule) { root_ = rule; }

 private:
  ExpressionId add(Expression expression);

  std::vector<Expression> expressions_;
  std::vector<Rule> rules_;
  std::vector<RuleGraph> graphs_;
  RuleId root_ = 0;
  bool overflown_ = false;
};

/// The grammar of a checked constraint. Refused, with the place: grammars that can never end or
/// would need more than kExpressionsMax expressions (kTooLarge), what no decoder of ours enforces
/// (kUnsupported). Pure; time and memory are bounded by the two limits.
///
/// JSON is written with at most one space or one line feed with indentation between its tokens,
/// unless the constraint says otherwise; properties come in the order of the schema.
Outcome<RuleSet> compile_rules(const StructuredOutput& output);

}  // namespace stator::structured
