// SPDX-License-Identifier: Apache-2.0
#include "stator/guided/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "stator/guided/detail/utf8_ranges.h"

namespace stator::guided {

using structured::Expression;
using structured::ExpressionId;
using structured::RuleGraph;
using structured::RuleSet;

/// Writes expressions out as nodes and edges (Thompson's construction), then throws away what leads
/// nowhere.
class ProgramBuilder {
 public:
  ProgramBuilder(const RuleSet& rules, const Vocabulary& vocabulary)
      : rules_(rules), vocabulary_(vocabulary) {}

  Result<Program> build() {
    program_.rules_.resize(rules_.rules().size());
    program_.root_ = resolve(rules_.root());
    use(program_.root_);
    while (!queue_.empty() && !error_) {
      const RuleId rule = queue_.back();
      queue_.pop_back();
      Program::RuleNodes& nodes = program_.rules_[rule];
      write(rules_.rules()[rule].body, nodes.begin, nodes.end);
    }
    if (error_) {
      return std::move(*error_);
    }
    trim();
    if (!live_[program_.rules_[program_.root_].begin]) {
      return Error(Code::kInvalidArgument, "the grammar can never end");
    }
    pack();
    find_nullable();
    if (!rank()) {
      return Error(Code::kInvalidArgument, "a rule begins with itself");
    }
    classify_bytes();
    measure();
    return std::move(program_);
  }

 private:
  using Edge = Program::Edge;
  using Kind = Edge::Kind;

  NodeId add_node() {
    nodes_.emplace_back();
    return static_cast<NodeId>(nodes_.size() - 1);
  }
  void add(NodeId from, Edge edge) {
    if (++edge_count_ > kProgramEdgesMax) {
      error_ = error_ ? std::move(error_)
                      : Error(Code::kTooLarge,
                              "the grammar is too large once repetitions are written out: use "
                              "smaller counts, or * and +");
      return;
    }
    nodes_[from].push_back(edge);
  }
  void skip(NodeId from, NodeId to) { add(from, {.to = to}); }

  /// The rule that stands behind rules which only name another one.
  RuleId resolve(RuleId rule) const {
    for (size_t steps = 0; steps < rules_.rules().size(); ++steps) {
      const Expression& body = rules_[rules_.rules()[rule].body];
      if (body.kind != Expression::Kind::kRule) {
        break;
      }
      rule = body.index;
    }
    return rule;
  }
  void use(RuleId rule) {
    Program::RuleNodes& nodes = program_.rules_[rule];
    if (!nodes.used) {
      nodes.used = true;
      nodes.begin = add_node();
      nodes.end = add_node();
      queue_.push_back(rule);
    }
  }

  // NOLINTNEXTLINE(misc-no-recursion): as deep as groups are nested, bounded by their readers
  void write(ExpressionId id, NodeId from, NodeId to) {
    if (error_) {
      return;
    }
    const Expression& expression = rules_[id];
    switch (expression.kind) {
      case Expression::Kind::kEmpty:
        skip(from, to);
        return;
      case Expression::Kind::kLiteral:
        write_literal(expression.bytes, from, to);
        return;
      case Expression::Kind::kClass:
        write_class(expression, from, to);
        return;
      case Expression::Kind::kSequence:
        for (size_t i = 0; i < expression.children.size(); ++i) {
          const bool last = i + 1 == expression.children.size();
          const NodeId next = last ? to : add_node();
          write(expression.children[i], from, next);
          from = next;
        }
        if (expression.children.empty()) {
          skip(from, to);
        }
        return;
      case Expression::Kind::kAlternate:
        for (const ExpressionId child : expression.children) {
          write(child, from, to);
        }
        return;
      case Expression::Kind::kRepeat:
        write_repeat(expression, from, to);
        return;
      case Expression::Kind::kRule: {
        const RuleId rule = resolve(expression.index);
        use(rule);
        add(from, {.kind = Kind::kCall, .index = rule, .to = to});
        return;
      }
      case Expression::Kind::kTokens:
        write_tokens(expression, from, to);
        return;
      case Expression::Kind::kGraph:
        write_graph(rules_.graphs()[expression.index], from, to);
        return;
    }
  }

  void write_literal(std::string_view bytes, NodeId from, NodeId to) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const NodeId next = i + 1 == bytes.size() ? to : add_node();
      const auto byte = static_cast<uint8_t>(bytes[i]);
      add(from, {.kind = Kind::kBytes, .first = byte, .last = byte, .to = next});
      from = next;
    }
  }

  void write_class(const Expression& expression, NodeId from, NodeId to) {
    for (const auto& [first, last] : expression.ranges) {
      for_each_utf8_range(first, last, [&](std::span<const ByteRange> bytes) {
        NodeId at = from;
        for (size_t i = 0; i < bytes.size(); ++i) {
          const NodeId next = i + 1 == bytes.size() ? to : add_node();
          add(at,
              {.kind = Kind::kBytes, .first = bytes[i].first, .last = bytes[i].last, .to = next});
          at = next;
        }
      });
    }
  }

  // NOLINTNEXTLINE(misc-no-recursion): see write
  void write_repeat(const Expression& expression, NodeId from, NodeId to) {
    const ExpressionId child = expression.children.front();
    for (uint32_t i = 0; i < expression.min && !error_; ++i) {
      const NodeId next = add_node();
      write(child, from, next);
      from = next;
    }
    if (expression.max == structured::kNoLimit) {
      // A node of its own: `from` may have other ways out, `to` other ways in.
      const NodeId loop = add_node();
      skip(from, loop);
      write(child, loop, loop);
      skip(loop, to);
      return;
    }
    for (uint32_t i = expression.min; i < expression.max && !error_; ++i) {
      const NodeId next = add_node();
      skip(from, to);
      write(child, from, next);
      from = next;
    }
    skip(from, to);
  }

  void write_tokens(const Expression& expression, NodeId from, NodeId to) {
    TokenSet set(vocabulary_.size());
    for (const structured::TokenName& name : expression.tokens) {
      const auto id = name.text.empty() ? std::optional(name.id) : find_token(name.text);
      if (!id || *id >= vocabulary_.size()) {
        error_ = Error(
            Code::kInvalidArgument,
            fmt::format("the grammar names the token {}, which the model does not have",
                        name.text.empty() ? std::to_string(name.id) : name.text.substr(0, 64)));
        return;
      }
      set.set(*id);
    }
    if (expression.negated) {
      TokenSet others(vocabulary_.size());
      for (TokenId id = 0; id < vocabulary_.size(); ++id) {
        if (!set.test(id)) {
          others.set(id);
        }
      }
      set = std::move(others);
    }
    if (set.none()) {
      return;
    }
    program_.token_sets_.push_back(std::move(set));
    add(from, {.kind = Kind::kTokens,
               .index = static_cast<uint32_t>(program_.token_sets_.size() - 1),
               .to = to});
  }
  /// A special token, or an ordinary one with just this text.
  std::optional<TokenId> find_token(std::string_view text) const {
    if (const auto id = vocabulary_.find_special(text)) {
      return id;
    }
    for (TokenId id = 0; id < vocabulary_.size(); ++id) {
      if (vocabulary_.bytes(id) == text) {
        return id;
      }
    }
    return std::nullopt;
  }

  // NOLINTNEXTLINE(misc-no-recursion): see write
  void write_graph(const RuleGraph& graph, NodeId from, NodeId to) {
    const auto base = static_cast<NodeId>(nodes_.size());
    nodes_.resize(nodes_.size() + graph.states);
    skip(from, base);
    for (const RuleGraph::Edge& edge : graph.edges) {
      if (edge.expression != UINT32_MAX) {
        write(edge.expression, base + edge.from, base + edge.to);
      } else {
        add(base + edge.from,
            {.kind = Kind::kBytes, .first = edge.first, .last = edge.last, .to = base + edge.to});
      }
    }
    for (const uint32_t state : graph.accepting) {
      skip(base + state, to);
    }
  }

  /// Which nodes lead to their rule's end: backwards from the ends, rules counting as soon as they
  /// can end themselves.
  void trim() {
    struct Before {
      NodeId node;
      RuleId rule;  // UINT32_MAX: none
    };
    std::vector<std::vector<Before>> before(nodes_.size());
    for (NodeId node = 0; node < nodes_.size(); ++node) {
      for (const Edge& edge : nodes_[node]) {
        before[edge.to].push_back({node, edge.kind == Kind::kCall ? edge.index : UINT32_MAX});
      }
    }
    std::vector<std::vector<NodeId>> waiting(program_.rules_.size());
    std::vector<RuleId> rule_of_begin(nodes_.size(), UINT32_MAX);
    live_.assign(nodes_.size(), false);
    std::vector<NodeId> open;
    const auto reach = [&](NodeId node) {
      if (!live_[node]) {
        live_[node] = true;
        open.push_back(node);
      }
    };
    for (RuleId rule = 0; rule < program_.rules_.size(); ++rule) {
      if (program_.rules_[rule].used) {
        rule_of_begin[program_.rules_[rule].begin] = rule;
        reach(program_.rules_[rule].end);
      }
    }
    while (!open.empty()) {
      const NodeId node = open.back();
      open.pop_back();
      if (const RuleId rule = rule_of_begin[node]; rule != UINT32_MAX) {
        std::ranges::for_each(waiting[rule], reach);
      }
      for (const auto& [from, rule] : before[node]) {
        if (rule == UINT32_MAX || live_[program_.rules_[rule].begin]) {
          reach(from);
        } else {
          waiting[rule].push_back(from);
        }
      }
    }
  }

  /// Edges between live nodes, one node's after the other's.
  void pack() {
    program_.ends_.assign(nodes_.size(), false);
    for (const Program::RuleNodes& rule : program_.rules_) {
      if (rule.used) {
        program_.ends_[rule.end] = true;
      }
    }
    for (NodeId node = 0; node < nodes_.size(); ++node) {
      program_.edge_begins_.push_back(static_cast<uint32_t>(program_.edges_.size()));
      for (const Edge& edge : nodes_[node]) {
        const bool ends = edge.kind != Kind::kCall || live_[program_.rules_[edge.index].begin];
        if (live_[node] && live_[edge.to] && ends) {
          program_.edges_.push_back(edge);
        }
      }
    }
    program_.edge_begins_.push_back(static_cast<uint32_t>(program_.edges_.size()));
    nodes_.clear();
  }

  /// Calls body(edge) for what can be read first from `node` on; true if nothing needs to be read.
  template <typename Body>
  bool each_first(NodeId node, NodeId end, const Body& body) {
    std::vector<NodeId> open{node};
    ++visit_;
    bool reaches_end = false;
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      if (std::exchange(visited_[at], visit_) == visit_) {
        continue;
      }
      reaches_end = reaches_end || at == end;
      for (const Edge& edge : program_.edges(at)) {
        body(edge);
        if (edge.kind == Kind::kNothing ||
            (edge.kind == Kind::kCall && program_.rules_[edge.index].nullable)) {
          open.push_back(edge.to);
        }
      }
    }
    return reaches_end;
  }

  void find_nullable() {
    visited_.assign(program_.node_count(), 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (Program::RuleNodes& rule : program_.rules_) {
        if (rule.used && !rule.nullable && each_first(rule.begin, rule.end, [](const Edge&) {})) {
          rule.nullable = changed = true;
        }
      }
    }
  }

  /// Depth first over "may begin with"; false if that leads back.
  bool rank() {
    enum class State : uint8_t { kNew, kOpen, kDone };
    struct Step {
      RuleId rule;
      std::vector<RuleId> firsts;
      size_t next = 0;
    };
    std::vector<State> states(program_.rules_.size(), State::kNew);
    auto next_rank = static_cast<uint32_t>(program_.rules_.size());
    std::vector<Step> path;
    const auto enter = [&](RuleId rule) {
      states[rule] = State::kOpen;
      path.push_back({.rule = rule, .firsts = {}});
      each_first(program_.rules_[rule].begin, program_.rules_[rule].end, [&](const Edge& edge) {
        if (edge.kind == Kind::kCall) {
          path.back().firsts.push_back(edge.index);
        }
      });
    };
    for (RuleId rule = 0; rule < states.size(); ++rule) {
      if (states[rule] != State::kNew || !program_.rules_[rule].used) {
        continue;
      }
      enter(rule);
      while (!path.empty()) {
        Step& step = path.back();
        if (step.next == step.firsts.size()) {
          states[step.rule] = State::kDone;
          program_.rules_[step.rule].rank = --next_rank;
          path.pop_back();
          continue;
        }
        const RuleId first = step.firsts[step.next++];
        if (states[first] == State::kOpen) {
          return false;
        }
        if (states[first] == State::kNew) {
          enter(first);
        }
      }
    }
    return true;
  }

  /// Shortest ways to the ends (Knuth's generalisation of Dijkstra's algorithm: a call costs the
  /// shortest text of its rule).
  void measure() {
    struct Before {
      NodeId node;
      Kind kind;
      RuleId rule;
    };
    const size_t count = program_.node_count();
    std::vector<uint32_t>& to_end = program_.bytes_to_end_;
    to_end.assign(count, UINT32_MAX);
    std::vector<uint32_t> begins(count + 1, 0);
    for (NodeId node = 0; node < count; ++node) {
      for (const Edge& edge : program_.edges(node)) {
        ++begins[edge.to + 1];
      }
    }
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<Before> before(begins.back());
    std::vector<uint32_t> at = begins;
    for (NodeId node = 0; node < count; ++node) {
      for (const Edge& edge : program_.edges(node)) {
        before[at[edge.to]++] = {node, edge.kind, edge.index};
      }
    }
    std::vector<std::vector<std::pair<NodeId, NodeId>>> callers(program_.rules_.size());
    std::vector<RuleId> rule_of_begin(count, UINT32_MAX);
    using Entry = std::pair<uint32_t, NodeId>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    for (RuleId rule = 0; rule < program_.rules_.size(); ++rule) {
      if (program_.rules_[rule].used) {
        rule_of_begin[program_.rules_[rule].begin] = rule;
        open.emplace(0, program_.rules_[rule].end);
      }
    }
    while (!open.empty()) {
      const auto [bytes, node] = open.top();
      open.pop();
      if (to_end[node] != UINT32_MAX) {
        continue;
      }
      to_end[node] = bytes;
      if (const RuleId rule = rule_of_begin[node]; rule != UINT32_MAX) {
        program_.shortest_text_max_ = std::max(program_.shortest_text_max_, bytes);
        for (const auto& [from, to] : callers[rule]) {
          open.emplace(bytes + to_end[to], from);
        }
      }
      for (uint32_t i = begins[node]; i < begins[node + 1]; ++i) {
        const auto& [from, kind, rule] = before[i];
        if (kind != Kind::kCall) {
          open.emplace(bytes + (kind == Kind::kNothing ? 0U : 1U), from);
        } else if (const uint32_t text = to_end[program_.rules_[rule].begin]; text != UINT32_MAX) {
          open.emplace(bytes + text, from);
        } else {
          callers[rule].emplace_back(from, node);
        }
      }
    }
  }

  void classify_bytes() {
    std::array<bool, 257> border{};
    border[0] = true;
    for (const Edge& edge : program_.edges_) {
      if (edge.kind == Kind::kBytes) {
        border[edge.first] = true;
        border[static_cast<size_t>(edge.last) + 1] = true;
      }
    }
    uint32_t count = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      count += border[byte] ? 1 : 0;
      program_.classes_[byte] = static_cast<uint8_t>(count - 1);
    }
    program_.class_count_ = count;
  }

  const RuleSet& rules_;
  const Vocabulary& vocabulary_;
  Program program_;
  std::vector<std::vector<Edge>> nodes_;
  size_t edge_count_ = 0;
  std::vector<RuleId> queue_;
  std::vector<bool> live_;
  std::vector<uint32_t> visited_;
  uint32_t visit_ = 0;
  std::optional<Error> error_;
};

Result<Program> Program::make(const RuleSet& rules, const Vocabulary& vocabulary) {
  return ProgramBuilder(rules, vocabulary).build();
}

size_t Program::bytes() const {
  size_t out = bytes_to_end_.size() * sizeof(uint32_t) + edges_.size() * sizeof(Edge) +
               edge_begins_.size() * sizeof(uint32_t) + rules_.size() * sizeof(RuleNodes);
  for (const TokenSet& set : token_sets_) {
    out += set.bytes();
  }
  return out;
}

}  // namespace stator::guided
