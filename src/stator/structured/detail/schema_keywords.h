// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "stator/structured/schema_features.h"

namespace stator::structured {

/// How a keyword of JSON Schema is read.
enum class SchemaRule : uint8_t {
  kIgnored,  ///< annotation
  kType,
  kEnum,
  kMembers,         ///< object of schemas
  kPatternMembers,  ///< the same, keys are regular expressions
  kSchema,          ///< schema or boolean
  kItems,           ///< the same, with advice for draft 7's list
  kList,            ///< non-empty array of schemas
  kNames,           ///< array of strings
  kCount,           ///< whole number from 0
  kBound,           ///< number
  kMultiple,        ///< number above 0
  kPattern,
  kFormat,
  kReference,
  kRefusedIfTrue,      ///< `false` says nothing
  kRefusedUnlessTrue,  ///< `true` says nothing
  kNamesOfMembers,     ///< schema of keys: says nothing if every key fits
  // SchemaFeature::kSiblings: of our own engines only.
  kFlag,
  kOwnSchema,
  kOwnCount,
  kDenied,  ///< `not` as rewrite_schema.h leaves it
  kRefused,
};

/// What kind of value a keyword speaks about.
enum class SchemaDomain : uint8_t {
  kNone,   ///< annotations and definitions: may stand beside anything
  kTypes,  ///< `type`
  kWhole,  ///< says all there is to say about the value: $ref, const, enum, anyOf, oneOf, allOf
  kString,
  kNumber,
  kArray,
  kObject,
};

struct SchemaKeyword {
  std::string_view name;
  SchemaRule rule = SchemaRule::kIgnored;
  SchemaDomain domain = SchemaDomain::kNone;
  std::optional<SchemaFeature> feature = {};
  std::string_view advice = {};  ///< kRefused…: what to do instead
};

/// The table's row, or null for a keyword the standard tells readers to ignore.
const SchemaKeyword* find_schema_keyword(std::string_view name);

enum class FormatSupport : uint8_t {
  kCommon,      ///< every engine enforces it
  kUncommon,    ///< SchemaFeature::kUncommonFormat
  kAnnotation,  ///< says how numbers or bytes are stored, or is in no draft: nothing to enforce
  kOwn,         ///< our own engines only: by a part of what the format takes
};
FormatSupport classify_format(std::string_view name);

}  // namespace stator::structured
