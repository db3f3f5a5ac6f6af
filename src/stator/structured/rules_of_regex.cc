// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/core/assert.h"
#include "stator/structured/detail/rule_builders.h"

namespace stator::structured {
namespace {

std::string escape(uint32_t code) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", code);
  }
}

/// Turns a RegexTree into expressions.
class RegexRules {
 public:
  RegexRules(RuleSet& rules, const RegexTree& tree, CharacterForm form, RegexFlags flags)
      : rules_(rules), tree_(tree), form_(form), flags_(flags) {}

  // NOLINTNEXTLINE(misc-no-recursion): as deep as the pattern's groups, bounded by kRegexDepthMax
  ExpressionId add(uint32_t index) {
    const RegexNode& node = tree_.nodes[index];
    switch (node.kind) {
      case RegexNode::Kind::kEmpty:
        return rules_.empty();
      case RegexNode::Kind::kLiteral:
        return characters({{node.code, node.code}});
      case RegexNode::Kind::kAny:
        return flags_.dot_matches_newline ? characters(normalize_ranges({}, true))
                                          : characters(normalize_ranges({{'\n', '\n'}}, true));
      case RegexNode::Kind::kClass:
        return characters(node.ranges, node.negated);
      case RegexNode::Kind::kSequence:
        return rules_.sequence(add_all(node));
      case RegexNode::Kind::kAlternate:
        return rules_.alternate(add_all(node));
      case RegexNode::Kind::kRepeat:
        break;
    }
    return rules_.repeat(add(node.children.front()), node.min, node.max);
  }

 private:
  // NOLINTNEXTLINE(misc-no-recursion): see add
  std::vector<ExpressionId> add_all(const RegexNode& node) {
    std::vector<ExpressionId> out;
    for (const uint32_t child : node.children) {
      out.push_back(add(child));
    }
    return out;
  }

  ExpressionId characters(std::vector<CodeRange> ranges, bool negated = false) {
    if (flags_.ignore_case && negated) {  // what is left out is left out in both cases
      ranges = normalize_ranges(std::move(ranges), true);
      add_other_case(ranges);
      ranges = normalize_ranges(std::move(ranges), true);
    } else if (flags_.ignore_case) {
      add_other_case(ranges);
    }
    return add_characters(rules_, std::move(ranges), form_);
  }

  static void add_other_case(std::vector<CodeRange>& ranges) {
    const size_t count = ranges.size();
    for (size_t i = 0; i < count; ++i) {
      const auto [first, last] = ranges[i];
      const auto add = [&](uint32_t low, uint32_t high, int shift) {
        const uint32_t from = std::max(first, low);
        const uint32_t to = std::min(last, high);
        if (from <= to) {
          ranges.emplace_back(from + static_cast<uint32_t>(shift),
                              to + static_cast<uint32_t>(shift));
        }
      };
      add('a', 'z', 'A' - 'a');
      add('A', 'Z', 'a' - 'A');
    }
    ranges = normalize_ranges(std::move(ranges), false);
  }

  RuleSet& rules_;
  const RegexTree& tree_;
  CharacterForm form_;
  RegexFlags flags_;
};

}  // namespace

ExpressionId add_characters(RuleSet& rules, std::vector<CodeRange> ranges, CharacterForm form) {
  if (form == CharacterForm::kPlain) {
    return rules.char_class(std::move(ranges));
  }
  std::vector<CodeRange> plain;
  std::vector<ExpressionId> out;
  for (auto [first, last] : ranges) {
    for (; first < 0x20 && first <= last; ++first) {
      out.push_back(rules.literal(escape(first)));
    }
    for (const uint32_t special : {uint32_t{'"'}, uint32_t{'\\'}}) {
      if (first <= special && special <= last) {
        out.push_back(rules.literal(escape(special)));
        if (first < special) {
          plain.emplace_back(first, special - 1);
        }
        first = special + 1;
      }
    }
    if (first <= last) {
      plain.emplace_back(first, last);
    }
  }
  if (!plain.empty()) {
    out.push_back(rules.char_class(std::move(plain)));
  }
  return rules.alternate(std::move(out));
}

ExpressionId add_regex(RuleSet& rules, const RegexTree& tree, CharacterForm form,
                       RegexFlags flags) {
  return RegexRules(rules, tree, form, flags).add(tree.root);
}

ExpressionId add_search(RuleSet& rules, std::string_view pattern) {
  const auto tree = parse_regex(pattern);
  STATOR_ASSERT(tree.has_value(), "the pattern was checked on arrival");
  const auto anything = [&rules] {
    return rules.repeat(
        add_characters(rules, normalize_ranges({}, true), CharacterForm::kJsonString), 0, kNoLimit);
  };
  std::vector<ExpressionId> parts;
  if (!tree->anchored_begin) {
    parts.push_back(anything());
  }
  parts.push_back(add_regex(rules, *tree, CharacterForm::kJsonString));
  if (!tree->anchored_end) {
    parts.push_back(anything());
  }
  return rules.sequence(std::move(parts));
}

ExpressionId add_pattern(RuleSet& rules, std::string_view pattern, CharacterForm form,
                         RegexFlags flags) {
  const auto tree = parse_regex(pattern);
  STATOR_ASSERT(tree.has_value(), "the pattern was checked on arrival");
  return add_regex(rules, *tree, form, flags);
}

}  // namespace stator::structured
