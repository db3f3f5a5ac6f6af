// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "stator/structured/detail/schema_view.h"

namespace stator::structured {
namespace {

constexpr double kPropertyCountMax = 2'000;

struct Property {
  std::string_view name;
  ExpressionId member = 0;
  bool required = false;
  bool absent = false;  ///< must not be there
};

/// Objects: listed properties in their order, others by their names.
class MemberRules {
 public:
  explicit MemberRules(const SchemaTools& tools)
      : rules_(tools.rules),
        json_(tools.json),
        view_(tools.view),
        tree_(tools.view.tree()),
        values_(tools.values) {}

  ExpressionId object(const Schemas& schemas) {
    const double least = view_.largest(schemas, "minProperties");
    double most = view_.smallest(schemas, "maxProperties");
    if (least > kPropertyCountMax) {
      return fail(view_.find_any(schemas, "minProperties").second,
                  fmt::format("is enforced up to {}", kPropertyCountMax), Code::kTooLarge);
    }
    if (!view_.denied_values(schemas, JsonType::kObject).empty()) {
      return fail(view_.denied_values(schemas, JsonType::kObject).front(),
                  "an object cannot be excluded: say what is allowed");
    }
    most = most > kPropertyCountMax ? -1 : most;
    std::vector<Property> properties = listed_properties(schemas);
    for (const Property& property : properties) {
      if (property.absent && property.required) {
        return values_.none(schemas.front(), fmt::format("\"{}\" is required and not allowed",
                                                         property.name.substr(0, 64)));
      }
    }
    std::vector<ExpressionId> extras = extra_members(schemas, properties);
    const bool listed = !std::ranges::all_of(properties, &Property::absent);
    if (!listed && extras.empty() && says_nothing_of_members(schemas)) {
      if (properties.empty() && least == 0 && most < 0) {
        return json_.any_object();
      }
      extras.push_back(json_.member(properties.empty() ? json_.key() : other_key(properties),
                                    json_.any_value()));
    }
    std::erase_if(properties, &Property::absent);
    const ExpressionId extra = extras.empty() ? UINT32_MAX : rules_.alternate(std::move(extras));
    const bool counts = least > 0 || most >= 0;
    return counts ? counted_members(properties, extra, least, most) : members(properties, extra);
  }

 private:
  JsonIndex find(SchemaPart schema, std::string_view key) const { return view_.find(schema, key); }
  ExpressionId value(Schemas schemas) { return values_.value(std::move(schemas)); }
  ExpressionId fail(JsonIndex at, std::string_view why, Code code = Code::kUnsupported) {
    return values_.fail(at, why, code);
  }

  /// Besides names that must not be there.
  bool says_nothing_of_members(const Schemas& schemas) const {
    return std::ranges::none_of(schemas, [&](JsonIndex schema) {
      const JsonIndex properties = find(schema, "properties");
      const bool lists = properties != kNoJson &&
                         std::ranges::any_of(view_.children_of(properties),
                                             [&](JsonIndex part) { return !view_.is_false(part); });
      return lists || (properties != kNoJson && tree_[properties].child_count == 0) ||
             find(schema, "patternProperties") != kNoJson ||
             find(schema, "additionalProperties") != kNoJson ||
             (find(schema, "propertyNames") != kNoJson && !names_in(schema).empty());
    });
  }

  /// What propertyNames says: the schemas of names.
  Schemas names_in(JsonIndex schema) const {
    const JsonIndex names = find(schema, "propertyNames");
    return names == kNoJson ? Schemas() : view_.flatten({names});
  }

  std::vector<Property> listed_properties(const Schemas& schemas) {
    std::vector<Property> out;
    const auto add = [&](std::string_view name) {
      if (std::ranges::find(out, name, &Property::name) == out.end()) {
        add_property(schemas, name, out);
      }
    };
    Schemas in_order = schemas;  // of the text: what a schema says before what it is joined with
    std::ranges::sort(in_order, {}, node_of);
    for (const JsonIndex schema : in_order) {
      if (const JsonIndex properties = find(schema, "properties"); properties != kNoJson) {
        for (const JsonIndex property : tree_.children(properties)) {
          add(tree_[property].key);
        }
      }
    }
    for (const JsonIndex schema : schemas) {
      if (const JsonIndex required = find(schema, "required"); required != kNoJson) {
        for (const JsonIndex name : tree_.children(required)) {
          add(tree_[name].text);
        }
      }
      for (const SchemaPart part : names_in(schema)) {
        const JsonIndex list = find(part, "enum");
        for (const JsonIndex name :
             list == kNoJson ? std::vector<JsonIndex>() : view_.children_of(list)) {
          if (tree_[name].type == JsonType::kString) {
            add(tree_[name].text);
          }
        }
      }
    }
    return out;
  }

  /// Whether propertyNames takes it.
  bool is_name(const Schemas& schemas, std::string_view name) {
    for (const JsonIndex schema : schemas) {
      const Schemas parts = names_in(schema);
      for (const SchemaPart part : parts) {
        const JsonIndex list = find(part, "enum");
        if (list != kNoJson && std::ranges::none_of(view_.children_of(list), [&](JsonIndex value) {
              return tree_[value].type == JsonType::kString && tree_[value].text == name;
            })) {
          return false;
        }
      }
      JsonIndex last = kNoJson;
      const TextShape shape = view_.text_shape(parts, last);
      const auto length = static_cast<uint32_t>(count_characters(name));
      if (length < shape.lengths.least || length > shape.lengths.most ||
          std::ranges::find(shape.not_texts, name) != shape.not_texts.end() ||
          !std::ranges::all_of(shape.patterns,
                               [&](std::string_view one) { return text_has(one, name); }) ||
          std::ranges::any_of(shape.not_patterns,
                              [&](std::string_view one) { return text_has(one, name); })) {
        return false;
      }
    }
    return true;
  }
  static size_t count_characters(std::string_view text) {
    return static_cast<size_t>(std::ranges::count_if(
        text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80; }));
  }

  void add_property(const Schemas& schemas, std::string_view name, std::vector<Property>& out) {
    Schemas parts;
    Property property{.name = name};
    for (const JsonIndex schema : schemas) {
      const JsonIndex properties = find(schema, "properties");
      const JsonIndex part = properties == kNoJson ? kNoJson : tree_.find(properties, name);
      std::vector<JsonIndex> own;
      if (part != kNoJson) {
        own.push_back(part);
      }
      if (const JsonIndex patterns = find(schema, "patternProperties"); patterns != kNoJson) {
        for (const JsonIndex member : tree_.children(patterns)) {
          if (text_has(tree_[member].key, name)) {
            own.push_back(member);
          }
        }
      }
      if (const JsonIndex others = find(schema, "additionalProperties");
          own.empty() && others != kNoJson) {
        own.push_back(others);
      }
      for (const JsonIndex one : own) {
        property.absent = property.absent || view_.is_false(one);
        parts.push_back(one);
      }
      if (const JsonIndex list = find(schema, "required"); list != kNoJson) {
        for (const JsonIndex required : tree_.children(list)) {
          property.required = property.required || tree_[required].text == name;
        }
      }
    }
    property.absent = property.absent || !is_name(schemas, name);
    if (!property.absent) {
      property.member = json_.member(rules_.literal(json_string(name)), value(std::move(parts)));
    }
    out.push_back(property);
  }

  /// Members whose names are not listed: by the pattern that they follow, or by none.
  std::vector<ExpressionId> extra_members(const Schemas& schemas,
                                          const std::vector<Property>& properties) {
    std::vector<std::string_view> patterns;
    for (const JsonIndex schema : schemas) {
      const JsonIndex own = find(schema, "patternProperties");
      for (const JsonIndex member :
           own == kNoJson ? std::vector<JsonIndex>() : view_.children_of(own)) {
        if (std::ranges::find(patterns, tree_[member].key) == patterns.end()) {
          patterns.push_back(tree_[member].key);
        }
      }
    }
    std::vector<ExpressionId> out;
    for (size_t i = 0; i < patterns.size(); ++i) {
      Schemas parts;
      if (!add_parts(schemas, patterns[i], parts)) {
        continue;
      }
      TextShape shape;
      shape.patterns.push_back(patterns[i]);
      shape.not_patterns = patterns;
      shape.not_patterns.erase(shape.not_patterns.begin() + static_cast<ptrdiff_t>(i));
      out.push_back(
          json_.member(key_of(schemas, properties, std::move(shape)), value(std::move(parts))));
    }
    const bool open = std::ranges::any_of(schemas, [&](JsonIndex schema) {
      return find(schema, "additionalProperties") != kNoJson || !names_in(schema).empty();
    });
    Schemas parts;
    if (open && add_parts(schemas, {}, parts)) {
      TextShape shape;
      shape.not_patterns = patterns;
      out.push_back(
          json_.member(key_of(schemas, properties, std::move(shape)), value(std::move(parts))));
    }
    return out;
  }

  /// The schemas of members whose name follows this pattern and no other; without one, no pattern
  /// at all. False if there must be none.
  bool add_parts(const Schemas& schemas, std::string_view pattern, Schemas& parts) const {
    for (const JsonIndex schema : schemas) {
      const JsonIndex own = find(schema, "patternProperties");
      JsonIndex part = own == kNoJson || pattern.empty() ? kNoJson : tree_.find(own, pattern);
      part = part == kNoJson ? find(schema, "additionalProperties") : part;
      if (view_.is_false(part)) {
        return false;
      }
      if (part != kNoJson) {
        parts.push_back(part);
      }
    }
    return true;
  }

  /// A name of that shape that propertyNames takes and properties do not list.
  ExpressionId key_of(const Schemas& schemas, const std::vector<Property>& properties,
                      TextShape shape) {
    bool plain = shape.patterns.empty() && shape.not_patterns.empty();
    for (const JsonIndex schema : schemas) {
      const Schemas parts = names_in(schema);
      JsonIndex last = kNoJson;
      const TextShape own = view_.text_shape(parts, last);
      plain = plain && last == kNoJson && parts.empty();
      for (const SchemaPart part : parts) {
        if (find(part, "enum") != kNoJson || find(part, "const") != kNoJson) {
          return rules_.nothing();  // those are listed
        }
        if (find(part, "anyOf") != kNoJson || find(part, "oneOf") != kNoJson) {
          fail(part, "alternatives in propertyNames are not enforced: use one pattern");
        }
      }
      const auto add = [](auto& all, const auto& more) {
        all.insert(all.end(), more.begin(), more.end());
      };
      add(shape.patterns, own.patterns);
      add(shape.not_patterns, own.not_patterns);
      add(shape.not_texts, own.not_texts);
      shape.lengths.least = std::max(shape.lengths.least, own.lengths.least);
      shape.lengths.most = std::min(shape.lengths.most, own.lengths.most);
    }
    if (plain) {
      return properties.empty() ? json_.key() : other_key(properties);
    }
    if (properties.empty() && shape.patterns.size() == 1 && shape.not_patterns.empty() &&
        shape.not_texts.empty() && shape.lengths.least == 0 && shape.lengths.most == kUnbounded) {
      return json_.quoted(add_search(rules_, shape.patterns.front()));
    }
    for (const Property& property : properties) {
      shape.not_texts.push_back(property.name);
    }
    const JoinedPatterns joined = add_text(rules_, shape);
    if (joined.outcome == JoinedPatterns::Outcome::kTooLarge) {
      return fail(schemas.front(), "needs too large an automaton for names of properties",
                  Code::kTooLarge);
    }
    return joined.outcome == JoinedPatterns::Outcome::kAdded ? json_.quoted(joined.text)
                                                             : rules_.nothing();
  }

  /// A key that is none of those listed.
  ExpressionId other_key(const std::vector<Property>& properties) {
    struct Node {
      std::map<uint32_t, uint32_t> children;
      bool is_name = false;
    };
    std::vector<Node> trie(1);
    for (const Property& property : properties) {
      uint32_t at = 0;
      for (std::string_view rest = property.name; !rest.empty();) {
        const Character character = decode_utf8(rest);
        const uint32_t bytes = std::max(character.bytes, 1U);
        const auto [child, added] =
            trie[at].children.try_emplace(character.code, static_cast<uint32_t>(trie.size()));
        at = child->second;
        if (added) {
          trie.emplace_back();
        }
        rest.remove_prefix(bytes);
      }
      trie[at].is_name = true;
    }
    const std::vector<CodeRange> plain =
        normalize_ranges({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}}, true);
    RuleGraph graph;
    graph.states = static_cast<uint32_t>(trie.size());
    const uint32_t free = graph.add_state();
    graph.add(free, free, rules_.char_class(plain));
    graph.accepting.push_back(free);
    for (uint32_t i = 0; i < trie.size(); ++i) {
      std::vector<CodeRange> others{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}};
      for (const auto& [code, child] : trie[i].children) {
        graph.add(i, child, rules_.char_class({{code, code}}));
        others.emplace_back(code, code);
      }
      graph.add(i, free, rules_.char_class(normalize_ranges(std::move(others), true)));
      if (!trie[i].is_name && i > 0) {
        graph.accepting.push_back(i);
      }
    }
    return json_.quoted(rules_.graph(std::move(graph)));
  }

  /// States: how many of the listed were passed, and whether one was written.
  ExpressionId members(const std::vector<Property>& properties, ExpressionId extra) {
    RuleGraph graph;
    const auto count = static_cast<uint32_t>(properties.size());
    graph.states = 2 * (count + 1) + 1;
    const uint32_t end = graph.states - 1;
    graph.accepting = {end};
    const ExpressionId nothing = rules_.empty();
    const ExpressionId comma = json_.comma();
    for (uint32_t i = 0; i <= count; ++i) {
      for (const uint32_t written : {0U, 1U}) {
        const uint32_t at = 2 * i + written;
        const auto take = [&](uint32_t to, ExpressionId member) {
          graph.add(at, to, written == 0 ? member : rules_.sequence({comma, member}));
        };
        if (i < count) {
          take(at + 2 + (1 - written), properties[i].member);
          if (!properties[i].required) {
            graph.add(at, at + 2, nothing);
          }
          continue;
        }
        if (extra != UINT32_MAX) {
          take(2 * count + 1, extra);
        }
        graph.add(at, end, written == 0 ? nothing : json_.space());
      }
    }
    return json_.in_braces('{', rules_.graph(std::move(graph)), '}');
  }

  /// The same where it matters how many were written.
  ExpressionId counted_members(const std::vector<Property>& properties, ExpressionId extra,
                               double least, double most) {
    const auto listed = static_cast<uint32_t>(properties.size());
    const bool bounded = most >= 0;
    const auto width = static_cast<uint32_t>(
        bounded ? most : std::max(least, 1.0));  // counts above are all the same
    if (uint64_t{listed} * width > 1'000'000) {
      return fail(0, "too many properties for minProperties or maxProperties", Code::kTooLarge);
    }
    RuleGraph graph;
    graph.states = (listed + 1) * (width + 1) + 1;
    const uint32_t end = graph.states - 1;
    graph.accepting = {end};
    const ExpressionId nothing = rules_.empty();
    const ExpressionId comma = json_.comma();
    for (uint32_t i = 0; i <= listed; ++i) {
      for (uint32_t written = 0; written <= width; ++written) {
        const uint32_t at = i * (width + 1) + written;
        const uint32_t more = bounded ? written + 1 : std::min(written + 1, width);
        const auto take = [&](uint32_t row, ExpressionId member) {
          if (more <= width) {
            graph.add(at, row * (width + 1) + more,
                      written == 0 ? member : rules_.sequence({comma, member}));
          }
        };
        if (i < listed) {
          take(i + 1, properties[i].member);
          if (!properties[i].required) {
            graph.add(at, at + width + 1, nothing);
          }
          continue;
        }
        if (extra != UINT32_MAX) {
          take(listed, extra);
        }
        if (written >= least) {
          graph.add(at, end, written == 0 ? nothing : json_.space());
        }
      }
    }
    return json_.in_braces('{', rules_.graph(std::move(graph)), '}');
  }

  RuleSet& rules_;
  JsonRules& json_;
  const SchemaView& view_;
  const JsonTree& tree_;
  ValueRules& values_;
};

}  // namespace

ExpressionId add_object(const SchemaTools& tools, const Schemas& schemas) {
  return MemberRules(tools).object(schemas);
}

}  // namespace stator::structured
