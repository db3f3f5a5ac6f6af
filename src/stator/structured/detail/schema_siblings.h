// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/structured/detail/json_tree.h"

namespace stator::structured {

/// Types a schema allows, one bit each.
using SchemaTypes = uint8_t;
inline constexpr SchemaTypes kObjectType = 1;
inline constexpr SchemaTypes kArrayType = 2;
inline constexpr SchemaTypes kStringType = 4;
inline constexpr SchemaTypes kNumberType = 8;
inline constexpr SchemaTypes kIntegerType = 16;
inline constexpr SchemaTypes kBooleanType = 32;
inline constexpr SchemaTypes kNullType = 64;
inline constexpr SchemaTypes kAnyType = 127;

/// The bit of a type's name, 0 for an unknown one.
SchemaTypes type_named(std::string_view name);

/// What `type` says, or what decoders conclude without it: properties and additionalProperties
/// stand for an object, items and prefixItems for an array, nothing else says anything.
SchemaTypes types_of(const JsonTree& tree, JsonIndex schema);

/// The schemas of a tuple's items: prefixItems, or a list as `items`; kNoJson if there are none.
JsonIndex tuple_of(const JsonTree& tree, JsonIndex schema);
/// The schema of the items behind those: items, or behind a list additionalItems.
JsonIndex rest_of(const JsonTree& tree, JsonIndex schema);

/// A keyword of one schema that its neighbours make impossible or ineffective.
struct SchemaComplaint {
  JsonIndex at = kNoJson;
  std::string why;
  /// Decoders look at one of the keywords only, rules_of_schema.cc at all of them
  /// (SchemaFeature::kSiblings).
  bool only_others = false;
};

/// Checks the keywords of one schema against each other; each alone has been found well formed.
/// The rules are those of decoders rather than the standard's: xgrammar (tried with 0.2.8) looks at
/// one of $ref, const, enum, anyOf, oneOf, allOf and `type`, then only at what belongs to that
/// type, and of strings at one of pattern, format and length.
std::optional<SchemaComplaint> check_siblings(const JsonTree& tree, JsonIndex schema);

}  // namespace stator::structured
