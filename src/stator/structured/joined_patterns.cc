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

constexpr size_t kDeterministicMax = 10'000;  // states of a complement

std::vector<CodeRange> everything() {
  return normalize_ranges({}, true);
}

/// Texts that contain one of `a`, where its pattern does not say where that begins or ends.
Automaton anywhere(Automaton a, const RegexTree& tree, Classes& classes) {
  const uint32_t any = classes.add(everything());
  if (!tree.anchored_begin) {
    // State 0 is the beginning: what began there begins in a new state.
    const uint32_t begin = a.add_state();
    for (std::vector<Automaton::Edge>& edges : a.edges) {
      for (Automaton::Edge& edge : edges) {
        edge.to = edge.to == 0 ? begin : edge.to;
      }
    }
    a.end = a.end == 0 ? begin : a.end;
    a.edges[begin] = std::move(a.edges[0]);
    a.edges[0] = {{.to = 0, .characters = any}, {.to = begin}};
  }
  if (!tree.anchored_end) {
    const uint32_t end = a.add_state();
    a.edges[a.end].push_back({.to = end});
    a.edges[end].push_back({.to = end, .characters = any});
    a.end = end;
  }
  return a;
}

Automaton exactly(std::string_view text, Classes& classes) {
  Automaton out;
  while (!text.empty()) {
    const Character character = decode_utf8(text);
    text.remove_prefix(std::max(character.bytes, 1U));
    const uint32_t to = out.add_state();
    out.edges[out.end].push_back(
        {.to = to, .characters = classes.add({{character.code, character.code}})});
    out.end = to;
  }
  return out;
}

/// Texts that none of some automata takes: their subsets, as many as are met.
class Complement {
 public:
  explicit Complement(Classes& classes) : classes_(classes) {}

  void exclude(const Automaton& a) {
    const auto offset = static_cast<uint32_t>(all_.edges.size());
    for (const std::vector<Automaton::Edge>& edges : a.edges) {
      std::vector<Automaton::Edge>& moved = all_.edges.emplace_back(edges);
      for (Automaton::Edge& edge : moved) {
        edge.to += offset;
      }
    }
    all_.edges[0].push_back({.to = offset});
    ends_.push_back(a.end + offset);
  }

  /// Nothing if there would be too many states.
  std::optional<Automaton> build() {
    Automaton out;
    out.end = out.add_state();
    number_of(closed({0}));  // becomes state 0
    for (size_t i = 0; i < subsets_.size(); ++i) {
      if (subsets_.size() > kDeterministicMax) {
        return std::nullopt;
      }
      const Subset subset = *subsets_[i];
      const auto from = static_cast<uint32_t>(i == 0 ? 0 : i + 1);
      while (out.edges.size() <= from) {
        out.add_state();
      }
      if (std::ranges::none_of(
              ends_, [&](uint32_t end) { return std::ranges::binary_search(subset, end); })) {
        out.edges[from].push_back({.to = out.end});
      }
      for (auto& [target, ranges] : steps(subset)) {
        const uint32_t number = number_of(target);
        out.edges[from].push_back({.to = number == 0 ? 0 : number + 1,
                                   .characters = classes_.add(normalize_ranges(ranges, false))});
      }
    }
    while (out.edges.size() <= subsets_.size()) {
      out.add_state();
    }
    return out;
  }

 private:
  using Subset = std::vector<uint32_t>;

  Subset closed(Subset states) const {
    for (size_t i = 0; i < states.size(); ++i) {
      for (const Automaton::Edge& edge : all_.edges[states[i]]) {
        if (edge.characters == kNothing && std::ranges::find(states, edge.to) == states.end()) {
          states.push_back(edge.to);
        }
      }
    }
    std::ranges::sort(states);
    return states;
  }

  uint32_t number_of(Subset subset) {
    const auto [at, added] =
        numbers_.try_emplace(std::move(subset), static_cast<uint32_t>(numbers_.size()));
    if (added) {
      subsets_.push_back(&at->first);
    }
    return at->second;
  }

  /// Where each character leads; those without an edge to the empty subset.
  std::map<Subset, std::vector<CodeRange>> steps(const Subset& subset) const {
    std::vector<std::pair<CodeRange, uint32_t>> edges;
    std::vector<uint32_t> cuts;
    for (const uint32_t state : subset) {
      for (const Automaton::Edge& edge : all_.edges[state]) {
        if (edge.characters == kNothing) {
          continue;
        }
        for (const CodeRange& range : classes_[edge.characters]) {
          edges.emplace_back(range, edge.to);
          cuts.push_back(range.first);
          cuts.push_back(range.second + 1);
        }
      }
    }
    for (const auto& [first, last] : everything()) {
      cuts.push_back(first);
      cuts.push_back(last + 1);
    }
    std::ranges::sort(cuts);
    cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
    std::map<Subset, std::vector<CodeRange>> out;
    const std::vector<CodeRange> all = everything();
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const uint32_t first = cuts[i];
      const auto has = [first](const CodeRange& range) {
        return range.first <= first && first <= range.second;
      };
      if (std::ranges::none_of(all, has)) {
        continue;
      }
      Subset targets;
      for (const auto& [range, to] : edges) {
        if (has(range) && std::ranges::find(targets, to) == targets.end()) {
          targets.push_back(to);
        }
      }
      out[closed(std::move(targets))].emplace_back(first, cuts[i + 1] - 1);
    }
    return out;
  }

  Classes& classes_;
  Automaton all_;
  std::vector<uint32_t> ends_;
  std::map<Subset, uint32_t> numbers_;
  std::vector<const Subset*> subsets_;
};

RegexTree tree_of(std::string_view pattern) {
  auto tree = parse_regex(pattern);
  STATOR_ASSERT(tree.has_value(), "the pattern was checked on arrival");
  return std::move(*tree);
}

/// What all the demands of a shape take; nothing if it is too large.
std::optional<Automaton> join(const TextShape& shape, Classes& classes) {
  std::optional<Automaton> all;
  const auto add = [&](Automaton one) {
    all = all ? intersect(*all, one, classes) : std::move(one);
    return !all->too_large();
  };
  for (const std::string_view pattern : shape.patterns) {
    const RegexTree tree = tree_of(pattern);
    if (!add(anywhere(Builder(tree, classes).build(), tree, classes))) {
      return std::nullopt;
    }
  }
  if (!shape.not_patterns.empty() || !shape.not_texts.empty()) {
    Complement complement(classes);
    for (const std::string_view pattern : shape.not_patterns) {
      const RegexTree tree = tree_of(pattern);
      complement.exclude(anywhere(Builder(tree, classes).build(), tree, classes));
    }
    for (const std::string_view text : shape.not_texts) {
      complement.exclude(exactly(text, classes));
    }
    auto rest = complement.build();
    if (!rest || !add(std::move(*rest))) {
      return std::nullopt;
    }
  }
  if (!all) {
    all.emplace();
    all->edges[0].push_back({.to = 0, .characters = classes.add(everything())});
  }
  return all;
}

}  // namespace

bool text_has(std::string_view pattern, std::string_view text) {
  const RegexTree tree = tree_of(pattern);
  Classes classes;
  const Automaton a = anywhere(Builder(tree, classes).build(), tree, classes);
  std::vector<uint32_t> states{0};
  const auto close = [&] {
    for (size_t i = 0; i < states.size(); ++i) {
      for (const Automaton::Edge& edge : a.edges[states[i]]) {
        if (edge.characters == kNothing && std::ranges::find(states, edge.to) == states.end()) {
          states.push_back(edge.to);
        }
      }
    }
  };
  close();
  while (!text.empty()) {
    const Character character = decode_utf8(text);
    text.remove_prefix(std::max(character.bytes, 1U));
    std::vector<uint32_t> next;
    for (const uint32_t state : states) {
      for (const Automaton::Edge& edge : a.edges[state]) {
        if (edge.characters != kNothing &&
            std::ranges::any_of(classes[edge.characters],
                                [&](const CodeRange& range) {
                                  return range.first <= character.code &&
                                         character.code <= range.second;
                                }) &&
            std::ranges::find(next, edge.to) == next.end()) {
          next.push_back(edge.to);
        }
      }
    }
    states = std::move(next);
    close();
  }
  return std::ranges::find(states, a.end) != states.end();
}

JoinedPatterns add_text(RuleSet& rules, const TextShape& shape) {
  Classes classes;
  const std::optional<Automaton> all = join(shape, classes);
  if (!all) {
    return {.outcome = JoinedPatterns::Outcome::kTooLarge};
  }
  std::vector<uint32_t> ends;
  const Automaton counted = count(*all, shape.lengths, ends);
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
