// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "stator/core/assert.h"
#include "stator/structured/detail/rule_builders.h"

namespace stator::structured {
namespace {

constexpr size_t kStatesMax = 100'000;
constexpr uint32_t kNothing = UINT32_MAX;  // no class: an edge without a character

/// A pattern as an automaton over characters. State 0 is the beginning.
struct Automaton {
  struct Edge {
    uint32_t to = 0;
    uint32_t characters = kNothing;  ///< index into the classes
  };
  std::vector<std::vector<Edge>> edges = {{}};
  uint32_t end = 0;

  uint32_t add_state() {
    edges.emplace_back();
    return static_cast<uint32_t>(edges.size() - 1);
  }
  bool too_large() const { return edges.size() > kStatesMax; }
};

/// The sets of characters on all edges, each once.
class Classes {
 public:
  uint32_t add(std::vector<CodeRange> ranges) {
    const auto [at, added] = known_.try_emplace(ranges, static_cast<uint32_t>(all_.size()));
    if (added) {
      all_.push_back(std::move(ranges));
    }
    return at->second;
  }
  /// kNothing if they have no character in common.
  uint32_t intersect(uint32_t a, uint32_t b) {
    if (a == b) {
      return a;
    }
    const auto [at, added] = pairs_.try_emplace(std::minmax(a, b), kNothing);
    if (added) {
      std::vector<CodeRange> common;
      for (const auto& [first, last] : all_[a]) {
        for (const auto& [from, to] : all_[b]) {
          if (std::max(first, from) <= std::min(last, to)) {
            common.emplace_back(std::max(first, from), std::min(last, to));
          }
        }
      }
      at->second = common.empty() ? kNothing : add(std::move(common));
    }
    return at->second;
  }
  const std::vector<CodeRange>& operator[](uint32_t index) const { return all_[index]; }

 private:
  std::vector<std::vector<CodeRange>> all_;
  std::map<std::vector<CodeRange>, uint32_t> known_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> pairs_;
};

/// Thompson's construction.
class Builder {
 public:
  Builder(const RegexTree& tree, Classes& classes) : tree_(tree), classes_(classes) {}

  Automaton build() {
    out_.end = add(tree_.root, 0);
    return std::move(out_);
  }

 private:
  /// The state behind the node's text.
  // NOLINTNEXTLINE(misc-no-recursion): as deep as the pattern's groups, bounded by kRegexDepthMax
  uint32_t add(uint32_t index, uint32_t from) {
    const RegexNode& node = tree_.nodes[index];
    if (out_.too_large()) {
      return from;
    }
    switch (node.kind) {
      case RegexNode::Kind::kEmpty:
        return from;
      case RegexNode::Kind::kLiteral:
        return step(from, {{node.code, node.code}});
      case RegexNode::Kind::kAny:
        return step(from, normalize_ranges({{'\n', '\n'}}, true));
      case RegexNode::Kind::kClass:
        return step(from, node.ranges);
      case RegexNode::Kind::kSequence:
        for (const uint32_t child : node.children) {
          from = add(child, from);
        }
        return from;
      case RegexNode::Kind::kAlternate: {
        const uint32_t end = out_.add_state();
        for (const uint32_t child : node.children) {
          skip(add(child, after(from)), end);
        }
        return end;
      }
      case RegexNode::Kind::kRepeat:
        break;
    }
    return repeat(node, from);
  }

  // NOLINTNEXTLINE(misc-no-recursion): see add
  uint32_t repeat(const RegexNode& node, uint32_t from) {
    for (uint32_t i = 0; i < node.min; ++i) {
      from = add(node.children.front(), from);
    }
    if (node.max == kUnbounded) {
      const uint32_t again = after(from);
      skip(add(node.children.front(), after(again)), again);
      return again;
    }
    const uint32_t end = out_.add_state();
    for (uint32_t i = node.min; i < node.max; ++i) {
      skip(from, end);
      from = add(node.children.front(), from);
    }
    skip(from, end);
    return end;
  }

  void skip(uint32_t from, uint32_t to) { out_.edges[from].push_back({.to = to}); }
  uint32_t after(uint32_t from) {
    const uint32_t to = out_.add_state();
    skip(from, to);
    return to;
  }
  uint32_t step(uint32_t from, std::vector<CodeRange> ranges) {
    const uint32_t to = out_.add_state();
    out_.edges[from].push_back({.to = to, .characters = classes_.add(std::move(ranges))});
    return to;
  }

  const RegexTree& tree_;
  Classes& classes_;
  Automaton out_;
};

/// Numbers for pairs as they are met, the first of which is (0, 0).
class Pairs {
 public:
  explicit Pairs(Automaton& out) : out_(out) { at(0, 0); }
  uint32_t at(uint32_t a, uint32_t b) {
    const auto [found, added] =
        numbers_.try_emplace({a, b}, static_cast<uint32_t>(numbers_.size()));
    if (added) {
      if (found->second > 0) {
        out_.add_state();
      }
      queue_.push_back({a, b});
    }
    return found->second;
  }
  std::optional<std::pair<uint32_t, uint32_t>> next() {
    if (queue_.empty() || out_.too_large()) {
      return std::nullopt;
    }
    const auto pair = queue_.front();
    queue_.pop_front();
    return pair;
  }
  const std::map<std::pair<uint32_t, uint32_t>, uint32_t>& numbers() const { return numbers_; }

 private:
  Automaton& out_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers_;
  std::deque<std::pair<uint32_t, uint32_t>> queue_;
};

/// Texts that both take.
Automaton intersect(const Automaton& a, const Automaton& b, Classes& classes) {
  Automaton out;
  Pairs pairs(out);
  while (const auto pair = pairs.next()) {
    const auto [x, y] = *pair;
    const uint32_t from = pairs.at(x, y);
    const auto add = [&](uint32_t to, uint32_t characters) {
      out.edges[from].push_back({.to = to, .characters = characters});
    };
    for (const Automaton::Edge& edge : b.edges[y]) {
      if (edge.characters == kNothing) {
        add(pairs.at(x, edge.to), kNothing);
      }
    }
    for (const Automaton::Edge& edge : a.edges[x]) {
      if (edge.characters == kNothing) {
        add(pairs.at(edge.to, y), kNothing);
        continue;
      }
      for (const Automaton::Edge& other : b.edges[y]) {
        const uint32_t common = other.characters == kNothing
                                    ? kNothing
                                    : classes.intersect(edge.characters, other.characters);
        if (common != kNothing) {
          add(pairs.at(edge.to, other.to), common);
        }
      }
    }
  }
  out.end = pairs.at(a.end, b.end);
  return out;
}

/// Texts of `least` to `most` characters: the second of a pair counts them, from `least` on only
/// if there is a `most`. What ends is in `ends`.
Automaton count(const Automaton& a, const TextLengths& lengths, std::vector<uint32_t>& ends) {
  Automaton out;
  Pairs pairs(out);
  const bool bounded = lengths.most != kUnbounded;
  while (const auto pair = pairs.next()) {
    const auto [x, length] = *pair;
    const uint32_t from = pairs.at(x, length);
    for (const Automaton::Edge& edge : a.edges[x]) {
      const bool character = edge.characters != kNothing;
      if (character && bounded && length == lengths.most) {
        continue;
      }
      const uint32_t more = character ? length + 1 : length;
      const uint32_t to = pairs.at(edge.to, bounded ? more : std::min(more, lengths.least));
      out.edges[from].push_back({.to = to, .characters = edge.characters});
    }
  }
  for (const auto& [pair, number] : pairs.numbers()) {
    if (pair.first == a.end && pair.second >= lengths.least) {
      ends.push_back(number);
    }
  }
  return out;
}

/// Which states lead to an end.
std::vector<bool> find_useful(const Automaton& a, const std::vector<uint32_t>& ends) {
  std::vector<std::vector<uint32_t>> before(a.edges.size());
  for (uint32_t from = 0; from < a.edges.size(); ++from) {
    for (const Automaton::Edge& edge : a.edges[from]) {
      before[edge.to].push_back(from);
    }
  }
  std::vector<bool> useful(a.edges.size());
  std::vector<uint32_t> queue = ends;
  for (const uint32_t end : ends) {
    useful[end] = true;
  }
  while (!queue.empty()) {
    const uint32_t state = queue.back();
    queue.pop_back();
    for (const uint32_t from : before[state]) {
      if (!useful[from]) {
        useful[from] = true;
        queue.push_back(from);
      }
    }
  }
  return useful;
}

}  // namespace

JoinedPatterns add_joined_patterns(RuleSet& rules, std::span<const std::string_view> patterns,
                                   const TextLengths& lengths) {
  Classes classes;
  std::optional<Automaton> all;
  for (const std::string_view pattern : patterns) {
    const auto tree = parse_regex(pattern);
    STATOR_ASSERT(tree.has_value(), "the pattern was checked on arrival");
    Automaton one = Builder(*tree, classes).build();
    all = all ? intersect(*all, one, classes) : std::move(one);
    if (all->too_large()) {
      return {.outcome = JoinedPatterns::Outcome::kTooLarge};
    }
  }
  std::vector<uint32_t> ends;
  const Automaton counted = count(*all, lengths, ends);
  if (counted.too_large()) {
    return {.outcome = JoinedPatterns::Outcome::kTooLarge};
  }
  const std::vector<bool> useful = find_useful(counted, ends);
  if (!useful[0]) {
    return {.outcome = JoinedPatterns::Outcome::kNothingFits};
  }
  RuleGraph graph;
  graph.states = static_cast<uint32_t>(counted.edges.size());
  graph.accepting = std::move(ends);
  std::map<uint32_t, ExpressionId> written;
  for (uint32_t from = 0; from < graph.states; ++from) {
    for (const Automaton::Edge& edge : counted.edges[from]) {
      if (!useful[from] || !useful[edge.to]) {
        continue;
      }
      const auto [at, added] = written.try_emplace(edge.characters, 0);
      if (added) {
        at->second = edge.characters == kNothing ? rules.empty()
                                                 : add_characters(rules, classes[edge.characters],
                                                                  CharacterForm::kJsonString);
      }
      graph.add(from, edge.to, at->second);
    }
  }
  return {.text = rules.graph(std::move(graph))};
}

}  // namespace stator::structured
