// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>

#include "stator/core/assert.h"
#include "stator/structured/detail/rule_builders.h"
#include "stator/structured/json_schema.h"

namespace stator::structured {
namespace {

/// Finds several strings at once (Aho and Corasick 1975), as a complete automaton.
struct StringFinder {
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    std::array<uint32_t, 256> next;
    uint32_t found = kNone;  ///< index of a string that ends here
  };
  std::vector<Node> nodes;

  explicit StringFinder(std::span<const std::string> strings) {
    add_node();
    for (uint32_t i = 0; i < strings.size(); ++i) {
      uint32_t at = 0;
      for (const char c : strings[i]) {
        const auto byte = static_cast<unsigned char>(c);
        if (nodes[at].next[byte] == kNone) {
          const uint32_t made = add_node();
          nodes[at].next[byte] = made;
        }
        at = nodes[at].next[byte];
      }
      nodes[at].found = std::min(nodes[at].found, i);
    }
    complete();
  }

 private:
  uint32_t add_node() {
    nodes.emplace_back().next.fill(kNone);
    return static_cast<uint32_t>(nodes.size() - 1);
  }
  void complete() {
    std::vector<uint32_t> shorter(nodes.size(), 0);
    std::queue<uint32_t> queue;
    for (uint32_t& next : nodes[0].next) {
      if (next == kNone) {
        next = 0;
      } else {
        queue.push(next);
      }
    }
    while (!queue.empty()) {
      const uint32_t at = queue.front();
      queue.pop();
      if (nodes[at].found == kNone) {
        nodes[at].found = nodes[shorter[at]].found;
      }
      for (size_t byte = 0; byte < 256; ++byte) {
        uint32_t& next = nodes[at].next[byte];
        const uint32_t fallback = nodes[shorter[at]].next[byte];
        if (next == kNone) {
          next = fallback;
        } else {
          shorter[next] = fallback;
          queue.push(next);
        }
      }
    }
  }
};

/// Turns the formats that TagReader accepted into expressions. Paths as there.
class TagRules {
 public:
  TagRules(RuleSet& rules, const JsonTree& tree, const JsonSpelling& spelling)
      : rules_(rules), tree_(tree), spelling_(spelling) {}

  Outcome<ExpressionId> read() {
    const JsonIndex format = tree_.find(0, "format");
    const ExpressionId out = format == kNoJson ? structures() : this->format(format, "format");
    if (refusal_) {
      return std::move(*refusal_);
    }
    return out;
  }

 private:
  struct Tag {
    std::string begin;
    ExpressionId rest = 0;  ///< content and end
    ExpressionId whole = 0;
  };

  ExpressionId fail(std::string field, std::string text) {
    if (!refusal_) {
      refusal_ = Refusal{Code::kUnsupported, std::move(field), std::move(text)};
    }
    return rules_.empty();
  }

  std::string_view text(JsonIndex object, std::string_view name) const {
    const JsonIndex at = tree_.find(object, name);
    return at == kNoJson ? std::string_view() : tree_[at].text;
  }
  bool flag(JsonIndex object, std::string_view name) const {
    const JsonIndex at = tree_.find(object, name);
    return at != kNoJson && tree_[at].boolean;
  }
  std::vector<std::string> strings(JsonIndex object, std::string_view name) const {
    std::vector<std::string> out;
    const JsonIndex list = tree_.find(object, name);
    if (list != kNoJson) {
      for (const JsonIndex item : tree_.children(list)) {
        out.emplace_back(tree_[item].text);
      }
    }
    return out;
  }
  TokenName token_name(JsonIndex token) const {
    const JsonNode& node = tree_[token];
    return node.type == JsonType::kNumber
               ? TokenName{.text = {}, .id = static_cast<TokenId>(node.number)}
               : TokenName{.text = std::string(node.text)};
  }
  std::vector<TokenName> token_names(JsonIndex object, std::string_view name) const {
    std::vector<TokenName> out;
    const JsonIndex list = tree_.find(object, name);
    if (list != kNoJson) {
      for (const JsonIndex item : tree_.children(list)) {
        out.push_back(token_name(item));
      }
    }
    return out;
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  ExpressionId format(JsonIndex at, const std::string& field) {
    const std::string_view type = text(at, "type");
    if (type == "const_string") {
      return rules_.literal(text(at, "value"));
    }
    if (type == "json_schema") {
      return schema(at, field);
    }
    if (type == "any_text") {
      return add_text_until(rules_, strings(at, "excludes"), std::nullopt);
    }
    if (type == "regex") {
      return add_pattern(rules_, text(at, "pattern"), CharacterForm::kPlain);
    }
    if (type == "grammar") {
      auto grammar = add_ebnf(rules_, text(at, "grammar"));
      return grammar.has_value() ? *grammar : fail(field + ".grammar", grammar.error().text);
    }
    if (type == "sequence" || type == "or") {
      return elements(at, field, type == "or");
    }
    if (type == "tag") {
      return tag(at, field).whole;
    }
    if (type == "triggered_tags") {
      return triggered(at, field);
    }
    if (type == "tags_with_separator") {
      return separated(at, field);
    }
    if (type == "dispatch") {
      return dispatch(at, field);
    }
    return token_format(at, field, type);
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  ExpressionId token_format(JsonIndex at, const std::string& field, std::string_view type) {
    const auto content = [&] { return format(tree_.find(at, "content"), field + ".content"); };
    if (type == "optional") {
      return rules_.optional(content());
    }
    if (type == "plus" || type == "star") {
      return rules_.repeat(content(), type == "plus" ? 1 : 0, kNoLimit);
    }
    if (type == "repeat") {
      const double most = tree_[tree_.find(at, "max")].number;
      const double least = tree_[tree_.find(at, "min")].number;
      constexpr double kTimesMax = 1'000'000;
      if (least > kTimesMax) {
        return fail(field + ".min", fmt::format("is enforced up to {}", kTimesMax));
      }
      return rules_.repeat(content(), static_cast<uint32_t>(least),
                           most < 0 || most > kTimesMax ? kNoLimit : static_cast<uint32_t>(most));
    }
    if (type == "token") {
      return rules_.tokens({token_name(tree_.find(at, "token"))}, false);
    }
    const ExpressionId others = rules_.tokens(token_names(at, "exclude_tokens"), true);
    if (type == "exclude_token") {
      return others;
    }
    if (type == "any_tokens") {
      return rules_.repeat(others, 0, kNoLimit);
    }
    if (type == "token_triggered_tags" || type == "token_dispatch") {
      return token_triggered(at, field, type == "token_dispatch");
    }
    return fail(field + ".type", fmt::format("{} is not enforced by this engine: use json_schema, "
                                             "regex or grammar",
                                             type));
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  ExpressionId elements(JsonIndex at, const std::string& field, bool alternatives) {
    std::vector<ExpressionId> out;
    for (const JsonIndex element : tree_.children(tree_.find(at, "elements"))) {
      out.push_back(format(element, fmt::format("{}.elements[{}]", field, out.size())));
    }
    return alternatives ? rules_.alternate(std::move(out)) : rules_.sequence(std::move(out));
  }

  ExpressionId schema(JsonIndex at, const std::string& field) {
    const std::string_view style = text(at, "style");
    if (!style.empty() && style != "json") {
      return fail(field + ".style",
                  fmt::format("{} is not enforced by this engine: use json", style));
    }
    return schema_value(tree_.find(at, "json_schema"), field + ".json_schema");
  }
  ExpressionId schema_value(JsonIndex value, const std::string& field) {
    const std::string_view raw =
        tree_[value].type == JsonType::kBool ? std::string_view("{}") : tree_[value].raw;
    auto tree = JsonTree::parse(raw);
    STATOR_ASSERT(tree.has_value(), "a part of a JSON text is one");
    auto out = add_schema(rules_, *tree, spelling_);
    if (!out.has_value()) {
      refusal_ = refusal_ ? std::move(refusal_) : std::move(out.error()).in_field(field);
      return rules_.empty();
    }
    return *out;
  }

  /// What ends a tag, and the strings that do so; none for a token.
  ExpressionId tag_end(JsonIndex tag, std::vector<std::string>& ends) {
    const JsonIndex end = tree_.find(tag, "end");
    if (tree_[end].type == JsonType::kObject) {
      return rules_.tokens({token_name(tree_.find(end, "token"))}, false);
    }
    if (tree_[end].type == JsonType::kString) {
      ends.emplace_back(tree_[end].text);
    } else {
      ends = strings(tag, "end");
    }
    std::vector<ExpressionId> out;
    for (const std::string& text : ends) {
      out.push_back(rules_.literal(text));
    }
    return rules_.alternate(std::move(out));
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  Tag tag(JsonIndex at, const std::string& field) {
    Tag out;
    const JsonIndex begin = tree_.find(at, "begin");
    ExpressionId opening = 0;
    if (tree_[begin].type == JsonType::kObject) {
      opening = rules_.tokens({token_name(tree_.find(begin, "token"))}, false);
    } else {
      out.begin = tree_[begin].text;
      opening = rules_.literal(out.begin);
    }
    std::vector<std::string> ends;
    const ExpressionId end = tag_end(at, ends);
    const JsonIndex content = tree_.find(at, "content");
    const bool has_ends = !ends.empty() && std::ranges::none_of(ends, &std::string::empty);
    if (text(content, "type") == "any_text" && has_ends) {
      // Free text ends at the first occurrence of an end.
      std::vector<std::string> blockers = ends;
      std::ranges::copy(strings(content, "excludes"), std::back_inserter(blockers));
      std::vector<ExpressionId> ways;
      for (size_t i = 0; i < ends.size(); ++i) {
        ways.push_back(add_text_until(rules_, blockers, i));
      }
      out.rest = rules_.alternate(std::move(ways));
    } else {
      out.rest = rules_.sequence({format(content, field + ".content"), end});
    }
    out.whole = rules_.sequence({opening, out.rest});
    return out;
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  std::vector<Tag> tags(JsonIndex at, const std::string& field) {
    std::vector<Tag> out;
    for (const JsonIndex item : tree_.children(tree_.find(at, "tags"))) {
      out.push_back(tag(item, fmt::format("{}.tags[{}]", field, out.size())));
    }
    return out;
  }

  static std::vector<ExpressionId> wholes(const std::vector<Tag>& tags) {
    std::vector<ExpressionId> out;
    for (const Tag& tag : tags) {
      out.push_back(tag.whole);
    }
    return out;
  }

  /// Text without triggers, and wherever one occurs a tag that begins with it.
  ExpressionId free_text_with(const std::vector<Tag>& tags, std::vector<std::string> triggers,
                              const std::vector<std::string>& excludes, bool once) {
    const size_t count = triggers.size();
    std::ranges::copy(excludes, std::back_inserter(triggers));
    std::vector<ExpressionId> ways;
    for (size_t i = 0; i < count; ++i) {
      std::vector<ExpressionId> begun;
      for (const Tag& tag : tags) {
        if (tag.begin.starts_with(triggers[i])) {
          begun.push_back(rules_.sequence(
              {rules_.literal(std::string_view(tag.begin).substr(triggers[i].size())), tag.rest}));
        }
      }
      if (!begun.empty()) {
        ways.push_back(rules_.sequence(
            {add_text_until(rules_, triggers, i), rules_.alternate(std::move(begun))}));
      }
    }
    const ExpressionId tagged = rules_.alternate(std::move(ways));
    const ExpressionId free = add_text_until(rules_, triggers, std::nullopt);
    return once ? rules_.alternate({tagged, free})
                : rules_.sequence({rules_.repeat(tagged, 0, kNoLimit), free});
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  ExpressionId triggered(JsonIndex at, const std::string& field) {
    const std::vector<Tag> tags = this->tags(at, field);
    const bool once = flag(at, "stop_after_first");
    if (!flag(at, "at_least_one")) {
      return free_text_with(tags, strings(at, "triggers"), strings(at, "excludes"), once);
    }
    const ExpressionId first = rules_.alternate(wholes(tags));
    return once ? first
                : rules_.sequence({first, free_text_with(tags, strings(at, "triggers"),
                                                         strings(at, "excludes"), false)});
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  ExpressionId separated(JsonIndex at, const std::string& field) {
    const ExpressionId one = rules_.alternate(wholes(tags(at, field)));
    ExpressionId out = one;
    if (!flag(at, "stop_after_first")) {
      out = rules_.sequence(
          {one, rules_.repeat(rules_.sequence({rules_.literal(text(at, "separator")), one}), 0,
                              kNoLimit)});
    }
    return flag(at, "at_least_one") ? out : rules_.optional(out);
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  ExpressionId dispatch(JsonIndex at, const std::string& field) {
    std::vector<Tag> rules;
    std::vector<std::string> triggers;
    for (const JsonIndex rule : tree_.children(tree_.find(at, "rules"))) {
      const JsonIndex pattern = tree_[rule].first_child;
      triggers.emplace_back(tree_[pattern].text);
      rules.push_back({.begin = triggers.back(),
                       .rest = format(tree_[pattern].next,
                                      fmt::format("{}.rules[{}][1]", field, rules.size()))});
    }
    const JsonIndex loop = tree_.find(at, "loop");
    const bool once = loop != kNoJson && !tree_[loop].boolean;
    return free_text_with(rules, std::move(triggers), strings(at, "excludes"), once);
  }

  // NOLINTNEXTLINE(misc-no-recursion): see format
  ExpressionId token_triggered(JsonIndex at, const std::string& field, bool dispatch) {
    std::vector<TokenName> blocked = token_names(at, "exclude_tokens");
    std::vector<ExpressionId> ways;
    bool once = flag(at, "stop_after_first");
    if (dispatch) {
      for (const JsonIndex rule : tree_.children(tree_.find(at, "rules"))) {
        const JsonIndex pattern = tree_[rule].first_child;
        blocked.push_back(token_name(pattern));
        ways.push_back(rules_.sequence(
            {rules_.tokens({token_name(pattern)}, false),
             format(tree_[pattern].next, fmt::format("{}.rules[{}][1]", field, ways.size()))}));
      }
      const JsonIndex loop = tree_.find(at, "loop");
      once = loop != kNoJson && !tree_[loop].boolean;
    } else {
      ways = wholes(tags(at, field));
      std::ranges::copy(token_names(at, "trigger_tokens"), std::back_inserter(blocked));
    }
    const ExpressionId one = rules_.alternate(std::move(ways));
    const ExpressionId free = rules_.repeat(rules_.tokens(std::move(blocked), true), 0, kNoLimit);
    const ExpressionId tagged = rules_.sequence({free, one});
    if (flag(at, "at_least_one")) {
      return once ? one : rules_.sequence({one, rules_.repeat(tagged, 0, kNoLimit), free});
    }
    return once ? rules_.alternate({tagged, free})
                : rules_.sequence({rules_.repeat(tagged, 0, kNoLimit), free});
  }

  /// {"structures": [{"begin", "schema", "end"}], "triggers": […]}
  ExpressionId structures() {
    std::vector<Tag> tags;
    for (const JsonIndex item : tree_.children(tree_.find(0, "structures"))) {
      const std::string field = fmt::format("structures[{}].schema", tags.size());
      tags.push_back({.begin = std::string(text(item, "begin")),
                      .rest = rules_.sequence({schema_value(tree_.find(item, "schema"), field),
                                               rules_.literal(text(item, "end"))})});
    }
    return free_text_with(tags, strings(0, "triggers"), {}, false);
  }

  RuleSet& rules_;
  const JsonTree& tree_;
  const JsonSpelling& spelling_;
  std::optional<Refusal> refusal_;
};

}  // namespace

ExpressionId add_text_until(RuleSet& rules, std::span<const std::string> blockers,
                            std::optional<size_t> ending) {
  const StringFinder finder(blockers);
  RuleGraph graph;
  graph.states = static_cast<uint32_t>(finder.nodes.size()) + 1;
  const uint32_t end = graph.states - 1;
  const auto target = [&](uint32_t node) {
    const uint32_t found = finder.nodes[node].found;
    if (found == StringFinder::kNone) {
      return node;
    }
    return ending && found == *ending ? end : StringFinder::kNone;
  };
  for (uint32_t node = 0; node < finder.nodes.size(); ++node) {
    if (finder.nodes[node].found != StringFinder::kNone) {
      continue;
    }
    for (unsigned first = 0; first < 256;) {
      const uint32_t to = target(finder.nodes[node].next[first]);
      unsigned last = first;
      while (last + 1 < 256 && target(finder.nodes[node].next[last + 1]) == to) {
        ++last;
      }
      if (to != StringFinder::kNone) {
        graph.add_bytes(node, to, static_cast<uint8_t>(first), static_cast<uint8_t>(last));
      }
      first = last + 1;
    }
    if (!ending) {
      graph.accepting.push_back(node);
    }
  }
  if (ending) {
    graph.accepting.push_back(end);
  }
  return rules.graph(std::move(graph));
}

Outcome<ExpressionId> add_structural_tag(RuleSet& rules, std::string_view json,
                                         const JsonSpelling& spelling) {
  STATOR_TRY(const JsonTree tree, JsonTree::parse(json));
  return TagRules(rules, tree, spelling).read();
}

}  // namespace stator::structured
