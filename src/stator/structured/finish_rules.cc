// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "stator/structured/detail/rule_builders.h"

namespace stator::structured {
namespace {

using Kind = Expression::Kind;

constexpr size_t kAlternativesMax = 20'000;  // of one rule while its left recursion is rewritten

/// Facts about rules that need each other, found by going over all of them until nothing changes.
/// Expressions come after their parts, so that one pass from the front settles an expression.
class RuleFacts {
 public:
  explicit RuleFacts(const RuleSet& rules)
      : rules_(rules),
        ends_(rules.expressions().size(), false),
        empty_(rules.expressions().size(), false),
        visited_(rules.expressions().size(), 0) {
    // A rule's body may come before what refers to it or after: as many passes as rules are deep.
    for (bool changed = true; changed;) {
      changed = false;
      for (ExpressionId id = 0; id < ends_.size(); ++id) {
        if (!ends_[id] && can_end(rules[id])) {
          ends_[id] = changed = true;
        }
        if (!empty_[id] && can_be_empty(rules[id])) {
          empty_[id] = changed = true;
        }
      }
    }
  }

  bool ends(ExpressionId id) const { return ends_[id]; }
  bool empty(ExpressionId id) const { return empty_[id]; }

  /// Rules that may stand at the very beginning of a text of `id`.
  void add_first_rules(ExpressionId id, std::vector<RuleId>& out) {
    std::vector<ExpressionId> open{id};
    ++visit_;
    while (!open.empty()) {
      const ExpressionId at = open.back();
      open.pop_back();
      if (std::exchange(visited_[at], visit_) == visit_) {
        continue;
      }
      const Expression& expression = rules_[at];
      switch (expression.kind) {
        case Kind::kRule:
          out.push_back(expression.index);
          break;
        case Kind::kSequence:
          for (const ExpressionId child : expression.children) {
            open.push_back(child);
            if (!empty_[child]) {
              break;
            }
          }
          break;
        case Kind::kAlternate:
        case Kind::kRepeat:
          open.insert(open.end(), expression.children.begin(), expression.children.end());
          break;
        case Kind::kGraph:
          add_first_of_graph(rules_.graphs()[expression.index], open);
          break;
        default:
          break;
      }
    }
  }

 private:
  bool can_end(const Expression& expression) const {
    const auto child_ends = [this](ExpressionId child) { return ends_[child]; };
    switch (expression.kind) {
      case Kind::kSequence:
        return std::ranges::all_of(expression.children, child_ends);
      case Kind::kAlternate:
        return std::ranges::any_of(expression.children, child_ends);
      case Kind::kRepeat:
        return expression.min == 0 || child_ends(expression.children.front());
      case Kind::kRule:
        return ends_[rules_.rules()[expression.index].body];
      case Kind::kGraph:
        return reaches_end(rules_.graphs()[expression.index], ends_, true);
      default:
        return true;
    }
  }
  bool can_be_empty(const Expression& expression) const {
    const auto child_empty = [this](ExpressionId child) { return empty_[child]; };
    switch (expression.kind) {
      case Kind::kEmpty:
        return true;
      case Kind::kSequence:
        return std::ranges::all_of(expression.children, child_empty);
      case Kind::kAlternate:
        return std::ranges::any_of(expression.children, child_empty);
      case Kind::kRepeat:
        return expression.min == 0 || child_empty(expression.children.front());
      case Kind::kRule:
        return empty_[rules_.rules()[expression.index].body];
      case Kind::kGraph:
        return reaches_end(rules_.graphs()[expression.index], empty_, false);
      default:
        return false;
    }
  }

  /// Whether the end is reached over bytes (where they count) and expressions of `passable`.
  static bool reaches_end(const RuleGraph& graph, const std::vector<bool>& passable, bool bytes) {
    std::vector<bool> reached(graph.states, false);
    reached[0] = true;
    for (bool changed = true; changed;) {
      changed = false;
      for (const RuleGraph::Edge& edge : graph.edges) {
        const bool open = edge.expression == UINT32_MAX ? bytes : passable[edge.expression];
        if (open && reached[edge.from] && !reached[edge.to]) {
          reached[edge.to] = changed = true;
        }
      }
    }
    return std::ranges::any_of(graph.accepting, [&](uint32_t state) { return reached[state]; });
  }

  void add_first_of_graph(const RuleGraph& graph, std::vector<ExpressionId>& open) const {
    std::vector<bool> reached(graph.states, false);
    reached[0] = true;
    for (bool changed = true; changed;) {
      changed = false;
      for (const RuleGraph::Edge& edge : graph.edges) {
        if (edge.expression != UINT32_MAX && reached[edge.from] && !reached[edge.to] &&
            empty_[edge.expression]) {
          reached[edge.to] = changed = true;
        }
      }
    }
    for (const RuleGraph::Edge& edge : graph.edges) {
      if (edge.expression != UINT32_MAX && reached[edge.from]) {
        open.push_back(edge.expression);
      }
    }
  }

  const RuleSet& rules_;
  std::vector<bool> ends_;
  std::vector<bool> empty_;
  std::vector<uint32_t> visited_;  // the last visit of each expression
  uint32_t visit_ = 0;
};

/// Groups of rules that begin with each other: the strongly connected components of "may begin
/// with" (Tarjan 1972), without recursion. Only those that are left-recursive.
class LeftRecursion {
 public:
  explicit LeftRecursion(const RuleSet& rules) {
    RuleFacts facts(rules);
    firsts_.resize(rules.rules().size());
    for (RuleId rule = 0; rule < firsts_.size(); ++rule) {
      facts.add_first_rules(rules.rules()[rule].body, firsts_[rule]);
    }
    order_.assign(firsts_.size(), 0);
    low_.assign(firsts_.size(), 0);
    on_stack_.assign(firsts_.size(), false);
    for (RuleId rule = 0; rule < firsts_.size(); ++rule) {
      if (order_[rule] == 0) {
        visit(rule);
      }
    }
  }
  const std::vector<std::vector<RuleId>>& groups() const { return groups_; }

 private:
  struct Step {
    RuleId rule;
    size_t next;
  };
  void enter(RuleId rule) {
    order_[rule] = low_[rule] = ++count_;
    stack_.push_back(rule);
    on_stack_[rule] = true;
    path_.push_back({rule, 0});
  }
  void visit(RuleId start) {
    enter(start);
    while (!path_.empty()) {
      Step& step = path_.back();
      const RuleId rule = step.rule;
      if (step.next < firsts_[rule].size()) {
        const RuleId first = firsts_[rule][step.next++];
        if (order_[first] == 0) {
          enter(first);
        } else if (on_stack_[first]) {
          low_[rule] = std::min(low_[rule], order_[first]);
        }
        continue;
      }
      path_.pop_back();
      if (!path_.empty()) {
        low_[path_.back().rule] = std::min(low_[path_.back().rule], low_[rule]);
      }
      if (low_[rule] == order_[rule]) {
        leave(rule);
      }
    }
  }
  void leave(RuleId rule) {
    std::vector<RuleId> group;
    while (true) {
      const RuleId member = stack_.back();
      stack_.pop_back();
      on_stack_[member] = false;
      group.push_back(member);
      if (member == rule) {
        break;
      }
    }
    const bool recursive =
        group.size() > 1 || std::ranges::find(firsts_[rule], rule) != firsts_[rule].end();
    if (recursive) {
      std::ranges::sort(group);
      groups_.push_back(std::move(group));
    }
  }

  std::vector<std::vector<RuleId>> firsts_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> low_;
  std::vector<bool> on_stack_;
  std::vector<RuleId> stack_;
  std::vector<Step> path_;
  uint32_t count_ = 0;
  std::vector<std::vector<RuleId>> groups_;
};

/// An alternative of a rule as what it begins with and what follows.
using Parts = std::vector<ExpressionId>;

/// Rewrites the rules of one group (Paull's algorithm): each may afterwards begin with later ones
/// only.
class LeftRecursionRemoval {
 public:
  explicit LeftRecursionRemoval(RuleSet& rules) : rules_(rules) {}

  Check rewrite(const std::vector<RuleId>& group) {
    for (size_t i = 0; i < group.size(); ++i) {
      std::vector<Parts> alternatives = open(rules_.rules()[group[i]].body);
      for (size_t j = 0; j < i; ++j) {
        alternatives = substitute(alternatives, group[j]);
      }
      if (alternatives.size() > kAlternativesMax || rules_.overflown()) {
        return too_deep(group[i]);
      }
      rules_.set_body(group[i], repeat_instead(alternatives, group[i]));
    }
    return {};
  }

  Refusal too_deep(RuleId rule) const {
    Refusal out = refuse_at(rules_.rules()[rule].place,
                            "the rule begins with itself in a way that cannot be rewritten: put "
                            "something before it, or write a repetition");
    return out;
  }

 private:
  /// Alternatives whose first part is no sequence or choice any more.
  std::vector<Parts> open(ExpressionId body) const {
    std::vector<Parts> out;
    std::vector<Parts> todo{{body}};
    while (!todo.empty() && out.size() + todo.size() <= kAlternativesMax) {
      Parts parts = std::move(todo.back());
      todo.pop_back();
      if (parts.empty()) {
        out.push_back(std::move(parts));
        continue;
      }
      const Expression& first = rules_[parts.front()];
      if (first.kind == Kind::kSequence || first.kind == Kind::kEmpty) {
        Parts opened = first.children;
        opened.insert(opened.end(), parts.begin() + 1, parts.end());
        todo.push_back(std::move(opened));
      } else if (first.kind == Kind::kAlternate) {
        for (auto child = first.children.rbegin(); child != first.children.rend(); ++child) {
          Parts opened{*child};
          opened.insert(opened.end(), parts.begin() + 1, parts.end());
          todo.push_back(std::move(opened));
        }
      } else if (first.kind == Kind::kRepeat && first.min == 0 && first.max == 1) {
        todo.emplace_back(parts.begin() + 1, parts.end());
        parts.front() = first.children.front();
        todo.push_back(std::move(parts));
      } else {
        out.push_back(std::move(parts));
      }
    }
    return out;
  }

  bool begins_with(const Parts& parts, RuleId rule) const {
    return !parts.empty() && rules_[parts.front()].kind == Kind::kRule &&
           rules_[parts.front()].index == rule;
  }

  std::vector<Parts> substitute(const std::vector<Parts>& alternatives, RuleId rule) const {
    std::vector<Parts> out;
    for (const Parts& parts : alternatives) {
      if (!begins_with(parts, rule)) {
        out.push_back(parts);
        continue;
      }
      for (Parts opened : open(rules_.rules()[rule].body)) {
        opened.insert(opened.end(), parts.begin() + 1, parts.end());
        out.push_back(std::move(opened));
        if (out.size() > kAlternativesMax) {
          return out;
        }
      }
    }
    return out;
  }

  /// A: A x | y becomes A: y x*.
  ExpressionId repeat_instead(const std::vector<Parts>& alternatives, RuleId rule) {
    std::vector<ExpressionId> bases;
    std::vector<ExpressionId> tails;
    for (const Parts& parts : alternatives) {
      if (!begins_with(parts, rule)) {
        bases.push_back(parts.empty() ? rules_.empty() : rules_.sequence(parts));
      } else if (parts.size() > 1) {
        tails.push_back(rules_.sequence(Parts(parts.begin() + 1, parts.end())));
      }
    }
    const ExpressionId base = rules_.alternate(std::move(bases));
    return tails.empty() ? base
                         : rules_.sequence({base, rules_.repeat(rules_.alternate(std::move(tails)),
                                                                0, kNoLimit)});
  }

  RuleSet& rules_;
};

Check check_size(const RuleSet& rules) {
  if (rules.overflown()) {
    return Refusal{Code::kTooLarge,
                   {},
                   "needs a grammar that is too large: use smaller counts, or fewer alternatives"};
  }
  return {};
}

}  // namespace

Check finish_rules(RuleSet& rules) {
  STATOR_CHECK(check_size(rules));
  const RuleFacts facts(rules);
  if (!facts.ends(rules.rules()[rules.root()].body)) {
    // What is defined later is mostly what the earlier wait for.
    for (auto rule = static_cast<RuleId>(rules.rules().size()); rule-- > 1;) {
      if (!facts.ends(rules.rules()[rule].body)) {
        return refuse_at(rules.rules()[rule].place,
                         "can never end: add an alternative without itself");
      }
    }
    return refuse("can never end");
  }
  LeftRecursionRemoval removal(rules);
  // A rewritten group may leave smaller ones; each round takes one rule out of them.
  for (int round = 0; round < 8; ++round) {
    const LeftRecursion recursion(rules);
    if (recursion.groups().empty()) {
      return {};
    }
    for (const std::vector<RuleId>& group : recursion.groups()) {
      STATOR_CHECK(removal.rewrite(group));
    }
    STATOR_CHECK(check_size(rules));
  }
  const LeftRecursion rest(rules);
  return rest.groups().empty() ? Check() : removal.too_deep(rest.groups().front().front());
}

}  // namespace stator::structured
