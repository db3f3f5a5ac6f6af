// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/schema_siblings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "stator/structured/detail/schema_keywords.h"

namespace stator::structured {
namespace {

using Complaint = std::optional<SchemaComplaint>;

bool has(const JsonTree& tree, JsonIndex schema, std::string_view key) {
  return tree.find(schema, key) != kNoJson;
}

// Both number bits for a whole number: it is of either type.
SchemaTypes types_of_value(const JsonNode& value) {
  switch (value.type) {
    case JsonType::kObject:
      return kObjectType;
    case JsonType::kArray:
      return kArrayType;
    case JsonType::kString:
      return kStringType;
    case JsonType::kNumber:
      return std::floor(value.number) == value.number ? kNumberType | kIntegerType : kNumberType;
    case JsonType::kBool:
      return kBooleanType;
    case JsonType::kNull:
      break;
  }
  return kNullType;
}

SchemaTypes with_integers(SchemaTypes types) {
  return (types & kNumberType) != 0 ? types | kIntegerType : types;
}

SchemaDomain domain_of(const JsonTree& tree, JsonIndex member) {
  const SchemaKeyword* keyword = find_schema_keyword(tree[member].key);
  if (keyword == nullptr) {
    return SchemaDomain::kNone;
  }
  const bool says_nothing = keyword->rule == SchemaRule::kFormat &&
                            classify_format(tree[member].text) == FormatSupport::kAnnotation;
  return says_nothing ? SchemaDomain::kNone : keyword->domain;
}

// ---- beside $ref, const, enum, anyOf, oneOf, allOf

// Whether all values of the member of an anyOf are of `allowed` types, as far as it says so itself.
bool states_types(const JsonTree& tree, JsonIndex member, SchemaTypes allowed) {
  if (const JsonIndex constant = tree.find(member, "const"); constant != kNoJson) {
    return (types_of_value(tree[constant]) & allowed) != 0;
  }
  if (const JsonIndex values = tree.find(member, "enum"); values != kNoJson) {
    for (const JsonIndex value : tree.children(values)) {
      if ((types_of_value(tree[value]) & allowed) == 0) {
        return false;
      }
    }
    return true;
  }
  if (const JsonIndex reference = tree.find(member, "$ref"); reference != kNoJson) {
    const std::string_view target = tree[reference].text;
    member = target.starts_with('#') ? tree.resolve(0, target.substr(1)) : kNoJson;
    if (member == kNoJson) {
      return true;  // a reference that leads nowhere is refused as such
    }
  }
  const SchemaTypes stated = types_of(tree, member);
  return stated != kAnyType && (stated & ~with_integers(allowed)) == 0;
}

// `type` has no effect there: it must not be needed.
Complaint check_type_beside(const JsonTree& tree, JsonIndex type, JsonIndex whole) {
  const SchemaTypes allowed = types_of(tree, tree[type].parent);
  const std::string_view key = tree[whole].key;
  if (key == "$ref") {
    return SchemaComplaint{
        type, "type beside $ref is not enforced: move it into what $ref refers to", true};
  }
  if (key == "const") {
    const bool fits = (types_of_value(tree[whole]) & allowed) != 0;
    return fits ? Complaint() : SchemaComplaint{whole, "does not have the type beside it"};
  }
  for (const JsonIndex member : tree.children(whole)) {
    if (key == "enum" && (types_of_value(tree[member]) & allowed) == 0) {
      return SchemaComplaint{member, "does not have the type beside enum: leave the value out",
                             true};
    }
    if (key != "enum" && !states_types(tree, member, allowed)) {
      return SchemaComplaint{
          member, fmt::format("the type beside {} is not enforced: repeat it here", key), true};
    }
  }
  return {};
}

Complaint check_beside(const JsonTree& tree, JsonIndex schema, JsonIndex whole) {
  const std::string_view key = tree[whole].key;
  const bool values = key == "const" || key == "enum";
  Complaint first;
  for (const JsonIndex member : tree.children(schema)) {
    const SchemaDomain domain = domain_of(tree, member);
    if (member == whole || domain == SchemaDomain::kNone) {
      continue;
    }
    Complaint complaint;
    if (domain == SchemaDomain::kTypes) {
      complaint = check_type_beside(tree, member, whole);
    } else {
      // Members of oneOf that exclude each other may no longer do so once something is added.
      complaint =
          SchemaComplaint{member,
                          fmt::format("{} beside {} is not enforced: {}", tree[member].key, key,
                                      values          ? "list only values that fit"
                                      : key == "$ref" ? "move it into what $ref refers to"
                                                      : "move it into each member"),
                          key != "oneOf" && tree[member].key != "oneOf"};
    }
    if (complaint && !complaint->only_others) {
      return complaint;
    }
    first = first ? first : complaint;
  }
  return first;
}

// ---- beside `type`

struct DomainType {
  SchemaDomain domain;
  SchemaTypes types;
  std::string_view name;
};

Complaint check_type_needed(const JsonTree& tree, JsonIndex schema) {
  if (has(tree, schema, "type")) {
    return {};
  }
  constexpr auto kTypes = std::to_array<DomainType>({
      {SchemaDomain::kString, kStringType, "string"},
      {SchemaDomain::kNumber, kNumberType | kIntegerType, "number"},
      {SchemaDomain::kArray, kArrayType, "array"},
      {SchemaDomain::kObject, kObjectType, "object"},
  });
  const SchemaTypes concluded = types_of(tree, schema);
  for (const JsonIndex member : tree.children(schema)) {
    const auto row = std::ranges::find(kTypes, domain_of(tree, member), &DomainType::domain);
    if (row != kTypes.end() && (concluded == kAnyType || (row->types & concluded) == 0)) {
      return SchemaComplaint{member,
                             fmt::format("is only enforced beside type: add \"type\": \"{}\"{}",
                                         row->name, row->name == "number" ? " or \"integer\"" : ""),
                             true};
    }
  }
  return {};
}

Complaint check_string(const JsonTree& tree, JsonIndex schema) {
  JsonIndex first = kNoJson;
  for (const JsonIndex member : tree.children(schema)) {
    if (domain_of(tree, member) != SchemaDomain::kString) {
      continue;
    }
    const auto is_length = [&tree](JsonIndex at) { return tree[at].key.ends_with("Length"); };
    if (first == kNoJson) {
      first = member;
    } else if (!is_length(first) || !is_length(member)) {
      return SchemaComplaint{
          member,
          fmt::format("{} and {} are not enforced together: say it all with pattern, as in "
                      "^[a-z]{{2,5}}$",
                      tree[first].key, tree[member].key),
          true};
    }
  }
  return {};
}

Complaint check_whole_bounds(const JsonTree& tree, JsonIndex schema) {
  if ((types_of(tree, schema) & (kIntegerType | kNumberType)) != kIntegerType) {
    return {};
  }
  for (const std::string_view key :
       {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const JsonIndex bound = tree.find(schema, key);
    if (bound != kNoJson && (types_of_value(tree[bound]) & kIntegerType) == 0) {
      return SchemaComplaint{bound, "must be a whole number, as the type is integer"};
    }
  }
  return {};
}

Complaint check_bounds(const JsonTree& tree, JsonIndex schema) {
  struct Pair {
    std::string_view low;
    std::string_view high;
    bool open;  // equal bounds exclude every value, too
  };
  constexpr auto kPairs = std::to_array<Pair>({
      {"minLength", "maxLength", false},
      {"minItems", "maxItems", false},
      {"minProperties", "maxProperties", false},
      {"minimum", "maximum", false},
      {"exclusiveMinimum", "maximum", true},
      {"minimum", "exclusiveMaximum", true},
      {"exclusiveMinimum", "exclusiveMaximum", true},
  });
  for (const Pair& pair : kPairs) {
    const JsonIndex low = tree.find(schema, pair.low);
    const JsonIndex high = tree.find(schema, pair.high);
    if (low == kNoJson || high == kNoJson) {
      continue;
    }
    const double distance = tree[high].number - tree[low].number;
    if (distance < 0 || (pair.open && distance == 0)) {
      return SchemaComplaint{high, fmt::format("no value fits {} {} and {} {}", pair.low,
                                               tree[low].raw, pair.high, tree[high].raw)};
    }
  }
  return {};
}

bool is_false(const JsonTree& tree, JsonIndex value) {
  return value != kNoJson && tree[value].type == JsonType::kBool && !tree[value].boolean;
}

Complaint check_required(const JsonTree& tree, JsonIndex schema) {
  const JsonIndex required = tree.find(schema, "required");
  if (required == kNoJson) {
    return {};
  }
  const JsonIndex properties = tree.find(schema, "properties");
  const bool may_be_others = !is_false(tree, tree.find(schema, "additionalProperties")) ||
                             has(tree, schema, "patternProperties");
  for (const JsonIndex name : tree.children(required)) {
    if (properties == kNoJson || !has(tree, properties, tree[name].text)) {
      return SchemaComplaint{
          name,
          fmt::format("\"{}\" is not among properties, so that it is not enforced: add it "
                      "there",
                      tree[name].text),
          may_be_others};
    }
  }
  return {};
}

double count_at(const JsonTree& tree, JsonIndex schema, std::string_view key, double otherwise) {
  const JsonIndex at = tree.find(schema, key);
  return at == kNoJson ? otherwise : tree[at].number;
}

double children_of(const JsonTree& tree, JsonIndex schema, std::string_view key) {
  const JsonIndex at = tree.find(schema, key);
  return at == kNoJson ? 0 : tree[at].child_count;
}

Complaint check_properties(const JsonTree& tree, JsonIndex schema) {
  const double listed = children_of(tree, schema, "properties");
  const JsonIndex patterns = tree.find(schema, "patternProperties");
  if (patterns != kNoJson && listed > 0) {
    return SchemaComplaint{patterns,
                           "is not enforced beside properties: write each property as a pattern, "
                           "or list them all",
                           true};
  }
  const JsonIndex others = tree.find(schema, "additionalProperties");
  const bool closed = patterns == kNoJson && (others == kNoJson || is_false(tree, others));
  if (closed && count_at(tree, schema, "minProperties", 0) > listed) {
    return SchemaComplaint{tree.find(schema, "minProperties"),
                           "is more than there are properties: list more, or set "
                           "additionalProperties"};
  }
  const double required = children_of(tree, schema, "required");
  if (count_at(tree, schema, "maxProperties", required) < required) {
    return SchemaComplaint{tree.find(schema, "maxProperties"), "is less than required has names"};
  }
  return {};
}

Complaint check_tuple(const JsonTree& tree, JsonIndex schema) {
  const bool closed = is_false(tree, rest_of(tree, schema));
  const JsonIndex tuple = tuple_of(tree, schema);
  const double listed = tuple == kNoJson ? 0 : tree[tuple].child_count;
  const double least = count_at(tree, schema, "minItems", 0);
  if (closed && least > listed) {
    return SchemaComplaint{tree.find(schema, "minItems"),
                           "is more than prefixItems has, and items is false"};
  }
  return {};
}

}  // namespace

SchemaTypes type_named(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames = {"object",  "array",   "string", "number",
                                                      "integer", "boolean", "null"};
  const auto found = std::ranges::find(kNames, name);
  return found == kNames.end() ? SchemaTypes{0}
                               : static_cast<SchemaTypes>(1U << (found - kNames.begin()));
}

SchemaTypes types_of(const JsonTree& tree, JsonIndex schema) {
  const JsonIndex type = tree.find(schema, "type");
  if (type != kNoJson) {
    if (tree[type].type == JsonType::kString) {
      return type_named(tree[type].text);
    }
    unsigned types = 0;
    for (const JsonIndex name : tree.children(type)) {
      types |= type_named(tree[name].text);
    }
    return static_cast<SchemaTypes>(types);
  }
  if (has(tree, schema, "properties") || has(tree, schema, "additionalProperties")) {
    return kObjectType;
  }
  const bool is_array = has(tree, schema, "items") || has(tree, schema, "prefixItems");
  return is_array ? kArrayType : kAnyType;
}

JsonIndex tuple_of(const JsonTree& tree, JsonIndex schema) {
  const JsonIndex items = tree.find(schema, "items");
  return items != kNoJson && tree[items].type == JsonType::kArray
             ? items
             : tree.find(schema, "prefixItems");
}

JsonIndex rest_of(const JsonTree& tree, JsonIndex schema) {
  const JsonIndex items = tree.find(schema, "items");
  return items != kNoJson && tree[items].type == JsonType::kArray
             ? tree.find(schema, "additionalItems")
             : items;
}

Complaint check_siblings(const JsonTree& tree, JsonIndex schema) {
  Complaint first;
  JsonIndex whole = kNoJson;
  for (const std::string_view key : {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"}) {
    whole = whole == kNoJson ? tree.find(schema, key) : whole;
  }
  if (whole != kNoJson) {
    first = check_beside(tree, schema, whole);
    if (first && !first->only_others) {
      return first;
    }
  }
  using Rule = Complaint (*)(const JsonTree&, JsonIndex);
  constexpr auto kAlways = std::to_array<Rule>({check_whole_bounds, check_bounds, check_string});
  constexpr auto kAlone =
      std::to_array<Rule>({check_properties, check_tuple, check_required, check_type_needed});
  for (const std::span<const Rule> checks :
       {std::span<const Rule>(kAlways),
        std::span<const Rule>(kAlone).first(whole == kNoJson ? kAlone.size() : 0)}) {
    for (const Rule check : checks) {
      auto complaint = check(tree, schema);
      if (complaint && !complaint->only_others) {
        return complaint;
      }
      first = first ? first : complaint;
    }
  }
  return first;
}

}  // namespace stator::structured
