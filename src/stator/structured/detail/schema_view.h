// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "stator/structured/detail/json_rules.h"
#include "stator/structured/detail/rule_builders.h"
#include "stator/structured/detail/schema_parts.h"

namespace stator::structured {

/// Schemas that all hold for one value.
using Schemas = std::vector<SchemaPart>;

inline constexpr double kItemsMax = 100'000;  ///< of an array or object with a bound
inline constexpr double kCharactersMax = 5'000'000;

/// What the schemas of a conjunction say, keyword by keyword.
class SchemaView {
 public:
  explicit SchemaView(const JsonTree& tree) : tree_(tree) {}

  const JsonTree& tree() const { return tree_; }
  JsonIndex find(SchemaPart schema, std::string_view key) const {
    return find_keyword(tree_, schema, key);
  }
  /// The first schema with the keyword, and its value.
  std::pair<JsonIndex, JsonIndex> find_any(const Schemas& schemas, std::string_view key) const;
  std::vector<JsonIndex> children_of(JsonIndex parent) const;
  bool is_false(JsonIndex at) const {
    return at != kNoJson && tree_[at].type == JsonType::kBool && !tree_[at].boolean;
  }
  /// References followed, allOf opened, schemas that say nothing left out.
  Schemas flatten(Schemas schemas) const;
  bool says_something(SchemaPart schema) const;
  /// The largest value of a keyword, 0 without; the smallest, −1 without.
  double largest(const Schemas& schemas, std::string_view key) const;
  double smallest(const Schemas& schemas, std::string_view key) const;
  /// The values of all `not: {enum: …}`; those of one type.
  std::vector<JsonIndex> denied_values(const Schemas& schemas) const;
  std::vector<JsonIndex> denied_values(const Schemas& schemas, JsonType type) const;
  /// What they say of a string; `last` becomes the place of one that does. Lengths that no context
  /// holds fit nothing.
  TextShape text_shape(const Schemas& schemas, JsonIndex& last) const;

 private:
  const JsonTree& tree_;
};

/// Compiles the schemas of what a value contains.
class ValueRules {
 public:
  virtual ~ValueRules() = default;
  virtual ExpressionId value(Schemas schemas) = 0;
  virtual ExpressionId literal(JsonIndex value) = 0;
  virtual ExpressionId fail(JsonIndex at, std::string_view why, Code code = Code::kUnsupported) = 0;
  /// A contradiction: what an alternative that comes to it is worth.
  virtual ExpressionId none(JsonIndex at, std::string_view why) = 0;
};

struct SchemaTools {
  RuleSet& rules;
  JsonRules& json;
  const SchemaView& view;
  ValueRules& values;
};

/// An array, an object that follows the schemas.
ExpressionId add_array(const SchemaTools& tools, const Schemas& schemas);
ExpressionId add_object(const SchemaTools& tools, const Schemas& schemas);

}  // namespace stator::structured
