// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/schema_parts.h"

#include <algorithm>

#include "stator/structured/detail/rule_builders.h"
#include "stator/structured/detail/schema_keywords.h"
#include "stator/structured/detail/schema_siblings.h"

namespace stator::structured {
namespace {

bool has_type(const JsonNode& node, SchemaTypes types) {
  switch (node.type) {
    case JsonType::kObject:
      return (types & kObjectType) != 0;
    case JsonType::kArray:
      return (types & kArrayType) != 0;
    case JsonType::kString:
      return (types & kStringType) != 0;
    case JsonType::kNumber:
      return (types & kNumberType) != 0 ||
             ((types & kIntegerType) != 0 &&
              node.raw.find_first_of(".eE") == std::string_view::npos);
    case JsonType::kBool:
      return (types & kBooleanType) != 0;
    case JsonType::kNull:
      break;
  }
  return (types & kNullType) != 0;
}

double characters(std::string_view text) {
  const auto is_start = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80;
  };
  return static_cast<double>(std::ranges::count_if(text, is_start));
}

enum class Verdict : uint8_t { kTaken, kNot, kUnclear };

Verdict bounded(std::string_view name, double size, double limit) {
  const bool taken = name == "exclusiveMinimum"   ? size > limit
                     : name == "exclusiveMaximum" ? size < limit
                     : name.starts_with("min")    ? size >= limit
                                                  : size <= limit;
  return taken ? Verdict::kTaken : Verdict::kNot;
}

/// One keyword, `type`, `enum` and `const` apart.
Verdict judge(const SchemaKeyword& keyword, double limit, const JsonNode& value) {
  const std::string_view name = keyword.name;
  switch (keyword.domain) {
    case SchemaDomain::kNone:
    case SchemaDomain::kTypes:
      return Verdict::kTaken;
    case SchemaDomain::kWhole:
      return name == "const" || name == "enum" ? Verdict::kTaken : Verdict::kUnclear;
    case SchemaDomain::kString:
      if (value.type != JsonType::kString) {
        return Verdict::kTaken;
      }
      return name.ends_with("Length") ? bounded(name, characters(value.text), limit)
                                      : Verdict::kUnclear;
    case SchemaDomain::kNumber:
      if (value.type != JsonType::kNumber) {
        return Verdict::kTaken;
      }
      return name == "multipleOf" ? Verdict::kUnclear : bounded(name, value.number, limit);
    case SchemaDomain::kArray:
      return value.type == JsonType::kArray ? Verdict::kUnclear : Verdict::kTaken;
    case SchemaDomain::kObject:
      break;
  }
  return value.type == JsonType::kObject ? Verdict::kUnclear : Verdict::kTaken;
}

}  // namespace

bool same_value(const JsonTree& tree, JsonIndex a, JsonIndex b) {
  const JsonNode& x = tree[a];
  const JsonNode& y = tree[b];
  if (x.type != y.type) {
    return false;
  }
  return x.type == JsonType::kNumber   ? x.number == y.number
         : x.type == JsonType::kString ? x.text == y.text
                                       : x.raw == y.raw;
}

JsonIndex find_keyword(const JsonTree& tree, SchemaPart part, std::string_view key) {
  const JsonIndex node = node_of(part);
  return tree[node].type == JsonType::kObject && !is_left_out(part, key) ? tree.find(node, key)
                                                                         : kNoJson;
}

bool takes_value(const JsonTree& tree, SchemaPart part, JsonIndex value, JsonIndex& unclear) {
  const auto is_value = [&](JsonIndex other) { return same_value(tree, other, value); };
  const JsonIndex constant = find_keyword(tree, part, "const");
  const JsonIndex list = find_keyword(tree, part, "enum");
  if ((constant != kNoJson && !is_value(constant)) ||
      (find_keyword(tree, part, "type") != kNoJson &&
       !has_type(tree[value], types_of(tree, node_of(part))))) {
    return false;
  }
  bool listed = list == kNoJson;
  for (const JsonIndex other : tree.children(list == kNoJson ? value : list)) {
    listed = listed || is_value(other);
  }
  if (!listed) {
    return false;
  }
  for (const JsonIndex member : tree.children(node_of(part))) {
    const SchemaKeyword* keyword = find_schema_keyword(tree[member].key);
    if (keyword == nullptr || is_left_out(part, keyword->name)) {
      continue;
    }
    if (keyword->rule == SchemaRule::kDenied) {
      const JsonIndex denied = tree.find(member, "enum");
      const JsonIndex pattern = tree.find(member, "pattern");
      for (const JsonIndex other : tree.children(denied == kNoJson ? value : denied)) {
        if (denied != kNoJson && same_value(tree, other, value)) {
          return false;
        }
      }
      if (pattern != kNoJson && tree[value].type == JsonType::kString &&
          text_has(tree[pattern].text, tree[value].text)) {
        return false;
      }
      continue;
    }
    if (keyword->rule == SchemaRule::kPattern && tree[value].type == JsonType::kString) {
      if (!text_has(tree[member].text, tree[value].text)) {
        return false;
      }
      continue;
    }
    const Verdict verdict = judge(*keyword, tree[member].number, tree[value]);
    if (verdict != Verdict::kTaken) {
      unclear = verdict == Verdict::kUnclear ? member : unclear;
      return false;
    }
  }
  return true;
}

}  // namespace stator::structured
