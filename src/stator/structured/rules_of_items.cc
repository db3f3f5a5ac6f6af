// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "stator/structured/detail/schema_siblings.h"
#include "stator/structured/detail/schema_view.h"

namespace stator::structured {
namespace {

/// Arrays: tuples, counts, what is in them, items that differ.
class ItemRules {
 public:
  explicit ItemRules(const SchemaTools& tools)
      : rules_(tools.rules),
        json_(tools.json),
        view_(tools.view),
        tree_(tools.view.tree()),
        values_(tools.values) {}

  ExpressionId array(const Schemas& schemas) {
    const double least = view_.largest(schemas, "minItems");
    double most = view_.smallest(schemas, "maxItems");
    if (least > kItemsMax) {
      return fail(view_.find_any(schemas, "minItems").second,
                  fmt::format("is enforced up to {}", kItemsMax), Code::kTooLarge);
    }
    std::vector<ExpressionId> prefix;
    ExpressionId rest = UINT32_MAX;
    Schemas rest_parts;
    bool closed = false;
    {
      size_t listed = 0;
      for (const JsonIndex schema : schemas) {
        const JsonIndex items = tuple_of(tree_, node_of(schema));
        listed = items == kNoJson ? listed : std::max<size_t>(listed, tree_[items].child_count);
        closed = closed || view_.is_false(rest_of(tree_, node_of(schema)));
      }
      for (size_t i = 0; i <= listed; ++i) {
        Schemas parts;
        bool ends = false;
        for (const JsonIndex schema : schemas) {
          const JsonIndex items = tuple_of(tree_, node_of(schema));
          JsonIndex part = kNoJson;
          if (items != kNoJson && i < tree_[items].child_count) {
            auto child = tree_.children(items).begin();
            for (size_t k = 0; k < i; ++k) {
              ++child;
            }
            part = *child;
          } else {
            part = rest_of(tree_, node_of(schema));
          }
          ends = ends || view_.is_false(part);
          if (part != kNoJson) {
            parts.push_back(part);
          }
        }
        if (i == listed) {
          rest_parts = parts;
        }
        if (ends) {
          most = most < 0 ? static_cast<double>(i) : std::min(most, static_cast<double>(i));
          break;
        }
        (i < listed ? prefix.emplace_back() : rest) = value(std::move(parts));
      }
    }
    if (!view_.denied_values(schemas, JsonType::kArray).empty()) {
      return fail(view_.denied_values(schemas, JsonType::kArray).front(),
                  "an array cannot be excluded: say what is allowed");
    }
    const bool distinct = std::ranges::any_of(schemas, [&](JsonIndex schema) {
      const JsonIndex flag = find(schema, "uniqueItems");
      return flag != kNoJson && tree_[flag].boolean;
    });
    const JsonIndex wanted = view_.find_any(schemas, "contains").second;
    if (distinct && (most < 0 || most > 1)) {
      return distinct_items(schemas, prefix, rest_parts, least, most);
    }
    return wanted == kNoJson ? array_graph(prefix, rest, least, most)
                             : containing(schemas, prefix, rest_parts, least, most);
  }

 private:
  JsonIndex find(SchemaPart schema, std::string_view key) const { return view_.find(schema, key); }
  ExpressionId value(Schemas schemas) { return values_.value(std::move(schemas)); }
  ExpressionId fail(JsonIndex at, std::string_view why, Code code = Code::kUnsupported) {
    return values_.fail(at, why, code);
  }

  /// Arrays of listed values, none of them twice: any order of few values, the order of the list
  /// for many.
  ExpressionId distinct_items(const Schemas& schemas, const std::vector<ExpressionId>& prefix,
                              Schemas parts, double least, double most) {
    constexpr size_t kAnyOrderMax = 7;
    const JsonIndex place = view_.find_any(schemas, "uniqueItems").second;
    parts = view_.flatten(std::move(parts));
    std::vector<JsonIndex> values;
    bool listed = false;
    for (const JsonIndex part : parts) {
      const JsonIndex list = find(part, "enum");
      if (list != kNoJson && !listed) {
        values = view_.children_of(list);
        listed = true;
      }
    }
    if (!listed || !prefix.empty() || view_.find_any(schemas, "contains").second != kNoJson) {
      return fail(place,
                  "uniqueItems is enforced for items of an enum only: list the values, or check "
                  "the items after generation");
    }
    std::erase_if(values, [&](JsonIndex value) {
      JsonIndex unclear = kNoJson;
      return !std::ranges::all_of(
          parts, [&](SchemaPart part) { return takes_value(tree_, part, value, unclear); });
    });
    // Spellings of one value count as one.
    std::vector<JsonIndex> once;
    for (const JsonIndex value : values) {
      if (std::ranges::none_of(once,
                               [&](JsonIndex other) { return same_value(tree_, value, other); })) {
        once.push_back(value);
      }
    }
    const double longest = most < 0 ? static_cast<double>(once.size())
                                    : std::min(most, static_cast<double>(once.size()));
    if (longest < least) {
      return values_.none(place, "there are fewer different items than minItems");
    }
    return once.size() <= kAnyOrderMax ? subsets(once, least, longest)
                                       : in_order(once, least, longest);
  }

  ExpressionId subsets(const std::vector<JsonIndex>& values, double least, double most) {
    RuleGraph graph;
    const auto count = static_cast<uint32_t>(values.size());
    graph.states = 1U << count;
    const uint32_t end = graph.add_state();
    graph.accepting = {end};
    for (uint32_t taken = 0; taken < 1U << count; ++taken) {
      const int size = std::popcount(taken);
      if (size >= least) {
        graph.add(taken, end, size == 0 ? rules_.empty() : json_.space());
      }
      for (uint32_t i = 0; i < count && size < most; ++i) {
        if ((taken >> i & 1U) == 0) {
          graph.add(taken, taken | 1U << i, item(taken == 0, values_.literal(values[i])));
        }
      }
    }
    return json_.in_braces('[', rules_.graph(std::move(graph)), ']');
  }

  ExpressionId in_order(const std::vector<JsonIndex>& values, double least, double most) {
    constexpr size_t kStatesMax = 200'000;
    const auto count = static_cast<uint32_t>(values.size());
    const auto width = static_cast<uint32_t>(most);
    if (size_t{count} * width > kStatesMax) {
      return fail(0, "has too many items of too long an enum", Code::kTooLarge);
    }
    RuleGraph graph;  // state: values passed × items written
    graph.states = (count + 1) * (width + 1);
    const uint32_t end = graph.add_state();
    graph.accepting = {end};
    const ExpressionId nothing = rules_.empty();
    for (uint32_t i = 0; i <= count; ++i) {
      for (uint32_t written = 0; written <= width; ++written) {
        const uint32_t at = i * (width + 1) + written;
        if (i == count) {
          if (written >= least) {
            graph.add(at, end, written == 0 ? nothing : json_.space());
          }
          continue;
        }
        graph.add(at, at + width + 1, nothing);
        if (written < width) {
          graph.add(at, at + width + 2, item(written == 0, values_.literal(values[i])));
        }
      }
    }
    return json_.in_braces('[', rules_.graph(std::move(graph)), ']');
  }

  ExpressionId item(bool first, ExpressionId value) {
    return first ? value : rules_.sequence({json_.comma(), value});
  }

  /// Arrays that hold some items of another schema, too.
  ExpressionId containing(const Schemas& schemas, const std::vector<ExpressionId>& prefix,
                          const Schemas& parts, double least, double most) {
    constexpr double kContainedMax = 64;
    const auto [owner, wanted] = view_.find_any(schemas, "contains");
    const JsonIndex count = find(owner, "minContains");
    const double needed = count == kNoJson ? 1 : tree_[count].number;
    const auto others = std::ranges::count_if(
        schemas, [&](JsonIndex schema) { return find(schema, "contains") != kNoJson; });
    if (others > 1 || !prefix.empty() || needed > kContainedMax ||
        find(owner, "maxContains") != kNoJson) {
      return fail(wanted,
                  "contains is enforced once, without a tuple and without maxContains: describe "
                  "all items with items");
    }
    Schemas both = parts;
    both.push_back(wanted);
    const ExpressionId plain = value(parts);
    const ExpressionId special = value(std::move(both));
    const bool bounded = most >= 0;
    const auto width =
        static_cast<uint32_t>(bounded ? std::min(most, kItemsMax) : std::max({least, needed, 1.0}));
    const auto height = static_cast<uint32_t>(needed);
    if (uint64_t{width} * (height + 1) > 500'000) {
      return fail(wanted, "has too many items", Code::kTooLarge);
    }
    RuleGraph graph;  // state: items written × those that were looked for
    graph.states = (width + 1) * (height + 1);
    const uint32_t end = graph.add_state();
    graph.accepting = {end};
    for (uint32_t written = 0; written <= width; ++written) {
      for (uint32_t found = 0; found <= height; ++found) {
        const uint32_t at = written * (height + 1) + found;
        const uint32_t more = bounded ? written + 1 : std::min(written + 1, width);
        if (written >= least && found == height) {
          graph.add(at, end, written == 0 ? rules_.empty() : json_.space());
        }
        if (more > width) {
          continue;
        }
        graph.add(at, more * (height + 1) + found, item(written == 0, plain));
        if (found < height) {
          graph.add(at, more * (height + 1) + found + 1, item(written == 0, special));
        }
      }
    }
    return json_.in_braces('[', rules_.graph(std::move(graph)), ']');
  }

  ExpressionId array_graph(const std::vector<ExpressionId>& prefix, ExpressionId rest, double least,
                           double most) {
    const bool bounded = most >= 0 && most <= kItemsMax;
    const auto written = static_cast<size_t>(
        bounded ? most : std::max(least, static_cast<double>(prefix.size()) + 1));
    RuleGraph graph;
    const uint32_t end = graph.add_state();
    graph.accepting = {end};
    const ExpressionId space = json_.space();
    const ExpressionId nothing = rules_.empty();
    const ExpressionId comma = json_.comma();
    uint32_t at = 0;
    for (size_t i = 0; i <= written; ++i) {
      if (static_cast<double>(i) >= least) {
        graph.add(at, end, i == 0 ? nothing : space);
      }
      const ExpressionId item = i < prefix.size() ? prefix[i] : rest;
      if (i == written && !bounded) {
        graph.add(at, at, i == 0 ? item : rules_.sequence({comma, item}));
      } else if (i < written) {
        const uint32_t next = graph.add_state();
        graph.add(at, next, i == 0 ? item : rules_.sequence({comma, item}));
        at = next;
      }
    }
    return json_.in_braces('[', rules_.graph(std::move(graph)), ']');
  }

  RuleSet& rules_;
  JsonRules& json_;
  const SchemaView& view_;
  const JsonTree& tree_;
  ValueRules& values_;
};

}  // namespace

ExpressionId add_array(const SchemaTools& tools, const Schemas& schemas) {
  return ItemRules(tools).array(schemas);
}

}  // namespace stator::structured
