// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "stator/structured/detail/json_rules.h"
#include "stator/structured/detail/rule_builders.h"
#include "stator/structured/detail/schema_keywords.h"
#include "stator/structured/detail/schema_parts.h"
#include "stator/structured/detail/schema_siblings.h"
#include "stator/text/utf8.h"

namespace stator::structured {
namespace {

/// Schemas that all hold for one value.
using Schemas = std::vector<SchemaPart>;

constexpr double kItemsMax = 100'000;  // of an array or object with a bound
constexpr double kPropertyCountMax = 2'000;
constexpr double kCharactersMax = 5'000'000;
constexpr size_t kAlternativesMax = 4'096;

/// Compiles schemas one after another: a rule for each conjunction of schemas that some value must
/// follow. What a value contains is put on a list, so that no depth of references is a depth of
/// calls.
class SchemaRules {
 public:
  SchemaRules(RuleSet& rules, const JsonTree& tree, const JsonSpelling& spelling)
      : rules_(rules), tree_(tree), spelling_(spelling), json_(rules, spelling) {}

  Outcome<ExpressionId> compile() {
    const ExpressionId root = value({0});
    while (!queue_.empty() && !refusal_ && !rules_.overflown()) {
      const auto [rule, schemas] = std::move(queue_.front());
      queue_.pop_front();
      rules_.set_body(rule, body(schemas));
    }
    if (refusal_) {
      return std::move(*refusal_);
    }
    return root;
  }

 private:
  struct Pending {
    RuleId rule;
    Schemas schemas;
  };

  ExpressionId fail(JsonIndex at, std::string_view why, Code code = Code::kUnsupported) {
    if (!refusal_) {
      refusal_ = refuse_at(tree_.pointer(node_of(at)), why);
      refusal_->code = code;
    }
    return rules_.empty();
  }

  JsonIndex find(SchemaPart schema, std::string_view key) const {
    return find_keyword(tree_, schema, key);
  }
  /// The first schema with the keyword, and its value.
  std::pair<JsonIndex, JsonIndex> find_any(const Schemas& schemas, std::string_view key) const {
    for (const JsonIndex schema : schemas) {
      if (const JsonIndex at = find(schema, key); at != kNoJson) {
        return {schema, at};
      }
    }
    return {kNoJson, kNoJson};
  }

  /// References followed, allOf opened, schemas that say nothing left out.
  Schemas flatten(Schemas schemas) const {
    Schemas out;
    for (size_t i = 0; i < schemas.size(); ++i) {
      const JsonIndex schema = schemas[i];
      if (std::ranges::find(schemas.begin(), schemas.begin() + static_cast<ptrdiff_t>(i), schema) !=
          schemas.begin() + static_cast<ptrdiff_t>(i)) {
        continue;
      }
      const JsonIndex ref = find(schema, "$ref");
      const JsonIndex all = find(schema, "allOf");
      if (ref != kNoJson) {
        schemas.push_back(tree_.resolve(0, tree_[ref].text.substr(1)));
      }
      if (all != kNoJson) {
        for (const JsonIndex member : tree_.children(all)) {
          schemas.push_back(member);
        }
      }
      const bool followed = ref != kNoJson || all != kNoJson;
      if (const JsonIndex rest = followed ? schema | kFollowed : schema; says_something(rest)) {
        out.push_back(rest);
      }
    }
    std::ranges::sort(out);
    return out;
  }
  bool says_something(SchemaPart schema) const {
    if (tree_[node_of(schema)].type != JsonType::kObject) {
      return false;
    }
    return std::ranges::any_of(children_of(node_of(schema)), [&](JsonIndex member) {
      const SchemaKeyword* keyword = find_schema_keyword(tree_[member].key);
      return keyword != nullptr && keyword->domain != SchemaDomain::kNone &&
             !is_left_out(schema, keyword->name);
    });
  }
  std::vector<JsonIndex> children_of(JsonIndex parent) const {
    std::vector<JsonIndex> out;
    for (const JsonIndex child : tree_.children(parent)) {
      out.push_back(child);
    }
    return out;
  }

  ExpressionId value(Schemas schemas) {
    schemas = flatten(std::move(schemas));
    if (schemas.empty()) {
      return json_.any_value();
    }
    const auto [known, added] = known_.try_emplace(schemas, 0);
    if (added) {
      const RuleId rule = rules_.add_rule(tree_.pointer(node_of(schemas.front())));
      known->second = rules_.rule(rule);
      queue_.push_back({rule, std::move(schemas)});
    }
    return known->second;
  }

  ExpressionId body(const Schemas& schemas) {
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      if (const auto [schema, list] = find_any(schemas, keyword); list != kNoJson) {
        return any_of(schemas, schema, list);
      }
    }
    if (find_any(schemas, "enum").second != kNoJson ||
        find_any(schemas, "const").second != kNoJson) {
      return listed_values(schemas);
    }
    unsigned types = kAnyType;
    for (const JsonIndex schema : schemas) {
      unsigned allowed = types_of(tree_, node_of(schema));
      allowed |= (allowed & kNumberType) != 0 ? kIntegerType : 0U;
      types &= allowed;
    }
    return typed(schemas, static_cast<SchemaTypes>(types));
  }

  ExpressionId any_of(const Schemas& schemas, JsonIndex schema, JsonIndex list) {
    if (++alternatives_ > kAlternativesMax) {
      return fail(list, "leads to too many combinations of alternatives", Code::kTooLarge);
    }
    std::vector<ExpressionId> out;
    for (const JsonIndex member : tree_.children(list)) {
      Schemas alternative{member};
      for (const JsonIndex other : schemas) {
        const JsonIndex rest =
            other == schema ? other | (tree_[list].key == "anyOf" ? kAnyOfChosen : kOneOfChosen)
                            : other;
        if (other != schema || says_something(rest)) {
          alternative.push_back(rest);
        }
      }
      out.push_back(value(std::move(alternative)));
    }
    return rules_.alternate(std::move(out));
  }

  /// Of the enum or const with the fewest values those that all schemas take.
  ExpressionId listed_values(const Schemas& schemas) {
    std::vector<JsonIndex> values;
    bool listed = false;
    for (const JsonIndex schema : schemas) {
      std::vector<JsonIndex> own;
      if (const JsonIndex at = find(schema, "const"); at != kNoJson) {
        own.push_back(at);
      } else if (const JsonIndex list = find(schema, "enum"); list != kNoJson) {
        own = children_of(list);
      } else {
        continue;
      }
      values = !listed || own.size() < values.size() ? own : values;
      listed = true;
    }
    std::vector<ExpressionId> out;
    for (const JsonIndex value : values) {
      JsonIndex unclear = kNoJson;
      if (std::ranges::all_of(schemas, [&](SchemaPart schema) {
            return takes_value(tree_, schema, value, unclear);
          })) {
        out.push_back(literal(value));
      }
      if (unclear != kNoJson) {
        return fail(unclear, "cannot be joined with an enum or const: list only values that fit");
      }
    }
    return out.empty() ? fail(schemas.front(), "no value is left", Code::kInvalidArgument)
                       : rules_.alternate(std::move(out));
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  ExpressionId literal(JsonIndex value) {
    const JsonNode& node = tree_[value];
    if (node.type == JsonType::kString) {
      return rules_.literal(json_string(node.text));
    }
    if (node.type != JsonType::kObject && node.type != JsonType::kArray) {
      return rules_.literal(node.raw);
    }
    const bool object = node.type == JsonType::kObject;
    std::vector<ExpressionId> parts;
    for (const JsonIndex child : tree_.children(value)) {
      if (!parts.empty()) {
        parts.push_back(json_.comma());
      }
      parts.push_back(
          object ? json_.member(rules_.literal(json_string(tree_[child].key)), literal(child))
                 : literal(child));
    }
    if (!parts.empty()) {
      parts.push_back(json_.space());
    }
    const ExpressionId inside = parts.empty() ? rules_.empty() : rules_.sequence(std::move(parts));
    return object ? json_.in_braces('{', inside, '}') : json_.in_braces('[', inside, ']');
  }

  ExpressionId typed(const Schemas& schemas, SchemaTypes types) {
    std::vector<ExpressionId> out;
    if ((types & kObjectType) != 0) {
      out.push_back(object(schemas));
    }
    if ((types & kArrayType) != 0) {
      out.push_back(array(schemas));
    }
    if ((types & kStringType) != 0) {
      out.push_back(string(schemas));
    }
    if ((types & (kNumberType | kIntegerType)) != 0) {
      out.push_back(number(schemas, (types & kNumberType) == 0));
    }
    if ((types & kBooleanType) != 0) {
      out.push_back(rules_.literal("true"));
      out.push_back(rules_.literal("false"));
    }
    if ((types & kNullType) != 0) {
      out.push_back(rules_.literal("null"));
    }
    return out.empty() ? fail(schemas.front(), "no value fits it and what it is joined with",
                              Code::kInvalidArgument)
                       : rules_.alternate(std::move(out));
  }

  ExpressionId number(const Schemas& schemas, bool whole) {
    NumberShape shape{.whole = whole};
    double low = 0;
    double high = 0;
    JsonIndex place = kNoJson;
    for (const JsonIndex schema : schemas) {
      const auto bound = [&](std::string_view key, std::string_view& text, double& value,
                             bool& open, bool is_open, bool lower) {
        const JsonIndex at = find(schema, key);
        if (at == kNoJson) {
          return;
        }
        place = at;
        const double number = tree_[at].number;
        const bool tighter = text.empty() || (lower ? number > value : number < value) ||
                             (number == value && is_open);
        if (tighter) {
          text = tree_[at].raw;
          value = number;
          open = is_open;
        }
      };
      bound("minimum", shape.minimum, low, shape.above_minimum, false, true);
      bound("exclusiveMinimum", shape.minimum, low, shape.above_minimum, true, true);
      bound("maximum", shape.maximum, high, shape.below_maximum, false, false);
      bound("exclusiveMaximum", shape.maximum, high, shape.below_maximum, true, false);
      if (const JsonIndex at = find(schema, "multipleOf"); at != kNoJson) {
        if (!shape.multiple_of.empty() && shape.multiple_of != tree_[at].raw) {
          return fail(at,
                      "two different multipleOf cannot be joined: write their least common one");
        }
        place = at;
        shape.multiple_of = tree_[at].raw;
      }
    }
    if (place == kNoJson) {
      return whole ? json_.integer() : json_.number();
    }
    const auto out = add_number(rules_, shape);
    return out ? *out
               : fail(place, "needs too large an automaton: use fewer digits", Code::kTooLarge);
  }

  ExpressionId string(const Schemas& schemas) {
    double least = 0;
    double most = -1;
    JsonIndex longest = kNoJson;
    std::vector<std::string_view> patterns;
    JsonIndex last = kNoJson;
    for (const JsonIndex schema : schemas) {
      if (const JsonIndex at = find(schema, "minLength"); at != kNoJson) {
        least = std::max(least, tree_[at].number);
        longest = at;
      }
      if (const JsonIndex at = find(schema, "maxLength"); at != kNoJson) {
        most = most < 0 ? tree_[at].number : std::min(most, tree_[at].number);
        longest = at;
      }
      for (const std::string_view key : {"pattern", "format"}) {
        const JsonIndex at = find(schema, key);
        if (at == kNoJson) {
          continue;
        }
        const std::string_view text = tree_[at].text;
        const std::string_view pattern = key == "pattern" ? text : format_pattern(text);
        if (!pattern.empty()) {
          patterns.push_back(pattern);
          last = at;
        }
      }
    }
    if (patterns.size() == 1 && longest == kNoJson) {
      return json_.quoted(add_pattern(rules_, patterns.front(), CharacterForm::kJsonString));
    }
    if (longest == kNoJson && patterns.empty()) {
      return json_.string();
    }
    if (least > kCharactersMax || (most >= 0 && most < least)) {
      return fail(longest, fmt::format("lengths are enforced up to {} characters", kCharactersMax),
                  Code::kTooLarge);
    }
    // Beyond what any context holds a bound is none.
    const auto max = most < 0 || most > kCharactersMax ? kNoLimit : static_cast<uint32_t>(most);
    if (!patterns.empty()) {
      return joined(patterns, {static_cast<uint32_t>(least), max}, last);
    }
    return json_.quoted(rules_.repeat(json_.character(), static_cast<uint32_t>(least), max));
  }

  ExpressionId joined(std::span<const std::string_view> patterns, const TextLengths& lengths,
                      JsonIndex place) {
    const JoinedPatterns joined = add_joined_patterns(rules_, patterns, lengths);
    switch (joined.outcome) {
      case JoinedPatterns::Outcome::kTooLarge:
        return fail(place, "needs too large an automaton beside the lengths or other patterns",
                    Code::kTooLarge);
      case JoinedPatterns::Outcome::kNothingFits:
        return fail(place, "no text fits it and the lengths or patterns beside it",
                    Code::kInvalidArgument);
      case JoinedPatterns::Outcome::kAdded:
        break;
    }
    return json_.quoted(joined.text);
  }

  double largest(const Schemas& schemas, std::string_view key) const {
    double out = 0;
    for (const JsonIndex schema : schemas) {
      const JsonIndex at = find(schema, key);
      out = at == kNoJson ? out : std::max(out, tree_[at].number);
    }
    return out;
  }
  double smallest(const Schemas& schemas, std::string_view key) const {
    double out = -1;
    for (const JsonIndex schema : schemas) {
      const JsonIndex at = find(schema, key);
      out = at == kNoJson ? out : out < 0 ? tree_[at].number : std::min(out, tree_[at].number);
    }
    return out;
  }

  bool is_false(JsonIndex at) const {
    return at != kNoJson && tree_[at].type == JsonType::kBool && !tree_[at].boolean;
  }

  ExpressionId array(const Schemas& schemas) {
    const double least = largest(schemas, "minItems");
    double most = smallest(schemas, "maxItems");
    if (least > kItemsMax) {
      return fail(find_any(schemas, "minItems").second,
                  fmt::format("is enforced up to {}", kItemsMax), Code::kTooLarge);
    }
    std::vector<ExpressionId> prefix;
    ExpressionId rest = UINT32_MAX;
    bool closed = false;
    {
      size_t listed = 0;
      for (const JsonIndex schema : schemas) {
        const JsonIndex items = tuple_of(tree_, node_of(schema));
        listed = items == kNoJson ? listed : std::max<size_t>(listed, tree_[items].child_count);
        closed = closed || is_false(rest_of(tree_, node_of(schema)));
      }
      for (size_t i = 0; i <= listed; ++i) {
        Schemas parts;
        bool none = false;
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
          none = none || is_false(part);
          if (part != kNoJson) {
            parts.push_back(part);
          }
        }
        if (none) {
          most = most < 0 ? static_cast<double>(i) : std::min(most, static_cast<double>(i));
          break;
        }
        (i < listed ? prefix.emplace_back() : rest) = value(std::move(parts));
      }
    }
    return array_graph(prefix, rest, least, most);
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

  // ---- objects

  struct Property {
    std::string_view name;
    ExpressionId member = 0;
    bool required = false;
  };

  ExpressionId object(const Schemas& schemas) {
    const double least = largest(schemas, "minProperties");
    double most = smallest(schemas, "maxProperties");
    if (least > kPropertyCountMax) {
      return fail(find_any(schemas, "minProperties").second,
                  fmt::format("is enforced up to {}", kPropertyCountMax), Code::kTooLarge);
    }
    most = most > kPropertyCountMax ? -1 : most;
    std::vector<Property> properties = listed_properties(schemas);
    std::vector<ExpressionId> extras = extra_members(schemas, properties);
    if (properties.empty() && extras.empty() && says_nothing_of_members(schemas)) {
      if (least == 0 && most < 0 && !spelling_.closed_objects) {
        return json_.any_object();
      }
      extras.push_back(json_.member(json_.key(), json_.any_value()));
    }
    const ExpressionId extra = extras.empty() ? UINT32_MAX : rules_.alternate(std::move(extras));
    const bool counts = least > 0 || most >= 0;
    return counts ? counted_members(properties, extra, least, most) : members(properties, extra);
  }

  bool says_nothing_of_members(const Schemas& schemas) const {
    return std::ranges::none_of(schemas, [&](JsonIndex schema) {
      return find(schema, "properties") != kNoJson ||
             find(schema, "patternProperties") != kNoJson ||
             find(schema, "additionalProperties") != kNoJson;
    });
  }

  std::vector<Property> listed_properties(const Schemas& schemas) {
    std::vector<Property> out;
    for (const JsonIndex schema : schemas) {
      const JsonIndex properties = find(schema, "properties");
      if (properties == kNoJson) {
        continue;
      }
      for (const JsonIndex property : tree_.children(properties)) {
        const std::string_view name = tree_[property].key;
        if (std::ranges::find(out, name, &Property::name) == out.end()) {
          add_property(schemas, name, out);
        }
      }
    }
    add_required(schemas, out);
    return out;
  }

  /// Names that are required and not listed: any value that additionalProperties takes.
  void add_required(const Schemas& schemas, std::vector<Property>& out) {
    for (const JsonIndex schema : schemas) {
      const JsonIndex required = find(schema, "required");
      if (required == kNoJson) {
        continue;
      }
      for (const JsonIndex name : tree_.children(required)) {
        if (std::ranges::find(out, tree_[name].text, &Property::name) != out.end()) {
          continue;
        }
        if (find_any(schemas, "patternProperties").second != kNoJson) {
          fail(name, "is not among properties, which patternProperties excludes: write a pattern");
          return;
        }
        add_property(schemas, tree_[name].text, out);
      }
    }
  }

  void add_property(const Schemas& schemas, std::string_view name, std::vector<Property>& out) {
    Schemas parts;
    bool required = false;
    bool closed = false;
    for (const JsonIndex schema : schemas) {
      const JsonIndex properties = find(schema, "properties");
      JsonIndex part = properties == kNoJson ? kNoJson : tree_.find(properties, name);
      if (part == kNoJson) {
        part = find(schema, "additionalProperties");
      }
      closed = closed || is_false(part);
      if (part != kNoJson) {
        parts.push_back(part);
      }
      if (const JsonIndex list = find(schema, "required"); list != kNoJson) {
        for (const JsonIndex item : tree_.children(list)) {
          required = required || tree_[item].text == name;
        }
      }
    }
    if (closed) {
      if (required) {
        fail(schemas.front(), fmt::format("\"{}\" is required and not allowed", name.substr(0, 64)),
             Code::kInvalidArgument);
      }
      return;
    }
    out.push_back(
        {.name = name,
         .member = json_.member(rules_.literal(json_string(name)), value(std::move(parts))),
         .required = required});
  }

  /// Members whose names are not listed.
  std::vector<ExpressionId> extra_members(const Schemas& schemas,
                                          const std::vector<Property>& properties) {
    std::vector<ExpressionId> out;
    const auto [owner, patterns] = find_any(schemas, "patternProperties");
    if (patterns != kNoJson) {
      for (const JsonIndex member : tree_.children(patterns)) {
        const ExpressionId key =
            json_.quoted(add_pattern(rules_, tree_[member].key, CharacterForm::kJsonString));
        out.push_back(json_.member(key, value({member})));
      }
    }
    if (spelling_.closed_objects || patterns != kNoJson) {
      return out;
    }
    Schemas parts;
    bool open = false;
    for (const JsonIndex schema : schemas) {
      const JsonIndex others = find(schema, "additionalProperties");
      if (is_false(others)) {
        return out;
      }
      open = open || others != kNoJson;
      if (others != kNoJson) {
        parts.push_back(others);
      }
    }
    if (open) {
      const ExpressionId key = properties.empty() ? json_.key() : other_key(properties);
      out.push_back(json_.member(key, value(std::move(parts))));
    }
    return out;
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
  const JsonTree& tree_;
  const JsonSpelling& spelling_;
  JsonRules json_;
  std::map<Schemas, ExpressionId> known_;
  std::deque<Pending> queue_;
  size_t alternatives_ = 0;
  std::optional<Refusal> refusal_;
};

}  // namespace

Outcome<ExpressionId> add_schema(RuleSet& rules, const JsonTree& tree,
                                 const JsonSpelling& spelling) {
  return SchemaRules(rules, tree, spelling).compile();
}

ExpressionId add_any_object(RuleSet& rules, const JsonSpelling& spelling) {
  return JsonRules(rules, spelling).any_object();
}

}  // namespace stator::structured
