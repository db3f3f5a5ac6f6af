// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/schema_view.h"

#include <algorithm>
#include <iterator>

#include "stator/structured/detail/schema_keywords.h"

namespace stator::structured {

double SchemaView::largest(const Schemas& schemas, std::string_view key) const {
  double out = 0;
  for (const JsonIndex schema : schemas) {
    const JsonIndex at = find(schema, key);
    out = at == kNoJson ? out : std::max(out, tree_[at].number);
  }
  return out;
}
double SchemaView::smallest(const Schemas& schemas, std::string_view key) const {
  double out = -1;
  for (const JsonIndex schema : schemas) {
    const JsonIndex at = find(schema, key);
    out = at == kNoJson ? out : out < 0 ? tree_[at].number : std::min(out, tree_[at].number);
  }
  return out;
}

std::vector<JsonIndex> SchemaView::denied_values(const Schemas& schemas) const {
  std::vector<JsonIndex> out;
  for (const JsonIndex schema : schemas) {
    const JsonIndex denied = find(schema, "not");
    const JsonIndex list = denied == kNoJson ? kNoJson : tree_.find(denied, "enum");
    if (list != kNoJson) {
      std::ranges::copy(children_of(list), std::back_inserter(out));
    }
  }
  return out;
}
std::vector<JsonIndex> SchemaView::denied_values(const Schemas& schemas, JsonType type) const {
  std::vector<JsonIndex> out = denied_values(schemas);
  std::erase_if(out, [&](JsonIndex value) { return tree_[value].type != type; });
  return out;
}

TextShape SchemaView::text_shape(const Schemas& schemas, JsonIndex& last) const {
  TextShape shape;
  double least = 0;
  double most = -1;
  for (const JsonIndex schema : schemas) {
    if (const JsonIndex at = find(schema, "minLength"); at != kNoJson) {
      least = std::max(least, tree_[at].number);
      last = at;
    }
    if (const JsonIndex at = find(schema, "maxLength"); at != kNoJson) {
      most = most < 0 ? tree_[at].number : std::min(most, tree_[at].number);
      last = at;
    }
    for (const std::string_view key : {"pattern", "format"}) {
      const JsonIndex at = find(schema, key);
      if (at == kNoJson) {
        continue;
      }
      const std::string_view text = tree_[at].text;
      const std::string_view pattern = key == "pattern" ? text : format_pattern(text);
      if (!pattern.empty()) {
        shape.patterns.push_back(pattern);
        last = at;
      }
    }
    const JsonIndex denied = find(schema, "not");
    const JsonIndex pattern = denied == kNoJson ? kNoJson : tree_.find(denied, "pattern");
    if (pattern != kNoJson) {
      shape.not_patterns.push_back(tree_[pattern].text);
      last = pattern;
    }
  }
  for (const JsonIndex value : denied_values(schemas, JsonType::kString)) {
    shape.not_texts.push_back(tree_[value].text);
    last = value;
  }
  if (least > kCharactersMax) {
    least = 1;
    most = 0;
  }
  // Beyond what any context holds a bound is none.
  shape.lengths = {static_cast<uint32_t>(least),
                   most < 0 || most > kCharactersMax ? kNoLimit : static_cast<uint32_t>(most)};
  return shape;
}

std::pair<JsonIndex, JsonIndex> SchemaView::find_any(const Schemas& schemas,
                                                     std::string_view key) const {
  for (const JsonIndex schema : schemas) {
    if (const JsonIndex at = find(schema, key); at != kNoJson) {
      return {schema, at};
    }
  }
  return {kNoJson, kNoJson};
}

Schemas SchemaView::flatten(Schemas schemas) const {
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
bool SchemaView::says_something(SchemaPart schema) const {
  if (tree_[node_of(schema)].type != JsonType::kObject) {
    return false;
  }
  return std::ranges::any_of(children_of(node_of(schema)), [&](JsonIndex member) {
    const SchemaKeyword* keyword = find_schema_keyword(tree_[member].key);
    return keyword != nullptr && keyword->domain != SchemaDomain::kNone &&
           !is_left_out(schema, keyword->name);
  });
}
std::vector<JsonIndex> SchemaView::children_of(JsonIndex parent) const {
  std::vector<JsonIndex> out;
  for (const JsonIndex child : tree_.children(parent)) {
    out.push_back(child);
  }
  return out;
}

}  // namespace stator::structured
